//! The longest round of the event thread, over a period that does not depend on requests for it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The length of a window. The value shown is the longest round of this window and the previous one.
const WINDOW: Duration = Duration::from_secs(10);

/// The longest time that the event thread worked without a check of its events, within the last 10 to 20 seconds.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Windows>);

#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    /// When the present window began; `None` before the first round.
    started: Option<Instant>,
    present: Duration,
    before: Duration,
}

impl Windows {
    fn advance_to(&mut self, now: Instant) {
        let age =
            self.started.map_or(Duration::ZERO, |started| now.saturating_duration_since(started));
        if self.started.is_some() && age < WINDOW {
            return;
        }
        self.before = if age < 2 * WINDOW { self.present } else { Duration::ZERO };
        self.present = Duration::ZERO;
        self.started = Some(now);
    }
}

impl Rounds {
    /// Notes that a round ended at `now`.
    pub(crate) fn took(&self, time: Duration, now: Instant) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.advance_to(now);
        windows.present = windows.present.max(time);
    }

    /// The longest round of the last 10 to 20 seconds, in nanoseconds.
    pub(crate) fn longest_ns(&self, now: Instant) -> u64 {
        let mut windows = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.advance_to(now);
        windows.present.max(windows.before).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_round_stays_for_all_who_ask_and_goes_with_its_window() {
        let (rounds, begin) = (Rounds::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(rounds.longest_ns(at(0)), 0);
        rounds.took(Duration::from_nanos(70), at(0));
        rounds.took(Duration::from_nanos(30), at(100));
        for _ in 0..2 {
            assert_eq!(rounds.longest_ns(at(9_999)), 70);
        }
        // Also if only readers call it.
        assert_eq!(rounds.longest_ns(at(19_999)), 70);
        assert_eq!(rounds.longest_ns(at(20_000)), 0);
        rounds.took(Duration::from_nanos(50), at(10_000));
        assert_eq!(rounds.longest_ns(at(19_999)), 70);
        rounds.took(Duration::from_nanos(20), at(20_000));
        assert_eq!(rounds.longest_ns(at(29_999)), 50);
        rounds.took(Duration::from_nanos(10), at(30_000));
        assert_eq!(rounds.longest_ns(at(30_000)), 20);
    }
}
