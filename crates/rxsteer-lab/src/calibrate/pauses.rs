//! Pauses of this machine: times in which a CPU does nothing although a thread wants to run on it, since the hypervisor runs
//! another guest, or an interrupt takes long.
//!
//! A thread on each CPU reads the clock over and over. A gap between two readings is a pause. Its length is rounded down to
//! a power of two of [`SHORTEST_NS`]; the simulator gets the mean length and the rate of each such kind
//! ([`rxsteer_sim::scenario::Pause`]).

use crate::cpus::{online_cpus, pin};
use crate::error::Result;
use rxsteer_sim::scenario::Pause;
use std::time::{Duration, Instant};

/// The shortest pause that counts, in nanoseconds. A timer interrupt takes less.
const SHORTEST_NS: u64 = 8_000;
/// The number of kinds. The last one has all longer pauses, from 16 ms on.
const KINDS: usize = 12;

/// How long the machine is watched after each measurement. It is watched between all measurements, since a host's pauses
/// change from minute to minute.
pub(crate) const WATCHED: Duration = Duration::from_millis(40);

/// The pauses of all CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    /// By kind: how many pauses there were, and their length together in nanoseconds.
    kinds: [(u64, u64); KINDS],
    /// For how long CPUs were watched, all together.
    watched_ns: u64,
}

/// The share of the time in which a CPU with these pauses is paused.
pub(crate) fn paused(pauses: &[Pause]) -> f64 {
    pauses.iter().map(|of| of.lasts_ns as f64 / of.every_ns as f64).sum()
}

impl Pauses {
    /// Watches all CPUs at the same time.
    pub(crate) fn watch(&mut self, time: Duration) -> Result<()> {
        let of_cpus: Vec<Result<Pauses>> = std::thread::scope(|scope| {
            let watch = |cpu| scope.spawn(move || watch_cpu(cpu, time));
            let running: Vec<_> = (0..online_cpus()).map(watch).collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            running.into_iter().map(ended).collect()
        });
        for of_cpu in of_cpus {
            let of_cpu = of_cpu?;
            self.watched_ns += of_cpu.watched_ns;
            for ((count, ns), (more, more_ns)) in self.kinds.iter_mut().zip(of_cpu.kinds) {
                *count += more;
                *ns += more_ns;
            }
        }
        Ok(())
    }

    fn add(&mut self, ns: u64) {
        if ns >= SHORTEST_NS {
            let kind = (ns / SHORTEST_NS).ilog2() as usize;
            let (count, all_ns) = &mut self.kinds[kind.min(KINDS - 1)];
            *count += 1;
            *all_ns += ns;
        }
    }

    /// The pauses of one CPU, for a scenario. Kinds that did not occur are left out.
    pub(crate) fn kinds(&self) -> Vec<Pause> {
        let seen = self.kinds.iter().filter(|(count, _)| *count > 0);
        let pause = |(count, ns): &(u64, u64)| Pause {
            every_ns: (self.watched_ns / count).max(1),
            lasts_ns: (ns / count).max(1),
        };
        seen.map(pause).collect()
    }
}

fn watch_cpu(cpu: usize, time: Duration) -> Result<Pauses> {
    pin(cpu)?;
    let mut pauses = Pauses::default();
    let begin = Instant::now();
    let mut last = begin;
    while last - begin < time {
        let now = Instant::now();
        pauses.add((now - last).as_nanos() as u64);
        last = now;
    }
    pauses.watched_ns = (last - begin).as_nanos() as u64;
    Ok(pauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_sorted_by_length() {
        let mut pauses = Pauses { watched_ns: 1_000_000_000, ..Pauses::default() };
        for ns in [0, 7_999, 8_000, 12_000, 16_000, 1_000_000_000] {
            pauses.add(ns);
        }
        let [short, longer, longest] = pauses.kinds().try_into().unwrap();
        assert_eq!(short, Pause { every_ns: 500_000_000, lasts_ns: 10_000 });
        assert_eq!(longer, Pause { every_ns: 1_000_000_000, lasts_ns: 16_000 });
        assert_eq!(longest.lasts_ns, 1_000_000_000);
        assert!(Pauses::default().kinds().is_empty(), "nothing was watched");
    }

    #[test]
    fn every_cpu_is_watched() {
        let mut pauses = Pauses::default();
        pauses.watch(Duration::from_millis(2)).unwrap();
        let all = Duration::from_millis(2 * online_cpus() as u64).as_nanos() as u64;
        assert!(pauses.watched_ns >= all, "{pauses:?}");
    }
}
