//! Signals that end the program, or make it read its settings again. A signal that was ignored when the program started
//! stays ignored: `nohup` ignores SIGHUP, and a shell without job control ignores SIGINT for background processes.

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

/// The signals that end a run, unless they were ignored at the start.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Blocks them in this thread and in those that it starts later; the caller waits for them.
pub(crate) fn block() -> anyhow::Result<SigSet> {
    // If /proc cannot be read, none counts as ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set: SigSet = SIGNALS.into_iter().filter(|signal| !is_ignored(&status, *signal)).collect();
    set.thread_block().context("can't wait for signals")?;
    Ok(set)
}

/// Whether a process whose `/proc/PID/status` is `status` ignores a signal.
fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal as i32 - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001003\nSigCgt:\t0\n";
        assert!(is_ignored(status, Signal::SIGHUP) && is_ignored(status, Signal::SIGINT));
        assert!(is_ignored(status, Signal::SIGPIPE) && !is_ignored(status, Signal::SIGTERM));
        assert!(!is_ignored("", Signal::SIGHUP));
    }
}
