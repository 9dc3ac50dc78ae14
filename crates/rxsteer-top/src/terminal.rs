//! The live view: a terminal, and the threads that receive events from it and from the instance.
//!
//! ```text
//!  rxsteer-watch    asks the instance ─┐
//!  rxsteer-keys     reads the terminal ├─► updates ─► this thread: App, then one frame
//!  rxsteer-signals  waits for signals ─┘
//! ```

use crate::app::App;
use crate::keys::Effect;
use crate::panels::draw;
use crate::replay::Replay;
use crate::style::Display;
use crate::watch::{Command, Target, Update, Watched, Watcher, watch};
use anyhow::Context;
use nix::sys::signal::SigSet;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Restores the terminal however the view ends. A panic does so immediately, before its message.
struct Restored(DefaultTerminal);

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows an instance until a key or one of `signals` ends it; the signals must be blocked in all threads. A `replay`
/// ends with the view.
///
/// # Errors
/// If no instance answers at the start, or the terminal fails.
pub fn show(
    target: Target,
    mut replay: Option<Replay>,
    interval: Duration,
    display: Display,
    signals: SigSet,
) -> anyhow::Result<()> {
    let mut watcher = Watcher::new(target);
    let first = watcher.read()?;
    let (updates, heard) = channel();
    let mut terminal = Restored(ratatui::try_init().context("can't draw on this terminal")?);
    thread("rxsteer-signals", &updates, move |updates| {
        if signals.wait().is_ok() {
            let _ = updates.send(Update::Stop);
        }
    })?;
    thread("rxsteer-keys", &updates, |updates| {
        while let Ok(event) = event::read()
            && updates.send(Update::Terminal(event)).is_ok()
        {}
    })?;
    let commands = watch(watcher, interval, updates)?;
    let size = terminal.0.size().context("the terminal is gone")?;
    let mut app = App::new(display, interval, Rect::new(0, 0, size.width, size.height));
    app.update(first);
    run(&mut terminal.0, &mut app, replay.as_mut(), &heard, &commands)
}

fn thread(
    name: &'static str,
    updates: &Sender<Update>,
    run: impl FnOnce(&Sender<Update>) + Send + 'static,
) -> anyhow::Result<()> {
    let watched = Watched { name, updates: updates.clone() };
    let run = move || run(&watched.updates);
    std::thread::Builder::new().name(name.to_owned()).spawn(run).context("can't start a thread")?;
    Ok(())
}

fn run(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    mut replay: Option<&mut Replay>,
    heard: &Receiver<Update>,
    commands: &Sender<Command>,
) -> anyhow::Result<()> {
    loop {
        let drawn = terminal.draw(|frame| {
            app.resize(frame.area());
            draw(app, frame.buffer_mut());
        });
        drawn.context("can't draw on this terminal")?;
        // Updates that arrived meanwhile are in the same frame.
        let first = heard.recv().context("all threads ended")?;
        for updates in std::iter::once(first).chain(heard.try_iter()) {
            let effect = match updates {
                Update::Reading(reading) => {
                    app.update(*reading);
                    Effect::None
                }
                Update::Lost(why) => match replay.as_mut().and_then(|replay| replay.ended()) {
                    Some(how) => {
                        app.end(&how);
                        Effect::Ask(Command::Pause(true))
                    }
                    None => {
                        app.lose(&why);
                        Effect::None
                    }
                },
                Update::Terminal(Event::Key(key)) => app.key(key),
                Update::Terminal(_) => Effect::None,
                Update::Stop => Effect::Quit,
                Update::Failed(name) => anyhow::bail!("{name} ended; this is a bug in rxsteer"),
            };
            match effect {
                Effect::None => {}
                Effect::Quit => return Ok(()),
                Effect::Redraw => terminal.clear().context("can't draw on this terminal")?,
                // If the thread has ended, the updates report that.
                Effect::Ask(command) => drop(commands.send(command)),
            }
        }
    }
}
