//! The event thread of a running instance: continues the work of the datapath, and waits for events. Another thread
//! answers clients (`queries.rs`).

use super::datapath::Datapath;
use super::instance::Instance;
use super::queries::{EventReply, EventRequest, Inbox};
use super::reload::Reload;
use super::summaries::dropped;
use super::watch::{self, LinkMonitor};
use crate::Outcome;
use crate::events_out::EventsOut;
use crate::summaries::{self, Summaries};
use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rxsteer_host::{Link, links, steered_by_kernel};
use rxsteer_status::protocol::Answer;
use rxsteer_status::{EventKind, NewEvent};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often the datapath is ticked.
const TICK: Duration = Duration::from_millis(100);
/// How often to read state whose changes the kernel does not report: detached programs, CPUs.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often interfaces are listed if the kernel does not report changes.
const LIST: Duration = Duration::from_millis(250);
/// How long the end of the program waits for frames that are under way.
const DRAIN: Duration = Duration::from_secs(1);
/// The time to the next tick while something waits for a grace period.
const GRACE_TICK: Duration = Duration::from_millis(4);
/// How much longer it waits for the counts of detached interfaces.
const DETACH: Duration = Duration::from_secs(1);

/// SIGTERM, SIGINT and SIGHUP as a descriptor to wait for.
pub(crate) fn signals() -> anyhow::Result<SignalFd> {
    let set = crate::signals::block()?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&set, flags).context("can't wait for signals")
}

impl<P: Datapath> Instance<P> {
    /// Handles a request that only this thread can handle.
    pub(super) fn reply_to(&mut self, request: EventRequest) -> EventReply {
        let reply = match request {
            EventRequest::Set(settings) => match self.set(&settings) {
                Ok(()) => EventReply::Begun,
                Err(why) => EventReply::Refused(Answer::Error(why)),
            },
            EventRequest::Changed => EventReply::Changed(self.is_change_done(), self.changed()),
            EventRequest::Replaced(settings) => EventReply::Replaced(self.replaced(&settings)),
            EventRequest::GiveUp => EventReply::Changed(true, self.give_up()),
        };
        // The status is updated first, so that a client that gets the reply also sees the change in `status`.
        self.show();
        reply
    }
}

/// The times of the periodic work.
struct Schedule {
    monitor: Option<LinkMonitor>,
    tick: Instant,
    next_poll: Instant,
    list: Instant,
    /// When counts are summarized next, and their last values.
    sum: Instant,
    summaries: Summaries,
    /// The number of interfaces whose queues have been checked: one at each poll.
    turn: usize,
    /// Whether interfaces must be listed now.
    stale: bool,
}

/// Runs until the instance is stopped, or nothing is left to steer. SIGHUP reloads the configuration file, if there is
/// one.
pub(crate) fn run<P: Datapath>(
    instance: &mut Instance<P>,
    inbox: &mut Inbox,
    signals: &SignalFd,
    reload: Option<&Reload>,
    until: Option<Instant>,
    out: &mut EventsOut,
) -> anyhow::Result<Outcome> {
    let now = Instant::now();
    // Changes since interfaces were listed for attaching count as news, too.
    let mut schedule = Schedule {
        monitor: LinkMonitor::open(),
        tick: now,
        next_poll: now,
        list: now,
        sum: now,
        summaries: Summaries::new(now),
        turn: 0,
        stale: true,
    };
    loop {
        let now = Instant::now();
        if until.is_some_and(|until| now >= until) {
            return Ok(Outcome::Success);
        }
        if let Some(signal) = signals.read_signal()? {
            match reload {
                Some(reload) if signal.ssi_signo == Signal::SIGHUP as u32 => {
                    let event = instance.reload(reload);
                    emit(instance, out, [event]);
                    instance.show();
                }
                _ => return Ok(Outcome::Success),
            }
        }
        inbox.answer(|request| instance.reply_to(request));
        if schedule.run_due(now, instance, out) {
            instance.show();
        }
        let end = Instant::now();
        instance.rounds.took(end - now, end);
        if instance.path.needs_tick_soon() {
            schedule.tick = schedule.tick.min(end + GRACE_TICK);
        }
        if instance.has_nothing_to_steer() {
            let event = NewEvent::new(EventKind::Ended, "no interface is left to steer");
            emit(instance, out, [event]);
            return Ok(Outcome::Findings);
        }
        wait(&schedule, inbox, signals, until)?;
    }
}

