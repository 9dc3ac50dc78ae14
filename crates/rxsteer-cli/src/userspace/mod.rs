//! The control socket and the events of `rxsteer live` and `rxsteer replay`, as `rxsteer run` has them, and a thread
//! for both. This adds no work to the threads that move packets.

mod event_tracker;
mod flows;
mod status;

use crate::change_spec::ChangeSettings;
use crate::events_out::{Events, EventsOut};
use crate::output;
use crate::summaries;
use event_tracker::EventTracker;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rxsteer_records::recording::LiveFlows;
use rxsteer_status::control::{Control, Server};
use rxsteer_status::protocol::{Answer, Changed, Request};
use rxsteer_status::registry::{self, Registered};
use rxsteer_status::userspace::Watched;
use rxsteer_status::{Command, EventKind, NewEvent, client};
use rxsteer_user::core::CpuSet;
use rxsteer_user::packet::DissectOptions;
use rxsteer_user::{ChangeError, SteerChange};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the thread checks whether a change is done for which a client waits.
const POLL: Duration = Duration::from_millis(10);

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
    /// Whether each receiver has one RX queue of the interface, so that frames of other queues go to the host.
    pub(crate) by_rx_queue: bool,
}

/// What stays the same while a command runs.
pub(crate) struct CommandInfo {
    pub(crate) command: Command,
    /// As in [`rxsteer_status::SettingsShown`].
    pub(crate) mode: &'static str,
    pub(crate) dissect: DissectOptions,
    pub(crate) origins: Vec<Origin>,
    /// The flows that are counted, if any are.
    pub(crate) flows: Option<LiveFlows>,
    /// Why no setting can change while it runs, if none can.
    pub(crate) fixed: Option<String>,
}

/// The thread that answers clients and finds events; it ends, and its socket goes, when this is dropped.
pub(crate) struct Attending {
    thread: Option<JoinHandle<()>>,
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    registered: Option<Registered>,
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
                    output::note(&format!(
                        "rxsteer: rxsteer status can't show this instance: {why}"
                    ));
                }
                Ok(None)
            }
        }
    }
}

impl Attending {
    /// Begins to answer, if there is a place for it, and to find events; the first ones are those in `first_events`.
    /// Where no thread can be had, there is neither, and a message says so: packets matter more.
    pub(crate) fn begin(
        place: Option<Place>,
        info: CommandInfo,
        watched: Watched,
        out: EventsOut,
        first_events: Vec<NewEvent>,
    ) -> Option<Attending> {
        let started = Instant::now();
        let mut events = Events::new(started, out);
        first_events.into_iter().for_each(|event| events.add(started, event));
        let has_lines = events.has_lines();
        if place.is_none() && !has_lines {
            return None;
        }
        match Attending::start(place, info, watched, started, events) {
            Ok(attending) => Some(attending),
            Err(why) => {
                let why = output::error_text(&why);
                let lacks = if has_lines { ", and no more events are written" } else { "" };
                output::note(&format!(
                    "rxsteer: rxsteer status can't show this instance{lacks}: {why}"
                ));
                None
            }
        }
    }

    fn start(
        place: Option<Place>,
        info: CommandInfo,
        watched: Watched,
        started: Instant,
        events: Events,
    ) -> anyhow::Result<Attending> {
        let (control, registered) = match place {
            Some(place) => (Some(Control::new(place.listener)?), Some(place.registered)),
            None => (None, None),
        };
        let (stop, stopped) = UnixStream::pair()?;
        let socket = registered.as_ref().map(|at| at.path.display().to_string());
        let found = status::found(&info, &watched);
        let answers = Answers {
            info,
            watched,
            socket: socket.unwrap_or_default(),
            network_namespace: client::network_namespace(),
            started,
            tracker: EventTracker::new(started, &found, events),
        };
        let thread = std::thread::Builder::new().name("rxsteer-query".to_owned());
        let thread = thread.spawn(move || serve_clients(control, answers, &stopped))?;
        Ok(Attending { thread: Some(thread), stop: Some(stop), registered })
    }

