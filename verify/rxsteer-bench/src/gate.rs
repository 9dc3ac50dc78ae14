//! A check that the two CPUs are currently close to each other.
//!
//! Two pinned threads pass one cache line back and forth. On a virtual machine the time of a pass jumps between modes,
//! and with it the time of everything that crosses CPUs. A slice that is measured in the slow mode shows nothing about
//! the code.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Passes back and forth in one leg; one leg takes some 25 µs in the fast mode.
const THROWS: u64 = 250;
/// Legs of one check. The median leg counts, so that a preempted leg does not.
const LEGS: u64 = 9;

/// Two CPUs of this process, and the longest time of a pass between them.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The CPUs between which the cache line is passed.
    pub cpus: (usize, usize),
    /// The gate is open when one pass takes no longer than this.
    pub limit_ns: f64,
}

/// Why there is no gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoGate {
    /// The user turned it off.
    TurnedOff,
    /// This process may run on one CPU only.
    OneCpu,
    /// The host does not allow threads to choose their CPU.
    CannotPin,
}

impl NoGate {
    /// The reason, as the end of a sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TurnedOff => "it was turned off",
            Self::OneCpu => "this process may run on one CPU only",
            Self::CannotPin => "this host does not let threads choose their CPU",
        }
    }
}

impl Gate {
    /// A gate between the first two CPUs that this process may run on.
    pub fn find(limit_ns: f64) -> Result<Self, NoGate> {
        let allowed = sched_getaffinity(None).map_err(|_| NoGate::CannotPin)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else {
            return Err(NoGate::OneCpu);
        };
        let gate = Self { cpus: (first, second), limit_ns };
        if gate.one_way_ns().is_none() {
            return Err(NoGate::CannotPin);
        }
        Ok(gate)
    }

    /// The present time of one pass; `None` if a thread could not be pinned.
    pub fn one_way_ns(&self) -> Option<f64> {
        let line = &Line(AtomicU64::new(0));
        let (near_cpu, far_cpu) = self.cpus;
        // Two new threads each time, so that the caller's own thread stays unpinned: threads that a case starts inherit
        // the CPUs of the thread that starts them.
        thread::scope(|scope| {
            let far = scope.spawn(move || pin(far_cpu).map(|()| line.send_back()));
            let near = scope.spawn(move || {
                // The far side waits for a pass, so this side passes even if it could not be pinned.
                let pinned = pin(near_cpu);
                let legs = line.throw_out(|| far.is_finished());
                pinned.and(legs)
            });
            near.join().ok().flatten()
        })
    }
}

fn pin(cpu: usize) -> Option<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).ok()
}

/// The line that is passed: odd on its way out, even on its way back. It has a pair of cache lines for itself, since
/// x86 fetches such pairs together.
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// The near side: the median leg's time for one pass, or `None` when the far side has ended.
    fn throw_out(&self, far_gone: impl Fn() -> bool) -> Option<f64> {
        let mut legs = Vec::new();
        for leg in 0..=LEGS {
            let start = Instant::now();
            for throw in leg * THROWS..(leg + 1) * THROWS {
                // ORDER: pairs with the loads of `send_back`; no other data is passed.
                self.0.store(2 * throw + 1, Ordering::Release);
                let mut spins = 0_u32;
                // ORDER: pairs with the store of `send_back`.
                while self.0.load(Ordering::Acquire) != 2 * throw + 2 {
                    spins = spins.wrapping_add(1);
                    // Check the thread occasionally: it ends early if it could not be pinned.
                    if spins.is_multiple_of(1 << 16) && far_gone() {
                        return None;
                    }
                }
            }
            legs.push(start.elapsed().as_nanos() as f64 / (2 * THROWS) as f64);
        }
        // The first leg began before the other thread was ready.
        crate::Quartiles::of(&legs[1..]).map(|q| q.median)
    }

    fn send_back(&self) {
        for throw in 0..(LEGS + 1) * THROWS {
            // ORDER: both pair with `throw_out`.
            while self.0.load(Ordering::Acquire) != 2 * throw + 1 {}
            self.0.store(2 * throw + 2, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throw_takes_some_time_or_there_is_no_gate() {
        match Gate::find(70.0) {
            Ok(gate) => {
                assert_ne!(gate.cpus.0, gate.cpus.1);
                assert!(gate.one_way_ns().unwrap() > 0.0);
            }
            Err(why) => assert_ne!(why, NoGate::TurnedOff),
        }
    }

    #[test]
    fn far_side_that_never_comes_is_noticed() {
        let line = Line(AtomicU64::new(0));
        assert_eq!(line.throw_out(|| true), None);
    }
}
