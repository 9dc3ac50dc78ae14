//! Finds why a ring lost frames, from what its thread did at that time.
//!
//! A ring fills up when its thread does not take frames out fast enough. There are three causes: the thread was ready to
//! run but waited for its CPU; it ran, and the CPU is too slow for the frames sent to it; or neither, and more frames
//! arrived at once than the ring holds. The scheduler counts run and wait times (`/proc/PID/schedstat`), so two readings
//! are enough, and there is no work per packet. The ticks make the readings, some 100 ms apart. A loss shows late, at
//! the first frame after a gap, and the scheduler counts a wait when it is over. So three spans between readings determine
//! the cause of a loss: the one in which the loss showed, the one before, and the one after.

use crate::threads::Scheduled;
use std::time::Duration;

/// What is known about one ring's thread and the ring's losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) ran_ns: u64,
    pub(crate) waited_ns: u64,
    pub(crate) longest_wait_ns: u64,
    pub(crate) lost_waiting: u64,
    pub(crate) lost_busy: u64,
    pub(crate) lost_burst: u64,
    pub(crate) per_second: u64,
    before: Option<Reading>,
    /// The last three spans, the latest first.
    spans: [Span; 3],
    /// The present wait, which the scheduler counts only when it is over.
    pending_ns: u64,
    /// The ring's losses at the last reading, and at the reading before; the cause of the latter is determined.
    noticed: u64,
    judged: u64,
    /// When the present measurement of the rate began, and how many frames had arrived by then.
    rate_since: Option<(Duration, u64)>,
}

/// One reading of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Time since an arbitrary moment.
    pub(crate) at: Duration,
    pub(crate) scheduled: Scheduled,
    /// Frames that have come out of the ring.
    pub(crate) passed: u64,
    /// Whether frames are in the ring.
    pub(crate) is_waiting: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    ns: u64,
    ran_ns: u64,
    waited_ns: u64,
}

/// The shortest wait that can fill a ring.
const MIN_WAIT_NS: u64 = 1_000_000;

/// The period over which the rate is measured.
const RATE_OVER: Duration = Duration::from_secs(1);

impl Waits {
    /// The ring gets another thread, whose counts begin at 0.
    pub(crate) fn begin(&mut self) {
        (self.before, self.pending_ns) = (None, 0);
    }

    /// Notes a reading at which the ring had lost `lost` frames since it was first created.
    pub(crate) fn note(&mut self, now: Reading, lost: u64) {
        let first = Reading { scheduled: Scheduled::default(), ..now };
        let before = self.before.replace(now).unwrap_or(first);
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let mut span = Span {
            ns: ns(now.at.saturating_sub(before.at)),
            ran_ns: now.scheduled.ran_ns.saturating_sub(before.scheduled.ran_ns),
            waited_ns: now.scheduled.waited_ns.saturating_sub(before.scheduled.waited_ns),
        };
        let stands = span.ran_ns == 0 && now.passed == before.passed;
        let is_kept = stands && before.is_waiting && now.is_waiting && span.waited_ns == 0;
        self.ran_ns += span.ran_ns;
        self.waited_ns += span.waited_ns;
        self.pending_ns = if is_kept { self.pending_ns + span.ns } else { 0 };
        span.waited_ns = span.waited_ns.max(self.pending_ns);
        self.longest_wait_ns = self.longest_wait_ns.max(span.waited_ns);
        self.spans = [span, self.spans[0], self.spans[1]];
        self.judge(self.noticed);
        self.noticed = lost;
        self.note_rate(&now);
    }

    /// The same, with a cause for all `lost` frames; for the last ones it is based on what is known so far.
    pub(crate) fn by_now(mut self, lost: u64) -> Waits {
        self.judge(lost);
        self
    }

    /// Determines the cause of those of the `lost` frames that have none yet, from what the ring's thread did then.
    fn judge(&mut self, lost: u64) {
        let more = lost.saturating_sub(self.judged);
        // Without the scheduler's counts the cause is unknown.
        if more == 0 || self.before.is_none() {
            return;
        }
        self.judged = lost;
        let sum = |of: fn(&Span) -> u64| self.spans.iter().map(of).sum::<u64>();
        let [all, waited, ran] =
            [sum(|span| span.ns), sum(|span| span.waited_ns), sum(|span| span.ran_ns)];
        // A small ring is full after a short wait, so a wait also counts if it is longer than the work.
        let of = if waited >= all / 10 || waited >= ran.max(MIN_WAIT_NS) {
            &mut self.lost_waiting
        } else if ran >= all / 2 {
            &mut self.lost_busy
        } else {
            &mut self.lost_burst
        };
        *of += more;
    }