    /// Where clients ask.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.registered.as_ref().map(|at| at.path.clone())
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve_clients(mut control: Option<Control>, mut answers: Answers, stopped: &UnixStream) {
    let mut next_poll = answers.started + summaries::POLL_INTERVAL;
    loop {
        let now = Instant::now();
        if let Some(control) = &mut control {
            control.serve(now, &mut answers);
        }
        if now >= next_poll {
            next_poll = now + summaries::POLL_INTERVAL;
            let found = answers.found();
            answers.tracker.update(now, &found);
        }
        let has_work = control.as_ref().is_some_and(Control::has_work);
        let mut fds = control.as_ref().map_or_else(Vec::new, Control::wait_for);
        fds.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
        let rest = next_poll.saturating_duration_since(Instant::now());
        let rest =
            if control.as_ref().is_some_and(Control::has_waiting) { rest.min(POLL) } else { rest };
        let rest = PollTimeout::from(rest.as_millis() as u16 + 1);
        let timeout = if has_work { PollTimeout::ZERO } else { rest };
        // A failed poll is repeated in the next round.
        let _ = poll(&mut fds, timeout);
        if fds.last().is_some_and(|fd| fd.any().unwrap_or(false)) {
            let found = answers.found();
            answers.tracker.end(Instant::now(), &found);
            return;
        }
    }
}

/// Answers clients.
struct Answers {
    info: CommandInfo,
    watched: Watched,
    socket: String,
    network_namespace: Option<u64>,
    started: Instant,
    tracker: EventTracker,
}

impl Answers {
    /// Makes a change of settings, or returns why it can't be made. Nothing has changed then.
    fn set(&self, settings: &[String]) -> Result<(), String> {
        if let Some(why) = &self.info.fixed {
            return Err(why.clone());
        }
        let change = SteerChange::from(ChangeSettings::parse(settings)?);
        let control = self.watched.control();
        let workers = CpuSet::new(control.workers().iter().map(|worker| worker.cpu));
        let has_worker = |cpu| workers.as_ref().is_some_and(|workers| workers.contains(cpu));
        if let Some(without) = CpuSet::new(change.named_cpus().filter(|cpu| !has_worker(*cpu))) {
            let workers = workers.map_or_else(|| "none".to_owned(), |cpus| cpus.to_string());
            return Err(format!(
                "CPU {without} has no worker; CPUs with workers: {workers}. Workers are created only at the start: \
                 leave the CPU out, or restart with --standby {}",
                without.as_option()
            ));
        }
        control.change(&change).map_err(|why| match why {
            ChangeError::Backlog(..) => format!("{why}; start again with a larger --max-backlog"),
            _ => why.to_string(),
        })
    }
}

impl Server for Answers {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        let command = self.info.command.name();
        Some(match request {
            Request::Status { reset: true, .. } => Answer::Error(format!(
                "rxsteer {command} writes the counts of its flows to a file and can't clear them; leave out --reset"
            )),
            Request::Status { flows, .. } => Answer::Status(Box::new(self.status(*flows as usize))),
            Request::Set { settings } => {
                let why = self.set(settings).err()?;
                let text = format!("{} is refused: {why}", settings.join(" "));
                let event = NewEvent::new(EventKind::ChangeRefused, text);
                self.tracker.add(Instant::now(), event.with("settings", settings.clone()));
                Answer::Error(why)
            }
            Request::Explain { .. } => Answer::Error(format!(
                "rxsteer {command} does not report where single flows are; rxsteer explain FLOW with the same \
                 --policy, --cpus and --hash-seed shows where they go, and --live works with rxsteer run (--socket \
                 PATH)"
            )),
        })
    }

    fn changed(&mut self) -> (bool, Answer) {
        let reading = self.watched.read();
        let (done, holds) = (!reading.is_changing(), reading.holds());
        if done {
            // Now, since the next change may come before the next reading.
            let found = self.found();
            self.tracker.see_settings(Instant::now(), &found);
        }
        (done, Answer::Set(Changed { done, holds, settings: Box::new(self.settings()) }))
    }

    /// A change that is published is not withdrawn: each RX thread takes it before its next packet.
    fn give_up(&mut self) -> Answer {
        self.changed().1
    }
}
