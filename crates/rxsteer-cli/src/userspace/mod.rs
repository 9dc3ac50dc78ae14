//! What `rxsteer live` and `rxsteer replay` show of themselves while they run: a control socket, as `rxsteer run` has,
//! and a thread that answers on it. The threads that move packets do nothing for it.

mod flows;
mod status;

use crate::output;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rxsteer_records::recording::LiveFlows;
use rxsteer_status::control::{Control, Server};
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_status::registry::{self, Registered};
use rxsteer_status::userspace::Watched;
use rxsteer_status::{Command, client};
use rxsteer_user::packet::DissectOptions;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Instant;

/// How often the thread looks at clients that are silent, in milliseconds. Without clients it waits for one.
const LOOK_MS: u16 = 1000;

/// A place for clients to ask, before there is anything to answer.
pub(crate) struct Place {
    listener: UnixListener,
    registered: Registered,
}

/// What is received from.
pub(crate) struct Origin {
    pub(crate) name: String,
    /// The index of the interface; `None`: it is no interface.
    pub(crate) ifindex: Option<u32>,
    /// Its receivers, by index.
    pub(crate) receivers: Range<usize>,
}

/// What stays the same while a command runs.
pub(crate) struct About {
    pub(crate) command: Command,
    /// As in [`rxsteer_status::SettingsShown`].
    pub(crate) mode: &'static str,
    pub(crate) dissect: DissectOptions,
    pub(crate) origins: Vec<Origin>,
    /// The flows that are counted, if any are.
    pub(crate) flows: Option<LiveFlows>,
}

/// The thread that answers clients; it ends, and its socket goes, when this is dropped.
pub(crate) struct Answering {
    thread: Option<JoinHandle<()>>,
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    registered: Registered,
}

impl Place {
    /// Listens at `socket`, which must be possible; or, without it, where instances are looked for, if that is possible.
    pub(crate) fn find(command: Command, socket: Option<&Path>) -> anyhow::Result<Option<Place>> {
        match registry::register(socket) {
            Ok((listener, registered)) => Ok(Some(Place { listener, registered })),
            Err(why) if socket.is_some() => Err(why),
            Err(why) => {
                // A replay is over soon, and is seldom watched.
                if command == Command::Live {
                    let why = output::error_text(&why);
                    output::note(&format!("rxsteer: rxsteer status will not show this: {why}"));
                }
                Ok(None)
            }
        }
    }

    /// Begins to answer. Where no thread can be had, nothing is answered: packets matter more.
    pub(crate) fn answer(self, about: About, watched: Watched) -> Option<Answering> {
        let control = Control::new(self.listener).ok()?;
        let (stop, stopped) = UnixStream::pair().ok()?;
        let answers = Answers {
            about,
            watched,
            socket: self.registered.path.display().to_string(),
            network_namespace: client::network_namespace(),
            begun: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("rxsteer-query".to_owned());
        let thread = thread.spawn(move || attend(control, answers, &stopped)).ok()?;
        Some(Answering { thread: Some(thread), stop: Some(stop), registered: self.registered })
    }
}

impl Answering {
    /// Where clients ask.
    pub(crate) fn socket(&self) -> PathBuf {
        self.registered.path.clone()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attend(mut control: Control, mut answers: Answers, stopped: &UnixStream) {
    loop {
        control.serve(Instant::now(), &mut answers);
        let mut fds = control.wait_for();
        let timeout = match (control.has_work(), fds.len()) {
            (true, _) => PollTimeout::ZERO,
            // The listener alone.
            (false, 1) => PollTimeout::NONE,
            (false, _) => PollTimeout::from(LOOK_MS),
        };
        fds.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
        // A failed poll is repeated in the next round.
        let _ = poll(&mut fds, timeout);
        if fds.last().is_some_and(|fd| fd.any().unwrap_or(false)) {
            return;
        }
    }
}

/// Answers clients.
struct Answers {
    about: About,
    watched: Watched,
    socket: String,
    network_namespace: Option<u64>,
    begun: Instant,
}

impl Answers {
    /// Why the settings can't be changed.
    fn fixed(&self) -> Answer {
        let command = self.about.command.name();
        let plan = match self.about.command {
            Command::Replay => "; --change-at plans a change for a replay",
            _ => "",
        };
        Answer::Error(format!(
            "rxsteer {command} takes no changes while it runs: end it (Ctrl-C) and start it with other options{plan}"
        ))
    }
}

impl Server for Answers {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        let command = self.about.command.name();
        Some(match request {
            Request::Status { reset: true, .. } => Answer::Error(format!(
                "rxsteer {command} writes the counts of its flows to a file and can't clear them; leave out --reset"
            )),
            Request::Status { flows, .. } => Answer::Status(Box::new(self.status(*flows as usize))),
            Request::Set { .. } => self.fixed(),
            Request::Explain { .. } => Answer::Error(format!(
                "rxsteer {command} does not say where single flows are; rxsteer explain FLOW with the same --policy, \
                 --cpus and --hash-seed says where they go, and --live asks rxsteer run (--socket PATH)"
            )),
        })
    }

    fn changed(&mut self) -> (bool, Answer) {
        (true, self.fixed())
    }

    fn give_up(&mut self) -> Answer {
        self.fixed()
    }
}
