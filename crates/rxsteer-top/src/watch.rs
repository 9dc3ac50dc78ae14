//! The thread that queries an instance at intervals, so that a slow answer does not delay a key.

use crate::app::{Position, Reading};
use anyhow::Context;
use ratatui::crossterm::event::Event;
use rxsteer_host::Load;
use rxsteer_status::protocol::{MAX_FLOWS, too_long};
use rxsteer_status::{Status, client};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The instance to query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one that listens at this socket.
    Socket(PathBuf),
    /// The one that steers this interface.
    Interface(String),
    /// The first one, or another one after the key `n`.
    Any,
}

/// A command for the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Query this often.
    Interval(Duration),
    /// Stop querying, or continue.
    Pause(bool),
    /// Query the next instance from now on.
    Next,
}

/// An update for the view.
#[derive(Debug)]
pub enum Update {
    /// A reading of the instance.
    Reading(Box<Reading>),
    /// The instance does not answer; holds the reason.
    Lost(String),
    /// A key, or a new size of the terminal.
    Terminal(Event),
    /// A signal requests the end.
    Stop,
    /// A thread ended unexpectedly.
    Failed(&'static str),
}

/// Reports that a thread ended, even if it panicked.
pub(crate) struct Watched {
    pub(crate) name: &'static str,
    pub(crate) updates: Sender<Update>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // If there is no receiver any more, the program is ending.
        let _ = self.updates.send(Update::Failed(self.name));
    }
}

/// Queries an instance, and finds it again after a restart.
pub struct Watcher {
    target: Target,
    /// The instance that answered last.
    socket: Option<PathBuf>,
    /// The interfaces that it steered, to find it again.
    steered: Vec<String>,
    position: Position,
    flows: u32,
}

impl Watcher {
    /// No instance has been queried yet.
    #[must_use]
    pub fn new(target: Target) -> Watcher {
        let position = Position { number: 1, count: 1 };
        Watcher { target, socket: None, steered: Vec::new(), position, flows: MAX_FLOWS }
    }

    /// Queries once.
    ///
    /// # Errors
    /// If no instance answers.
    pub fn read(&mut self) -> anyhow::Result<Reading> {
        let socket = match &self.socket {
            Some(socket) => socket.clone(),
            None => self.find()?,
        };
        let status = self.query(&socket).inspect_err(|_| self.socket = None)?;
        self.steered = status.interfaces.iter().map(|known| known.name.clone()).collect();
        self.socket = Some(socket);
        Ok(Reading { status, load: Load::read(), position: self.position })
    }

    /// The status with the largest flows, as many as fit into an answer.
    fn query(&mut self, socket: &Path) -> anyhow::Result<Status> {
        loop {
            match client::status(socket, self.flows, false) {
                Err(why) if self.flows > 0 && why.to_string() == too_long() => self.flows /= 2,
                answer => return answer,
            }
        }
    }

    fn find(&mut self) -> anyhow::Result<PathBuf> {
        let found = match &self.target {
            Target::Socket(socket) => return Ok(socket.clone()),
            Target::Interface(name) => client::one(None, Some(name))?,
            Target::Any => {
                let same = self.steered.iter().find_map(|name| client::one(None, Some(name)).ok());
                match same {
                    Some(socket) => socket,
                    None => client::sockets()?.swap_remove(0),
                }
            }
        };
        let all = client::sockets().unwrap_or_default();
        self.position = position(&all, &found);
        Ok(found)
    }

    /// Switches to the next instance, if there is another one.
    fn next(&mut self) {
        let all = client::sockets().unwrap_or_default();
        let current = self.socket.clone().unwrap_or_default();
        let Position { number, count } = position(&all, &current);
        // The number of the current instance is the index of the next one.
        let Some(next) = all.get(number % count.max(1)) else { return };
        self.socket = Some(next.clone());
        self.position = position(&all, next);
        (self.target, self.flows) = (Target::Any, MAX_FLOWS);
    }
}

/// The position of a socket among all. A socket elsewhere is identified by its link.
fn position(all: &[PathBuf], socket: &Path) -> Position {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let socket = real(socket);
    let number = all.iter().position(|known| real(known) == socket);
    match number {
        Some(index) => Position { number: index + 1, count: all.len() },
        // It is not registered, and comes before the others.
        None => Position { number: 1, count: all.len().max(1) },
    }
}

/// Queries an instance at intervals in a thread, until the sender of commands is dropped.
///
/// # Errors
/// If the thread can't be started.
pub fn watch(
    watcher: Watcher,
    interval: Duration,
    updates: Sender<Update>,
) -> anyhow::Result<Sender<Command>> {
    let (sender, commands) = channel();
    let run = move || {
        let watched = Watched { name: "the thread that sends requests", updates };
        query_on(watcher, interval, &commands, &watched.updates);
    };
    let thread = std::thread::Builder::new().name("rxsteer-watch".to_owned()).spawn(run);
    thread.context("can't start a thread")?;
    Ok(sender)
}

fn query_on(
    mut watcher: Watcher,
    mut interval: Duration,
    commands: &Receiver<Command>,
    updates: &Sender<Update>,
) {
    let mut paused = false;
    let mut queried_at: Option<Instant> = None;
    loop {
        let wait = match queried_at {
            _ if paused => Duration::MAX,
            Some(queried_at) => interval.saturating_sub(queried_at.elapsed()),
            None => Duration::ZERO,
        };
        match commands.recv_timeout(wait) {
            Ok(Command::Interval(new)) => interval = new,
            Ok(Command::Pause(now)) => paused = now,
            Ok(Command::Next) => {
                (paused, queried_at) = (false, None);
                watcher.next();
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                queried_at = Some(Instant::now());
                let reading = match watcher.read() {
                    Ok(reading) => Update::Reading(Box::new(reading)),
                    Err(why) => Update::Lost(format!("{why:#}")),
                };
                if updates.send(reading).is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
