//! The output of each second while interfaces are received from, and the end after a time limit.

use crate::output;
use rxsteer_status::figures::grouped;
use rxsteer_user::core::Drops;
use rxsteer_user::{RxProgress, drops_to_json};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where the lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    Json,
    Terminal,
    None,
}

/// Prints the progress of the receivers until it is dropped, and sets `end` once `duration` is over.
pub(crate) struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(
        receivers: Vec<Arc<RxProgress>>,
        json: bool,
        duration: Option<Duration>,
        end: Arc<AtomicBool>,
    ) -> Watch {
        let done = Arc::new(AtomicBool::new(false));
        let lines = match json {
            true => Lines::Json,
            false if std::io::stderr().is_terminal() => Lines::Terminal,
            false => Lines::None,
        };
        let thread = {
            let done = done.clone();
            std::thread::spawn(move || watch(&receivers, lines, duration, &end, &done))
        };
        Watch { done, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // ORDER: Relaxed; the flag is a request and carries no data.
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn watch(
    receivers: &[Arc<RxProgress>],
    lines: Lines,
    duration: Option<Duration>,
    end: &AtomicBool,
    done: &AtomicBool,
) {
    let begun = Instant::now();
    let (mut before, mut next) = (Figures::default(), INTERVAL);
    // ORDER: Relaxed, both; the flags are requests and carry no data.
    while !done.load(Ordering::Relaxed) {
        let elapsed = begun.elapsed();
        if duration.is_some_and(|duration| elapsed >= duration) {
            end.store(true, Ordering::Relaxed);
        }
        if elapsed >= next {
            let now = Figures::of(receivers, elapsed);
            match lines {
                // If the reader of the lines is gone, the run continues.
                Lines::Json => drop(output::print(&format!("{}\n", now.json(&before)))),
                Lines::Terminal => output::note(&now.line(&before)),
                Lines::None => {}
            }
            (before, next) = (now, next + INTERVAL);
        }
        let until =
            duration.map_or(next, |duration| next.min(duration.max(elapsed + INTERVAL / 100)));
        std::thread::park_timeout(until.saturating_sub(begun.elapsed()));
    }
}

/// What was received until one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    elapsed: Duration,
    packets: u64,
    bytes: u64,
    dropped: Drops,
    kernel_drops: u64,
}

impl Figures {
    fn of(receivers: &[Arc<RxProgress>], elapsed: Duration) -> Figures {
        let sum = |figure: fn(&RxProgress) -> u64| receivers.iter().map(|r| figure(r)).sum::<u64>();
        let mut dropped = Drops::default();
        receivers.iter().for_each(|r| dropped.merge(&r.dropped()));
        Figures {
            elapsed,
            packets: sum(|r| r.packets.get()),
            bytes: sum(|r| r.bytes.get()),
            dropped,
            kernel_drops: sum(|r| r.kernel_drops.get()),
        }
    }

    /// Packets and bits per second since `before`.
    fn rates(&self, before: &Figures) -> (f64, f64) {
        let seconds = (self.elapsed - before.elapsed).as_secs_f64().max(1e-3);
        let per_second = |now: u64, before: u64| (now - before) as f64 / seconds;
        (per_second(self.packets, before.packets), per_second(self.bytes, before.bytes) * 8.0)
    }

    fn json(&self, before: &Figures) -> serde_json::Value {
        let (packets, bits) = self.rates(before);
        json!({
            "elapsed_ns": self.elapsed.as_nanos() as u64,
            "packets": self.packets,
            "bytes": self.bytes,
            "dropped": drops_to_json(&self.dropped),
            "kernel_drops": self.kernel_drops,
            "packets_per_second": packets.round(),
            "bits_per_second": bits.round(),
        })
    }

    fn line(&self, before: &Figures) -> String {
        let (packets, bits) = self.rates(before);
        format!(
            "{:>4} s  {} packets, {}/s, {:.1} Mbit/s; dropped {}, by the kernel {}",
            self.elapsed.as_secs(),
            grouped(self.packets),
            grouped(packets.round() as u64),
            bits / 1e6,
            grouped(self.dropped.total()),
            grouped(self.kernel_drops),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_user::core::DropReason;

    #[test]
    fn rates_are_those_since_the_last_line() {
        let before =
            Figures { elapsed: Duration::from_secs(1), packets: 1000, ..Figures::default() };
        let mut dropped = Drops::default();
        dropped.add(DropReason::BacklogFull, 7);
        let now = Figures {
            elapsed: Duration::from_secs(3),
            packets: 5000,
            bytes: 250_000,
            dropped,
            kernel_drops: 0,
        };
        let line = now.line(&before);
        assert_eq!(line, "   3 s  5 000 packets, 2 000/s, 1.0 Mbit/s; dropped 7, by the kernel 0");
        let json = now.json(&before);
        assert_eq!(json["packets_per_second"], 2000.0);
        assert_eq!((&json["packets"], &json["kernel_drops"]), (&5000.into(), &0.into()));
        assert_eq!(json["dropped"]["backlog_full"], 7, "as in the report at the end");
    }
}
