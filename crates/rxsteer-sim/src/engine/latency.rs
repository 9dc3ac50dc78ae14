//! Statistics of times.

use super::packet::float_ns;
use crate::result::Latency;
use hdrhistogram::Histogram;

/// The longest time that is distinguished: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// The times of one traffic: percentiles within 1 %, mean and deviation exact.
#[derive(Debug)]
pub(crate) struct Times {
    histogram: Histogram<u64>,
    sum: f64,
    squares: f64,
}

impl Times {
    pub(crate) fn new() -> Times {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 2);
        Times {
            histogram: histogram.expect("the bounds are constants in range"),
            sum: 0.0,
            squares: 0.0,
        }
    }

    #[inline]
    pub(crate) fn note(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        let ns = float_ns(ns);
        self.sum += ns;
        self.squares += ns * ns;
    }

    pub(crate) fn summary(&self) -> Latency {
        let count = self.histogram.len();
        if count == 0 {
            return Latency::default();
        }
        let mean = self.sum / count as f64;
        let variance = (self.squares / count as f64 - mean * mean).max(0.0);
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Latency {
            count,
            mean,
            std_dev: variance.sqrt(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
        }
    }
}
