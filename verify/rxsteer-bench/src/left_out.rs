//! Time that belongs to no item: preparation of the measured work, or another thread's turn.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static LEFT_OUT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Does something within a case's `run` that is not measured. Reading the clock takes some 50 ns, so the measured time
/// between two of these calls should be at least some microseconds.
pub fn unmeasured<T>(prepare: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = prepare();
    leave_out(start.elapsed());
    value
}

/// Subtracts `time` from the time of the running case. This is for a case that determines itself which part of its time
/// counts.
pub fn leave_out(time: Duration) {
    LEFT_OUT.set(LEFT_OUT.get() + time);
}

/// Runs something, and returns its time without the time that was left out.
pub(crate) fn measured(run: impl FnOnce()) -> Duration {
    LEFT_OUT.set(Duration::ZERO);
    let start = Instant::now();
    run();
    start.elapsed().saturating_sub(LEFT_OUT.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_does_not_count() {
        const MUCH: Duration = Duration::from_secs(1_000_000);
        assert_eq!(measured(|| leave_out(MUCH)), Duration::ZERO);
        // Time that was left out outside of a measurement does not count in the next measurement.
        leave_out(MUCH);
        let slept = Duration::from_millis(1);
        assert!(measured(|| std::thread::sleep(slept)) >= slept);
        // The clock never goes back, so the measured time is shorter than the whole time by at least the unmeasured
        // time.
        let all = Instant::now();
        let measured = measured(|| unmeasured(|| std::thread::sleep(slept)));
        assert!(measured + slept <= all.elapsed());
    }
}
