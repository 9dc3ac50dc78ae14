//! When a worker calls its handler's tick.

use crate::clock::Clock;
use std::time::Duration;

/// The times of one worker's ticks.
#[derive(Debug)]
pub(crate) struct Ticks {
    every_ns: u64,
    next_ns: u64,
}

impl Ticks {
    /// One tick every `every`. The first tick comes this long after the start of the pipeline.
    pub(crate) fn new(every: Duration) -> Ticks {
        let every_ns = every.as_nanos() as u64;
        Ticks { every_ns, next_ns: every_ns }
    }

    /// Whether a tick is due. If so, missed ticks are skipped.
    #[inline]
    pub(crate) fn is_due(&mut self, clock: Clock) -> bool {
        self.is_due_at(clock.now_ns())
    }

    /// The time until the next tick.
    pub(crate) fn left(&self, clock: Clock) -> Duration {
        Duration::from_nanos(self.next_ns.saturating_sub(clock.now_ns()))
    }

    #[inline]
    fn is_due_at(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        self.next_ns = now_ns - now_ns % self.every_ns + self.every_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_are_not_made_up_for() {
        let mut ticks = Ticks::new(Duration::from_nanos(10));
        let due = |now| ticks.is_due_at(now);
        assert_eq!(
            [0, 9, 10, 11, 19, 20, 55, 59, 60].map(due),
            [false, false, true, false, false, true, true, false, true]
        );
    }
}
