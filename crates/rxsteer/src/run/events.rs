//! The one thread of a running instance, and what it waits for.

use super::control::{Control, Server};
use super::datapath::Datapath;
use super::instance::{Instance, Reply};
use super::protocol::{Answer, Request};
use super::watch::{self, LinkNews};
use crate::Outcome;
use crate::output;
use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rxsteer_host::links;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often the datapath is told that time passes.
const TICK: Duration = Duration::from_millis(100);
/// How often what nobody tells is looked at: programs that were taken off, CPUs.
const LOOK: Duration = Duration::from_millis(500);
/// How often interfaces are listed where the kernel does not tell of changes.
const LIST: Duration = Duration::from_millis(250);
/// How often interfaces that could not be steered are tried again.
const TRY: Duration = Duration::from_secs(3);
/// How long frames under way are waited for in the end.
const DRAIN: Duration = Duration::from_secs(1);

/// SIGTERM, SIGINT and SIGHUP, as something to wait for.
pub(crate) fn signals() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("can't wait for signals")?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    SignalFd::with_flags(&set, flags).context("can't wait for signals")
}

impl<P: Datapath> Server for Instance<P> {
    fn serve(&mut self, request: &Request) -> Option<Answer> {
        match self.answer(request) {
            Reply::Now(answer) => Some(answer),
            Reply::WhenDone => None,
        }
    }

    fn changed(&mut self) -> (bool, Answer) {
        (self.is_settled(), Instance::changed(self))
    }
}

/// What is looked at when.
struct Schedule {
    news: Option<LinkNews>,
    tick: Instant,
    look: Instant,
    list: Instant,
    again: Instant,
    /// Interfaces are to be listed now.
    stale: bool,
}

/// Goes on until it is told to end, or nothing is left to do.
pub(crate) fn run<P: Datapath>(
    instance: &mut Instance<P>,
    control: &mut Control,
    signals: &SignalFd,
    until: Option<Instant>,
) -> anyhow::Result<Outcome> {
    let now = Instant::now();
    // What changed since the interfaces were listed for attaching is news, too.
    let mut schedule = Schedule {
        news: LinkNews::open(),
        tick: now,
        look: now,
        list: now,
        again: now + TRY,
        stale: true,
    };
    loop {
        let now = Instant::now();
        if until.is_some_and(|until| now >= until) || signals.read_signal()?.is_some() {
            return Ok(Outcome::Fine);
        }
        control.serve(now, instance);
        schedule.go_on(now, instance);
        if instance.is_deserted() {
            output::note("rxsteer: no interface is left to steer");
            return Ok(Outcome::FoundWrong);
        }
        let busy = control.has_work();
        wait(&schedule, control, signals, if busy { None } else { Some(until) })?;
    }
}

impl Schedule {
    fn go_on<P: Datapath>(&mut self, now: Instant, instance: &mut Instance<P>) {
        if now >= self.tick {
            tell(instance.tick());
            self.tick = now + TICK;
        }
        if now >= self.look {
            self.look = now + LOOK;
            self.stale |= instance.lost_a_program() || instance.has_doubts();
            let online = watch::online().unwrap_or_else(|| instance.cpus.online.clone());
            tell(instance.see_online(&online));
        }
        self.stale |= match &self.news {
            Some(news) => news.take(),
            None => now >= self.list,
        };
        let again = now >= self.again && instance.has_refused();
        if !self.stale && !again {
            return;
        }
        (self.stale, self.list) = (false, now + LIST);
        // Where they can't be listed now, what is known holds.
        let Ok(links) = links() else { return };
        tell(instance.see_links(&links));
        if again {
            self.again = now + TRY;
            tell(instance.try_refused(&links));
        }
    }
}

fn tell(lines: Vec<String>) {
    for line in lines {
        // As at the start: these lines are the output of this program, the others its remarks.
        let prefix = if line.starts_with("steering ") { "" } else { "rxsteer: " };
        output::note(&format!("{prefix}{line}"));
    }
}

/// Waits until something happens or is due; `until`: `None` only looks what has happened.
fn wait(
    schedule: &Schedule,
    control: &Control,
    signals: &SignalFd,
    until: Option<Option<Instant>>,
) -> anyhow::Result<()> {
    let mut fds = control.wait_for();
    fds.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
    if let Some(news) = &schedule.news {
        fds.push(PollFd::new(news.as_fd(), PollFlags::POLLIN));
    }
    let timeout = until.map_or(Duration::ZERO, |until| {
        let due = schedule.tick.min(until.unwrap_or(schedule.tick));
        due.saturating_duration_since(Instant::now())
    });
    // A millisecond more than what is left of the last one, so that it is over then.
    let timeout = if timeout.is_zero() { 0 } else { timeout.as_millis() as u16 + 1 };
    match poll(&mut fds, PollTimeout::from(timeout)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("can't wait for events"),
    }
}

/// Lets frames under way arrive, then takes the programs off.
pub(crate) fn stop<P: Datapath>(instance: &mut Instance<P>) {
    let end = Instant::now() + DRAIN;
    if let Err(why) = instance.path.begin_drain() {
        output::note(&format!("rxsteer: frames under way may be overtaken by what follows: {why}"));
    }
    while !instance.path.is_drained() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        // Not the instance's tick, which may ask for settings again that could not be had before.
        if let Err(why) = instance.path.tick() {
            output::note(&format!(
                "rxsteer: frames under way may be overtaken by what follows: {why}"
            ));
            break;
        }
    }
    instance.detach_all();
}
