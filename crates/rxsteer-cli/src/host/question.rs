//! Asks questions on the terminal, and waits for an answer, a signal, or a timeout.

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{getpgrp, read, tcgetpgrp};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often a background process checks whether it has the terminal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Asks for confirmation on the terminal; an error without a terminal.
pub(super) fn confirm(question: &str) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    anyhow::ensure!(
        stdin.is_terminal(),
        "there is no terminal to confirm it; add --yes to do it without a question (--dry-run shows what would be done)"
    );
    crate::output::note(&format!("{question} [y/N]"));
    let mut answer = String::new();
    stdin.read_line(&mut answer).context("can't read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The time was over.
    Time,
    /// A line was entered.
    Line,
    /// Standard input was closed: the terminal is gone.
    Closed,
    /// SIGINT, SIGTERM, or SIGHUP, which a terminal sends when it is closed.
    Signal,
}

/// While this exists, signals are not delivered; the program waits for them instead. So a change is either complete or
/// undone.
pub(crate) struct Waiting {
    signals: SignalFd,
}

impl Waiting {
    /// Starts to block signals.
    pub(crate) fn begin() -> anyhow::Result<Waiting> {
        let set: SigSet = crate::signals::block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC);
        Ok(Waiting { signals: signals.context("can't wait for signals")? })
    }

    /// Waits for this time; returns true immediately if a signal arrives.
    pub(crate) fn is_ended_within(&self, time: Duration) -> bool {
        self.until(time, false) == Ended::Signal
    }

    /// Waits for this time for a line on standard input.
    pub(super) fn for_line(&self, time: Duration) -> Ended {
        self.until(time, true)
    }

    fn until(&self, time: Duration, reads: bool) -> Ended {
        let end = Instant::now() + time;
        let stdin = std::io::stdin();
        loop {
            let mut left = end.saturating_duration_since(Instant::now());
            let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if reads && is_in_background() {
                // Reading in the background would stop this process.
                left = left.min(POLL_INTERVAL);
            } else if reads {
                watched.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            // Rounded up, since a wait of less than a millisecond would be none.
            let left_ms = u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
            // If the poll was interrupted, the loop repeats it.
            let _ = poll(&mut watched, PollTimeout::from(left_ms));
            let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            if is_ready(&watched[0]) {
                return Ended::Signal;
            }
            if watched.get(1).is_some_and(is_ready)
                && let Some(ended) = read_byte()
            {
                return ended;
            }
            if Instant::now() >= end {
                return Ended::Time;
            }
        }
    }
}

/// Whether another process group has the terminal that standard input is.
fn is_in_background() -> bool {
    tcgetpgrp(std::io::stdin()).is_ok_and(|group| group != getpgrp())
}

/// Reads one available byte. So this takes nothing that belongs to others, and an incomplete line does not make it
/// wait.
fn read_byte() -> Option<Ended> {
    let mut byte = [0];
    match read(std::io::stdin(), &mut byte) {
        Ok(1) if byte == *b"\n" => Some(Ended::Line),
        Ok(1) | Err(Errno::EINTR) => None,
        _ => Some(Ended::Closed),
    }
}
