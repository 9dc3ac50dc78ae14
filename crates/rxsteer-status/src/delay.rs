//! The delay from arrival to delivery, as a histogram whose counts only grow.

use serde::{Deserialize, Serialize};

/// Sub-buckets of each power of two.
const SUB: u32 = 4;

/// A histogram of delays. Counts only grow, so the difference of two readings is the histogram of the time between
/// them.
///
/// Bucket `b` counts samples of nanoseconds in `lower(b)..lower(b + 1)`: each power of two is divided into four
/// buckets of equal width, so a quantile is right to a quarter of its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Counts by bucket, from bucket 0; later ones are 0.
    pub buckets: Vec<u64>,
}

impl Delay {
    /// The bucket of a delay in nanoseconds.
    #[must_use]
    pub const fn bucket_of(ns: u64) -> usize {
        if ns < SUB as u64 {
            return ns as usize;
        }
        let log = ns.ilog2();
        ((log - 1) * SUB) as usize + ((ns >> (log - 2)) as usize & (SUB as usize - 1))
    }

    /// The lowest delay of a bucket, in nanoseconds.
    #[must_use]
    pub const fn lower(bucket: usize) -> u64 {
        let (bucket, sub) = (bucket as u32, SUB as u64);
        if bucket < SUB {
            return bucket as u64;
        }
        let log = bucket / SUB + 1;
        (sub + (bucket % SUB) as u64) << (log - 2)
    }

    /// The number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds `count` samples of `ns` nanoseconds.
    pub fn record(&mut self, ns: u64, count: u64) {
        let bucket = Self::bucket_of(ns);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += count;
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Delay) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
    }

    /// The samples counted after `before`.
    #[must_use]
    pub fn since(&self, before: &Delay) -> Delay {
        let before = before.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before);
        Delay { buckets: buckets.map(|(now, before)| now.saturating_sub(before)).collect() }
    }

    /// The delay in nanoseconds that the share `share` (0.0 to 1.0) of the samples does not exceed, rounded up to the
    /// end of its bucket. `None` without samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let buckets = self.buckets.iter().enumerate();
        buckets
            .map(|(bucket, count)| {
                seen += count;
                (bucket, seen)
            })
            .find(|(_, seen)| count > 0 && *seen >= rank)
            .map(|(bucket, _)| Self::lower(bucket + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut last = 0;
        for ns in 0..100_000u64 {
            let bucket = Delay::bucket_of(ns);
            assert!(bucket == last || bucket == last + 1, "{ns}: {last} then {bucket}");
            assert!(Delay::lower(bucket) <= ns && ns < Delay::lower(bucket + 1), "{ns}");
            last = bucket;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_time_between() {
        let mut before = Delay::default();
        before.add(&Delay { buckets: vec![0, 5] });
        let mut now = before.clone();
        let mut more = vec![0; Delay::bucket_of(1000) + 1];
        more[Delay::bucket_of(1000)] = 1;
        more[Delay::bucket_of(100)] = 99;
        now.add(&Delay { buckets: more });
        let between = now.since(&before);
        assert_eq!((between.count(), now.count()), (100, 105));
        assert_eq!(between.quantile(0.5), Some(112));
        assert_eq!(between.quantile(1.0), Some(1024));
        assert_eq!(Delay::default().quantile(0.5), None);
    }
}
