//! Determines when frames are due: at once, or with the recorded spacing times a factor.

use crate::block::FrameMeta;
use crate::config::PipelineError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The longest sleep at a time, so that a stop is noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// The speed at which a recording is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As fast as the receive path accepts it.
    Max,
    /// Each batch begins when all earlier packets are processed, and runs as fast as possible. The RX thread then decides
    /// as on a system whose CPUs keep up: a flow that moves waits only for packets of its own batch.
    Drained,
    /// This factor times the recorded speed; finite, and above 0.
    Times(f64),
}

impl Speed {
    /// Whether frames wait for their recorded time.
    #[must_use]
    pub fn is_recorded(self) -> bool {
        matches!(self, Speed::Times(_))
    }

    /// Whether the factor, if there is one, is in range.
    ///
    /// # Errors
    /// [`PipelineError::Speed`], when it is not.
    pub fn check(self) -> Result<(), PipelineError> {
        match self {
            Speed::Times(factor) if !(factor.is_finite() && factor > 0.0) => {
                Err(PipelineError::Speed(factor))
            }
            _ => Ok(()),
        }
    }
}

/// The pace of one RX thread.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Wall-clock nanoseconds per recorded nanosecond; 0 for no pace.
    stretch: f64,
    /// Whether a batch waits until all packets before it are processed.
    drains: bool,
    /// The start in wall-clock time and in recorded time, set by the first frame. Clones share it.
    origin: Arc<OnceLock<(Instant, u64)>>,
}

impl Pace {
    /// The pace for `speed`; it starts with the first frame. RX threads that share an input share a pace: each has
    /// a clone.
    #[must_use]
    pub fn new(speed: Speed) -> Pace {
        let stretch = match speed {
            Speed::Max | Speed::Drained => 0.0,
            Speed::Times(factor) => factor.recip(),
        };
        Pace { stretch, drains: speed == Speed::Drained, origin: Arc::default() }
    }

    /// Starts the pace now, at this recorded time, unless it has started.
    pub(crate) fn begin(&self, time_ns: u64) {
        self.origin.get_or_init(|| (Instant::now(), time_ns));
    }

    /// Whether the pace ever delays frames.
    pub(crate) fn is_paced(&self) -> bool {
        self.stretch != 0.0
    }

    /// Whether a batch waits until all packets before it are processed.
    pub(crate) fn drains(&self) -> bool {
        self.drains
    }

    /// How many of `frames` (not empty) are due now, at most `most`. Sleeps until the first one is due, and
    /// returns 0 only if `stop` is set before that. A frame whose recorded time steps back is due at once.
    pub(crate) fn due(&self, frames: &[FrameMeta], most: usize, stop: &AtomicBool) -> usize {
        let first = frames[0].timestamp_ns;
        let (start, recorded) = *self.origin.get_or_init(|| (Instant::now(), first));
        let offset = |time: u64| {
            let ns = time.saturating_sub(recorded) as f64 * self.stretch;
            Duration::from_nanos(ns as u64)
        };
        loop {
            let left = offset(first).saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            if stop.load(Ordering::Relaxed) {
                return 0;
            }
            std::thread::sleep(left.min(LONGEST_SLEEP));
        }
        let now = start.elapsed();
        frames.iter().take(most).take_while(|frame| offset(frame.timestamp_ns) <= now).count()
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
            assert!(block.push(b"", FrameInfo::new(LinkType::Raw, timestamp_ns, 0)));
        }
        block
    }

    #[test]
    fn frames_wait_for_their_time_and_time_that_steps_back_does_not() {
        let hour = 3_600_000_000_000;
        let block = frames_at(&[hour, hour, 5, 2 * hour]);
        let go = AtomicBool::new(false);
        let pace = Pace::new(Speed::Times(1.0));
        assert_eq!(pace.due(block.frames(), 2, &go), 2, "as many as a batch takes");
        assert_eq!(pace.due(block.frames(), 9, &go), 3, "the last is an hour away");
        let stop = AtomicBool::new(true);
        assert_eq!(pace.due(&block.frames()[3..], 9, &stop), 0, "and not received on a stop");
        // At this speed an hour takes 3.6 µs: the call sleeps until the last frame is due.
        let fast = Pace::new(Speed::Times(1e9));
        assert!(fast.due(block.frames(), 9, &go) >= 3);
        assert_eq!(fast.due(&block.frames()[3..], 9, &go), 1);
    }
}
