//! The control socket: reads requests and writes answers, and never blocks on a client.
//!
//! Everything has a limit: clients, the length of a request, the length of an answer, and a client's idle time. If a
//! client does not read its answers, the server ignores its further requests, and disconnects it.

use crate::protocol::{Answer, MAX_ANSWER, MAX_REQUEST, Request, request, too_long};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// The most clients at the same time.
pub const MAX_CLIENTS: usize = 16;
/// A client that is idle for this long is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time a change is reported as still under way.
pub const CHANGE_TAKES: Duration = Duration::from_secs(5);

/// The socket and its clients.
pub struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Set while the client waits for a change to complete.
    waiting: Option<Waiting>,
    active: Instant,
    /// No more input is read from the client.
    ended: bool,
    /// Whether to disconnect the client now.
    dead: bool,
}

/// A change that is not done.
struct Waiting {
    since: Instant,
    /// The requested settings.
    settings: Vec<String>,
}

/// Serves requests.
pub trait Server {
    /// The answer to a request; `None` if it comes later.
    fn serve(&mut self, request: &Request) -> Option<Answer>;
    /// Whether the requested changes are done, and the answer to them.
    fn changed(&mut self) -> (bool, Answer);
    /// Withdraws the last change if it is not active yet; returns the answer to it.
    fn give_up(&mut self) -> Answer;
    /// Which of these settings, whose change had begun, a later change replaced before it was complete.
    fn replaced(&mut self, _settings: &[String]) -> Option<String> {
        None
    }
}

impl Control {
    /// Serves clients of this listener.
    ///
    /// # Errors
    /// When it can't be made non-blocking.
    pub fn new(listener: UnixListener) -> std::io::Result<Control> {
        listener.set_nonblocking(true)?;
        Ok(Control { listener, clients: Vec::new() })
    }

    /// The descriptors to wait for.
    pub fn wait_for(&self) -> Vec<PollFd<'_>> {
        let mut fds = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        // A client that waits for a change is left out, even for its disconnection: poll would report that immediately,
        // again and again, until the change is complete.
        for client in self.clients.iter().filter(|client| client.waiting.is_none()) {
            let mut events = PollFlags::empty();
            if client.wants_to_read() {
                events |= PollFlags::POLLIN;
            }
            if !client.output.is_empty() {
                events |= PollFlags::POLLOUT;
            }
            fds.push(PollFd::new(client.stream.as_fd(), events));
        }
        fds
    }

    /// Whether a request has already been read, so that there is no need to wait.
    pub fn has_work(&self) -> bool {
        self.clients.iter().any(Client::has_request)
    }

    /// Whether a client waits for a change to complete.
    pub fn has_waiting(&self) -> bool {
        self.clients.iter().any(|client| client.waiting.is_some())
    }

    /// Serves all clients that can be served without waiting: one request each.
    pub fn serve(&mut self, now: Instant, server: &mut impl Server) {
        self.accept(now);
        let (done, answer) = match self.clients.iter().any(|client| client.waiting.is_some()) {
            true => server.changed(),
            false => (false, Answer::Error(String::new())),
        };
        // A later change replaces an earlier one, so only the last change can be withdrawn.
        let waiting = self.clients.iter().filter_map(|client| client.waiting.as_ref());
        let (last, are_several) =
            (waiting.clone().map(|change| change.since).max(), waiting.count() > 1);
        for client in &mut self.clients {
            if let Some(Waiting { since, settings }) = client.waiting.take() {
                // A client that was stopped (ctrl-c) withdraws its change.
                let is_gone = client.is_disconnected();
                if done || is_gone || now.duration_since(since) >= CHANGE_TAKES {
                    client.dead |= is_gone;
                    let replaced = if are_several { server.replaced(&settings) } else { None };
                    match (!done && Some(since) == last, replaced) {
                        (true, _) => client.send(&server.give_up()),
                        (false, Some(why)) => client.send(&Answer::Error(why)),
                        (false, None) => client.send(&answer),
                    }
                } else {
                    client.waiting = Some(Waiting { since, settings });
                }
            }
            client.advance(now, server);
        }
        self.clients.retain(|client| !client.is_over(now));
    }

    fn accept(&mut self, now: Instant) {
        // If accept fails (no descriptors left), the next call tries again.
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut client = Client {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                waiting: None,
                active: now,
                ended: false,
                dead: false,
            };
            if self.clients.len() >= MAX_CLIENTS {
                client.send(&Answer::Error(format!(
                    "{MAX_CLIENTS} other clients are connected; try again"
                )));
                client.write(now);
                continue;
            }
            self.clients.push(client);
        }
    }
}

impl Client {
    fn has_request(&self) -> bool {
        self.is_ready() && self.input.contains(&b'\n')
    }

    /// Whether its last answer has been written, and no answer is pending.
    fn is_ready(&self) -> bool {
        self.waiting.is_none() && self.output.is_empty() && !self.dead
    }

    fn wants_to_read(&self) -> bool {
        self.is_ready() && !self.ended && !self.input.contains(&b'\n')
    }

    fn advance(&mut self, now: Instant, server: &mut impl Server) {
        self.write(now);
        if self.wants_to_read() {
            self.read(now);
        }
        if !self.is_ready() {
            return;
        }
        let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
            if self.input.len() > MAX_REQUEST {
                self.refuse(format!("a request can have at most {MAX_REQUEST} bytes"));
                self.write(now);
            }
            return;
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        match request(&String::from_utf8_lossy(&line)) {
            Err(why) => self.send(&Answer::Error(why)),
            // The client gave up waiting, and reported that nothing has changed.
            Ok(Request::Set { .. }) if self.is_disconnected() => self.dead = true,
            Ok(request) => match (server.serve(&request), request) {
                (Some(answer), _) => self.send(&answer),
                (None, Request::Set { settings }) => {
                    self.waiting = Some(Waiting { since: now, settings });
                }
                (None, _) => unreachable!("only a change is answered later"),
            },
        }
        self.write(now);
    }

    /// Whether the client is gone. A client that only shut down its sending side still waits for its answers.
    fn is_disconnected(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, PollTimeout::ZERO);
        let seen = fds[0].revents().unwrap_or(PollFlags::empty());
        polled.is_ok() && seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
    }

    fn read(&mut self, now: Instant) {
        let mut buffer = [0; 4096];
        while self.input.len() <= MAX_REQUEST && !self.input.contains(&b'\n') {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    return;
                }
                Ok(length) => {
                    self.active = now;
                    self.input.extend_from_slice(&buffer[..length]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.dead |= error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn write(&mut self, now: Instant) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => {
                    self.active = now;
                    self.output.drain(..length);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.dead |= error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn refuse(&mut self, why: String) {
        self.ended = true;
        self.input.clear();
        self.send(&Answer::Error(why));
    }

    fn send(&mut self, answer: &Answer) {
        let text = |answer: &Answer| serde_json::to_string(answer).unwrap_or_default();
        let mut line = text(answer);
        if line.len() >= MAX_ANSWER {
            line = text(&Answer::Error(too_long()));
        }
        self.output.extend_from_slice(line.as_bytes());
        self.output.push(b'\n');
    }

    fn is_over(&self, now: Instant) -> bool {
        let finished = self.ended && self.is_ready() && !self.has_request();
        let idle = self.waiting.is_none() && now.duration_since(self.active) >= IDLE_TIMEOUT;
        self.dead || finished || idle
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