    fn note_rate(&mut self, now: &Reading) {
        let (since, passed) = *self.rate_since.get_or_insert((now.at, now.passed));
        let over = now.at.saturating_sub(since);
        if over >= RATE_OVER {
            let came = now.passed.saturating_sub(passed) as f64;
            self.per_second = (came / over.as_secs_f64()).round() as u64;
            self.rate_since = Some((now.at, now.passed));
        }
    }

    /// The total time that the thread has waited, including the present wait.
    pub(crate) fn all_waited_ns(&self) -> u64 {
        self.waited_ns + self.pending_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// A ring whose thread runs and waits for these milliseconds in each tick, and what the ring had lost by then.
    fn played(ticks: &[(u64, u64, u64)]) -> Waits {
        let mut waits = Waits::default();
        let mut reading = Reading {
            at: Duration::from_secs(9),
            scheduled: Scheduled::default(),
            passed: 0,
            is_waiting: false,
        };
        waits.note(reading, 0);
        for (ran_ms, waited_ms, lost) in ticks {
            reading.at += TICK;
            reading.scheduled.ran_ns += ran_ms * 1_000_000;
            reading.scheduled.waited_ns += waited_ms * 1_000_000;
            reading.passed += ran_ms * 1000;
            reading.is_waiting = true;
            waits.note(reading, *lost);
        }
        waits.by_now(ticks.last().map_or(0, |(_, _, lost)| *lost))
    }

    fn causes(waits: &Waits) -> (u64, u64, u64) {
        (waits.lost_waiting, waits.lost_busy, waits.lost_burst)
    }

    #[test]
    fn losses_are_classed_by_what_the_thread_did() {
        assert_eq!(causes(&played(&[(10, 0, 0), (30, 70, 500), (30, 70, 900)])), (900, 0, 0));
        assert_eq!(causes(&played(&[(99, 1, 0), (99, 1, 40)])), (0, 40, 0));
        assert_eq!(causes(&played(&[(5, 0, 0), (5, 1, 7)])), (0, 0, 7));
        assert_eq!(
            causes(&played(&[(1, 0, 0), (2, 8, 7)])),
            (7, 0, 0),
            "a short ring, a short wait"
        );
        assert_eq!(causes(&played(&[(5, 0, 0), (5, 90, 0), (9, 0, 3)])), (3, 0, 0), "a tick late");
        let early = played(&[(5, 0, 0), (5, 0, 9), (5, 80, 9)]);
        assert_eq!(causes(&early), (9, 0, 0), "before the wait is counted");
        let both = played(&[(10, 80, 5), (10, 0, 5), (99, 0, 5), (99, 0, 12)]);
        assert_eq!(causes(&both), (5, 7, 0));
    }

    #[test]
    fn wait_that_is_not_over_counts() {
        // The thread does not run for three ticks, and the scheduler reports that only afterwards.
        let waits = played(&[(10, 0, 0), (0, 0, 0), (0, 0, 800), (0, 0, 900)]);
        assert_eq!(causes(&waits), (900, 0, 0));
        assert_eq!((waits.all_waited_ns(), waits.longest_wait_ns), (300_000_000, 300_000_000));
        let after = played(&[(10, 0, 0), (0, 0, 0), (0, 0, 800), (0, 0, 900), (5, 395, 900)]);
        assert_eq!(after.all_waited_ns(), 395_000_000, "counted once");
        assert_eq!(after.longest_wait_ns, 395_000_000);
    }

    #[test]
    fn another_thread_begins_at_nothing() {
        let mut waits = played(&[(10, 5, 0)]);
        waits.begin();
        let reading = Reading {
            at: Duration::from_secs(10),
            scheduled: Scheduled { ran_ns: 1_000_000, waited_ns: 2_000_000 },
            passed: 0,
            is_waiting: false,
        };
        waits.note(reading, 0);
        assert_eq!((waits.ran_ns, waits.waited_ns), (11_000_000, 7_000_000));
    }

    #[test]
    fn rate_is_that_of_a_second() {
        assert_eq!(played(&[(10, 0, 0); 12]).per_second, 100_000);
        assert_eq!(played(&[(10, 0, 0); 3]).per_second, 0, "not known yet");
    }
}
