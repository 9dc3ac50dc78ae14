//! The thread that answers clients, so that client requests do not delay the event thread's ticks.
//!
//! ```text
//!  clients ──► control.rs ──► QueryServer ── status, explain: read from a view and the published state
//!                               │
//!                               └─── set: sent to the event thread, which applies it between two ticks
//! ```
//!
//! The event thread never waits for this thread. It publishes its state (`Latest<Shown>`), and answers the requests
//! that it gets.

use super::count;
use super::datapath::{Datapath, DatapathView};
use super::flows;
use super::records::Recorded;
use super::snapshot::Shown;
use crate::explain::flow::FlowArg;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rxsteer_status::control::{CHANGE_TAKES, Control, Server};
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_xdp::Latest;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the programs' records of ended flows are read.
const TAKE: Duration = Duration::from_millis(100);
/// How often the thread checks whether a change for which a client waits is complete.
const POLL: Duration = Duration::from_millis(10);

/// A request that only the event thread can handle.
pub(crate) enum EventRequest {
    /// Begin a change of settings; it is answered at once only if it is refused.
    Set(Vec<String>),
    /// Whether the requested changes are done, and the answer to them.
    Changed,
    /// Which of these settings another change has replaced.
    Replaced(Vec<String>),
    /// Withdraw the last change, if it is not active yet.
    GiveUp,
}

/// The event thread's reply.
pub(crate) enum EventReply {
    Refused(Answer),
    Begun,
    Changed(bool, Answer),
    Replaced(Option<String>),
}

/// A request, and the channel for its reply.
struct Message {
    request: EventRequest,
    reply: Sender<EventReply>,
    asked: Instant,
}

/// The event thread's queue of requests.
pub(crate) struct Inbox {
    messages: Receiver<Message>,
    wake: UnixStream,
}

impl Inbox {
    /// Replies to all pending requests.
    pub(crate) fn answer(&mut self, mut answer: impl FnMut(EventRequest) -> EventReply) {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(count) if count > 0) {}
        while let Ok(Message { request, reply, asked }) = self.messages.try_recv() {
            // The process may have been stopped meanwhile; by now the client has the answer that nothing changes.
            let is_late =
                matches!(request, EventRequest::Set(_)) && asked.elapsed() >= CHANGE_TAKES;
            let replies = if is_late {
                let why =
                    "the change was withdrawn, because the instance handled it too late; try again";
                EventReply::Refused(Answer::Error(why.to_owned()))
            } else {
                answer(request)
            };
            // The sender may have given up.
            let _ = reply.send(replies);
        }
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Answers clients.
pub(crate) struct QueryServer<P: Datapath> {
    view: P::View,
    shown: Latest<Shown<P::Device>>,
    requests: Sender<Message>,
    wake: UnixStream,
    records: Option<Arc<Recorded>>,
}

/// The thread, while it is running.
pub(crate) struct Running<P: Datapath> {
    thread: JoinHandle<QueryServer<P>>,
    /// Closed to end the thread.
    stop: UnixStream,
}

impl<P: Datapath> QueryServer<P> {
    /// A query server, and the event thread's end of its requests.
    pub(crate) fn new(
        view: P::View,
        shown: Latest<Shown<P::Device>>,
    ) -> std::io::Result<(QueryServer<P>, Inbox)> {
        let (requests, messages) = channel();
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok((
            QueryServer { view, shown, requests, wake, records: None },
            Inbox { messages, wake: woken },
        ))
    }

    /// Adds the counts of flow records, if records are made.
    pub(crate) fn with_records(self, records: Option<Arc<Recorded>>) -> QueryServer<P> {
        QueryServer { records, ..self }
    }

    /// Answers clients in a separate thread.
    pub(crate) fn open(self, control: Control) -> anyhow::Result<Running<P>> {
        let (stop, stopped) = UnixStream::pair().context("can't answer clients")?;
        let attend = move || self.serve_clients(control, &stopped);
        let thread = std::thread::Builder::new().name("rxsteer-query".to_owned()).spawn(attend);
        Ok(Running { thread: thread.context("can't answer clients")?, stop })
    }

