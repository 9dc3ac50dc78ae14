//! Time in a descriptor: 32 bits of 64-nanosecond ticks since the pipeline started. The ticks wrap after 275 s. A
//! packet that waits longer than half of that shows a wrong delay, with no other effect.

use std::time::Instant;

/// Nanoseconds per tick, as a shift.
const TICK_SHIFT: u32 = 6;

/// The pipeline's clock: CLOCK_MONOTONIC since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Ticks since the start, wrapping.
    #[inline]
    pub(crate) fn now(self) -> u32 {
        Clock::tick(self.now_ns())
    }

    /// The tick of a time in nanoseconds since the start.
    #[inline]
    pub(crate) fn tick(ns: u64) -> u32 {
        (ns >> TICK_SHIFT) as u32
    }
}

/// Nanoseconds from tick `then` to tick `now`; 0 if the clocks of two CPUs disagree.
#[inline]
pub(crate) fn ns_between(then: u32, now: u32) -> u64 {
    u64::from((now.wrapping_sub(then) as i32).max(0) as u32) << TICK_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_survive_the_wrap() {
        assert_eq!(ns_between(u32::MAX, 1), 128);
        assert_eq!(ns_between(1, 0), 0);
    }
}
