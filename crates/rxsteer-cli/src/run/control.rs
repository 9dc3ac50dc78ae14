//! The control socket: requests in, answers out, without ever waiting for a client.
//!
//! Everything has a limit: clients, a request's length, an answer's length, and the time a client may do
//! nothing. A client that does not read gets no further request served, and is let go.

use super::protocol::{Answer, MAX_ANSWER, MAX_REQUEST, Request, request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Clients at the same time.
pub(crate) const MAX_CLIENTS: usize = 16;
/// A client that does nothing for so long is let go.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// So long a change may take before it is said that it is still under way.
pub(super) const CHANGE_TAKES: Duration = Duration::from_secs(5);

/// The socket and its clients.
pub(crate) struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Since when it waits for a change to be done.
    waiting: Option<Instant>,
    active: Instant,
    /// Nothing more is read from it.
    ended: bool,
    /// It is to be let go now.
    dead: bool,
}

/// Who serves requests.
pub(crate) trait Server {
    /// The answer to a request; `None` when it comes later.
    fn serve(&mut self, request: &Request) -> Option<Answer>;
    /// Whether the changes asked for are done, and the answer to them.
    fn changed(&mut self) -> (bool, Answer);
    /// Withdraws the last change, if it does not hold yet; the answer to it.
    fn give_up(&mut self) -> Answer;
}

impl Control {
    pub(crate) fn new(listener: UnixListener) -> std::io::Result<Control> {
        listener.set_nonblocking(true)?;
        Ok(Control { listener, clients: Vec::new() })
    }

    /// What to wait for.
    pub(crate) fn wait_for(&self) -> Vec<PollFd<'_>> {
        let mut fds = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        // Of one that waits for a change nothing is wanted, not even that it is gone: that would be
        // reported at once, and again and again, until the change is done.
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

    /// Whether a request is there already, so that there is nothing to wait for.
    pub(crate) fn has_work(&self) -> bool {
        self.clients.iter().any(Client::has_request)
    }

    /// Whether a client waits for a change to be done.
    pub(crate) fn has_waiting(&self) -> bool {
        self.clients.iter().any(|client| client.waiting.is_some())
    }

    /// Serves who can be served without waiting: one request of each client.
    pub(crate) fn serve(&mut self, now: Instant, server: &mut impl Server) {
        self.accept(now);
        let (done, answer) = match self.clients.iter().any(|client| client.waiting.is_some()) {
            true => server.changed(),
            false => (false, Answer::Error(String::new())),
        };
        // A later change takes the place of an earlier one, so only that can be withdrawn.
        let last = self.clients.iter().filter_map(|client| client.waiting).max();
        for client in &mut self.clients {
            if let Some(since) = client.waiting
                && (done || now.duration_since(since) >= CHANGE_TAKES)
            {
                client.waiting = None;
                match !done && Some(since) == last {
                    true => client.send(&server.give_up()),
                    false => client.send(&answer),
                }
            }
            client.go_on(now, server);
        }
        self.clients.retain(|client| !client.is_over(now));
    }

    fn accept(&mut self, now: Instant) {
        // A failed accept (no descriptors left) is tried again the next time.
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
                client.send(&Answer::Error(format!("{MAX_CLIENTS} others are asking; try again")));
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

    /// Its last answer is out, and none is to come.
    fn is_ready(&self) -> bool {
        self.waiting.is_none() && self.output.is_empty() && !self.dead
    }

    fn wants_to_read(&self) -> bool {
        self.is_ready() && !self.ended && !self.input.contains(&b'\n')
    }

    fn go_on(&mut self, now: Instant, server: &mut impl Server) {
        self.write(now);
        if self.wants_to_read() {
            self.read(now);
        }
        if !self.is_ready() {
            return;
        }
        let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
            if self.input.len() > MAX_REQUEST {
                self.refuse(format!("a request has {MAX_REQUEST} bytes at most"));
                self.write(now);
            }
            return;
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        match request(&String::from_utf8_lossy(&line)) {
            Err(why) => self.send(&Answer::Error(why)),
            // It gave up waiting and said that nothing has changed.
            Ok(Request::Set { .. }) if self.hung_up() => self.dead = true,
            Ok(request) => match server.serve(&request) {
                Some(answer) => self.send(&answer),
                None => self.waiting = Some(now),
            },
        }
        self.write(now);
    }

    /// Whether the client is gone. One that only sends no more still waits for its answers.
    fn hung_up(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let looked = poll(&mut fds, PollTimeout::ZERO);
        let seen = fds[0].revents().unwrap_or(PollFlags::empty());
        looked.is_ok() && seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
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
            let why = format!("the answer has more than {MAX_ANSWER} bytes; ask for fewer flows");
            line = text(&Answer::Error(why));
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