    fn serve_clients(mut self, mut control: Control, stopped: &UnixStream) -> QueryServer<P> {
        loop {
            control.serve(Instant::now(), &mut self);
            self.view.take_records();
            let timeout = match (control.has_work(), control.has_waiting()) {
                (true, _) => Duration::ZERO,
                (false, true) => POLL,
                (false, false) => TAKE,
            };
            let mut fds = control.wait_for();
            fds.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
            // A failed poll is repeated in the next round.
            let _ = poll(&mut fds, PollTimeout::from(timeout.as_millis() as u16));
            let is_over = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            if fds.last().is_some_and(is_over) {
                return self;
            }
        }
    }

    /// The status with up to `flows` flows; with `reset`, flow statistics are cleared afterwards.
    pub(crate) fn status(&self, flows: usize, reset: bool) -> Answer {
        if reset && self.records.is_some() {
            return Answer::Error(
                "flow records use the flow statistics (--flows, --ipfix), and a reset would remove packets from the \
                 records. Nothing was cleared"
                    .to_owned(),
            );
        }
        let mut status = count::status(&self.shown, &self.view, flows);
        status.flow_records = self.records.as_ref().map(|records| records.shown(&status.totals));
        if reset && let Err(why) = self.view.clear_flows() {
            return Answer::Error(format!(
                "flow statistics were cleared, but not all at the same time: {why}"
            ));
        }
        Answer::Status(Box::new(status))
    }

    fn request(&mut self, request: EventRequest) -> Option<EventReply> {
        let (reply, replies) = channel();
        self.requests.send(Message { request, reply, asked: Instant::now() }).ok()?;
        // If the buffer is full, the thread wakes up anyway.
        let _ = self.wake.write(&[1]);
        replies.recv().ok()
    }
}

fn is_ending() -> Answer {
    Answer::Error("the instance is ending; nothing was changed".to_owned())
}

impl<P: Datapath> Server for QueryServer<P> {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        match request {
            Request::Status { flows, reset } => Some(self.status(*flows as usize, *reset)),
            Request::Explain { flow } => Some(match flow.parse::<FlowArg>() {
                Ok(flow) => {
                    let shown = self.shown.get();
                    Answer::Explain(Box::new(flows::explained(&shown, &self.view, &flow.0)))
                }
                Err(why) => Answer::Error(why),
            }),
            Request::Set { settings } => match self.request(EventRequest::Set(settings.clone())) {
                Some(EventReply::Begun) => None,
                Some(EventReply::Refused(answer) | EventReply::Changed(_, answer)) => Some(answer),
                Some(EventReply::Replaced(_)) | None => Some(is_ending()),
            },
        }
    }

    fn changed(&mut self) -> (bool, Answer) {
        match self.request(EventRequest::Changed) {
            Some(EventReply::Changed(done, answer)) => (done, answer),
            _ => (true, is_ending()),
        }
    }

    fn replaced(&mut self, settings: &[String]) -> Option<String> {
        match self.request(EventRequest::Replaced(settings.to_vec())) {
            Some(EventReply::Replaced(why)) => why,
            _ => None,
        }
    }

    fn give_up(&mut self) -> Answer {
        match self.request(EventRequest::GiveUp) {
            Some(EventReply::Changed(_, answer)) => answer,
            _ => is_ending(),
        }
    }
}

impl<P: Datapath> Running<P> {
    /// Ends the thread. Requests that can no longer be answered are refused.
    pub(crate) fn close(self, inbox: Inbox) -> anyhow::Result<QueryServer<P>> {
        drop((inbox, self.stop));
        let ended = self.thread.join();
        ended.map_err(|_| anyhow::anyhow!("the thread that answers clients panicked"))
    }
}

#[cfg(test)]
#[path = "queries_tests.rs"]
mod tests;