impl Schedule {
    /// Does the work that is due; returns whether there was any.
    fn run_due<P: Datapath>(
        &mut self,
        now: Instant,
        instance: &mut Instance<P>,
        out: &mut EventsOut,
    ) -> bool {
        let mut events = Vec::new();
        let ticks = now >= self.tick;
        if ticks {
            events.extend(instance.tick());
            self.stale |= instance.has_room_again();
            self.tick = now + TICK;
        }
        if now >= self.next_poll {
            self.next_poll = now + POLL_INTERVAL;
            self.stale |= instance.lost_a_program() || instance.needs_recheck();
            let online = watch::online().unwrap_or_else(|| instance.cpus.online.clone());
            events.extend(instance.see_online(&online));
            events.extend(instance.check_checksums());
            let live = instance.live_links();
            if let Some(link) = live.get(self.turn % live.len().max(1)) {
                events.extend(check_queues(instance, link));
            }
            self.turn = self.turn.wrapping_add(1);
        }
        if now >= self.sum {
            self.sum = now + summaries::POLL_INTERVAL;
            let settings = instance.shown();
            let describe = |cpu, activity: &_, seconds| dropped(cpu, activity, seconds, &settings);
            events.extend(self.summaries.update(now, &instance.path.activity(), describe));
            instance.events.overdue(now).iter().for_each(|event| out.take(event));
        }
        self.stale |= match &self.monitor {
            Some(monitor) => monitor.take(),
            None => now >= self.list,
        };
        let again = ticks && instance.has_retry(now);
        let is_due = self.stale || again;
        // If interfaces cannot be listed now, the known state stays.
        let links = if is_due { links().ok() } else { None };
        if is_due {
            (self.stale, self.list) = (false, now + LIST);
        }
        if let Some(links) = &links {
            events.extend(instance.see_links(links, now));
            if again {
                events.extend(instance.retry(links, now));
            }
        }
        let is_news = ticks || links.is_some() || !events.is_empty();
        emit(instance, out, events);
        is_news
    }
}

/// The events of an interface's queues.
fn check_queues<P: Datapath>(instance: &mut Instance<P>, link: &Link) -> Vec<NewEvent> {
    let (Some(used), Some(by_kernel)) = (link.rx_queues(), steered_by_kernel(link)) else {
        return Vec::new();
    };
    let by_kernel: Vec<u32> = by_kernel.iter().map(|queue| queue.queue).collect();
    instance.see_queues(link.index, used, &by_kernel)
}

/// Adds what happened to the instance's events, and sends them to their destination.
pub(crate) fn emit<P: Datapath>(
    instance: &mut Instance<P>,
    out: &mut EventsOut,
    events: impl IntoIterator<Item = NewEvent>,
) {
    let now = Instant::now();
    for event in events {
        if let Some(event) = instance.events.add(event, now) {
            out.take(&event);
        }
    }
}

/// Waits until an event occurs or work is due.
fn wait(
    schedule: &Schedule,
    inbox: &Inbox,
    signals: &SignalFd,
    until: Option<Instant>,
) -> anyhow::Result<()> {
    let mut fds = vec![
        PollFd::new(inbox.as_fd(), PollFlags::POLLIN),
        PollFd::new(signals.as_fd(), PollFlags::POLLIN),
    ];
    if let Some(monitor) = &schedule.monitor {
        fds.push(PollFd::new(monitor.as_fd(), PollFlags::POLLIN));
    }
    let due = schedule.tick.min(until.unwrap_or(schedule.tick));
    let timeout = due.saturating_duration_since(Instant::now());
    // One millisecond more than the remaining time, rounded down, so that the time is over afterwards.
    let timeout = if timeout.is_zero() { 0 } else { timeout.as_millis() as u16 + 1 };
    match poll(&mut fds, PollTimeout::from(timeout)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("can't wait for events"),
    }
}

/// Waits until frames under way have arrived, then detaches the programs.
pub(crate) fn stop<P: Datapath>(instance: &mut Instance<P>, out: &mut EventsOut) {
    let overtaken = |why: String| {
        let text = format!("later frames may overtake frames under way: {why}");
        NewEvent::new(EventKind::Warning, text)
    };
    let end = Instant::now() + DRAIN;
    if let Err(why) = instance.path.begin_drain() {
        emit(instance, out, [overtaken(why)]);
    }
    while !instance.path.is_drained() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        // This does not use the instance's tick, which may retry settings that failed before.
        if let Err(why) = instance.path.tick() {
            emit(instance, out, [overtaken(why)]);
            break;
        }
    }
    instance.detach_all();
    // The last frames are counted for the report.
    while instance.path.needs_tick_soon() && Instant::now() < end + DETACH {
        std::thread::sleep(GRACE_TICK);
        if instance.path.tick().is_err() {
            break;
        }
    }
    instance.events.rest(Instant::now()).iter().for_each(|event| out.take(event));
}
