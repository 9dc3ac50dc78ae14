//! When frames are due: at once, or as far apart as they were recorded, times a factor.

use crate::block::FrameMeta;
use std::time::{Duration, Instant};

/// Longest sleep at a time, so that a stop is noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// How fast a recording is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As fast as the receive path takes it.
    Max,
    /// This many times as fast as recorded; above 0.
    Times(f64),
}

/// The pace of one RX thread.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Wall nanoseconds per recorded nanosecond; 0 for no pace at all.
    stretch: f64,
    /// The start: wall time and recorded time.
    origin: Option<(Instant, u64)>,
    /// Set when the thread should not sleep on.
    stop: Option<std::sync::Arc<std::sync::atomic::AtomicBool>>,
}

impl Pace {
    /// Everything is due at once.
    #[must_use]
    pub fn unpaced() -> Pace {
        Pace { stretch: 0.0, origin: None, stop: None }
    }

    /// The pace for `speed`; sleeping ends when `stop` is set.
    #[must_use]
    pub fn new(speed: Speed, stop: std::sync::Arc<std::sync::atomic::AtomicBool>) -> Pace {
        let stretch = match speed {
            Speed::Max => 0.0,
            Speed::Times(factor) => factor.recip(),
        };
        Pace { stretch, origin: None, stop: Some(stop) }
    }

    /// Whether it ever makes the caller wait.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.stretch != 0.0
    }

    /// How many of `frames` (not empty) are due now, at most `most`, at least one: sleeps until the
    /// first is. Time that steps back in the recording is due at once.
    #[inline]
    pub(crate) fn due(&mut self, frames: &[FrameMeta], most: usize) -> usize {
        if self.is_paced() { self.paced(frames, most) } else { frames.len().min(most) }
    }

    fn paced(&mut self, frames: &[FrameMeta], most: usize) -> usize {
        let first = frames[0].timestamp_ns;
        let (start, recorded) = *self.origin.get_or_insert_with(|| (Instant::now(), first));
        let stretch = self.stretch;
        let offset = |time: u64| {
            let ns = time.saturating_sub(recorded) as f64 * stretch;
            Duration::from_nanos(ns.min(u64::MAX as f64) as u64)
        };
        loop {
            let left = offset(first).saturating_sub(start.elapsed());
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            let stopped = self
                .stop
                .as_ref()
                .is_some_and(|stop| stop.load(std::sync::atomic::Ordering::Relaxed));
            if left.is_zero() || stopped {
                break;
            }
            std::thread::sleep(left.min(LONGEST_SLEEP));
        }
        let now = start.elapsed();
        let due = frames.iter().take(most).take_while(|f| offset(f.timestamp_ns) <= now).count();
        due.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, FrameInfo};
    use rxsteer_packet::LinkType;

    fn frames_at(times: &[u64]) -> Block {
        let mut block = Block::new();
        for &timestamp_ns in times {
            let info = FrameInfo {
                timestamp_ns,
                wire_len: 0,
                rx_queue: 0,
                link: LinkType::Raw,
                nic_hash: None,
            };
            block.push(b"", info);
        }
        block
    }

    #[test]
    fn unpaced_frames_are_due_in_batches() {
        let block = frames_at(&[0, u64::MAX, 5]);
        assert_eq!(Pace::unpaced().due(block.frames(), 2), 2);
    }

    #[test]
    fn paced_frames_wait_for_their_time() {
        let hour = 3_600_000_000_000;
        let block = frames_at(&[hour, hour, 5, 2 * hour]);
        let mut pace = Pace::new(Speed::Times(1.0), Default::default());
        assert_eq!(pace.due(block.frames(), 9), 3, "the last is an hour away, time steps are not");
        // An hour takes 3.6 µs at this speed: the last frame is slept for, and then due.
        let mut fast = Pace::new(Speed::Times(1e9), Default::default());
        let begun = Instant::now();
        assert!(fast.due(block.frames(), 9) >= 3);
        assert_eq!(fast.due(&block.frames()[3..], 9), 1);
        assert!(begun.elapsed() >= Duration::from_nanos(3600));
    }
}
