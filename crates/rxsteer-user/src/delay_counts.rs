//! The delays of a worker's packets as a histogram that other threads can read at any time.

use crate::count::Count;
use hdrhistogram::Histogram;

/// The number of buckets per power of two, as a power of two: quantiles are correct to two digits.
const SUB_LOG: u32 = 7;
/// Delays are less than 2 to the power of this: the clock of descriptors wraps after that ([`crate::clock`]).
const LOG: u32 = 37;
const BUCKETS: usize = ((LOG - SUB_LOG + 1) << SUB_LOG) as usize;

/// The precision of [`DelayCounts::histogram`] in decimal digits.
const DIGITS: u8 = 2;

/// A histogram of delays. One thread records, and any thread may read.
///
/// Each power of two of nanoseconds is divided into 128 buckets of equal width.
#[derive(Debug)]
pub struct DelayCounts(Box<[Count]>);

impl Default for DelayCounts {
    fn default() -> DelayCounts {
        DelayCounts((0..BUCKETS).map(|_| Count::default()).collect())
    }
}

impl DelayCounts {
    /// Records `packets` packets with a delay of `ns` nanoseconds each.
    #[inline]
    pub(crate) fn record(&self, ns: u64, packets: u64) {
        self.0[bucket_of(ns).min(BUCKETS - 1)].add(packets);
    }

    /// The non-empty buckets in ascending order: the least delay of the bucket in nanoseconds, and its number of packets.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.0.iter().map(Count::get).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(bucket, count)| (lower(bucket), count))
    }

    /// The delays as a histogram with two digits.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = delay_histogram();
        for (ns, packets) in self.buckets() {
            histogram.saturating_record_n(ns, packets);
        }
        histogram
    }
}

/// An empty histogram of delays in nanoseconds.
pub(crate) fn delay_histogram() -> Histogram<u64> {
    // The bounds are constants that hdrhistogram accepts; a test below builds one.
    #[allow(clippy::expect_used)]
    Histogram::new_with_bounds(1, 1 << LOG, DIGITS).expect("constant bounds")
}

#[inline(always)]
fn bucket_of(ns: u64) -> usize {
    let log = (ns | 1 << SUB_LOG).ilog2();
    // The bits below the highest one are the bucket within its power of two; delays below 128 have one each.
    (((log - SUB_LOG) << SUB_LOG) as u64 + (ns >> (log - SUB_LOG))) as usize
}

fn lower(bucket: usize) -> u64 {
    let log = (bucket as u32 >> SUB_LOG).saturating_sub(1);
    (bucket as u64 - u64::from(log << SUB_LOG)) << log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut last = 0;
        for ns in (0..70_000).chain([u64::from(u32::MAX >> 1) << 6]) {
            let bucket = bucket_of(ns);
            assert!(bucket == last || bucket == last + 1 || ns > 70_000, "{ns}: {last}, {bucket}");
            assert!(lower(bucket) <= ns && ns < lower(bucket + 1), "{ns}");
            last = bucket;
        }
        assert!(last < BUCKETS, "{last}");
    }

    #[test]
    fn quantiles_are_those_of_a_histogram_with_two_digits() {
        let (counts, mut histogram) = (DelayCounts::default(), delay_histogram());
        for delay in (0..20_000u64).map(|number| number * number % 10_000_019 * 64) {
            counts.record(delay, 3);
            histogram.saturating_record_n(delay, 3);
        }
        let same = counts.histogram();
        for quantile in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let of = |histogram: &Histogram<u64>| histogram.value_at_quantile(quantile);
            assert_eq!(of(&same), of(&histogram), "{quantile}");
        }
        assert_eq!((same.len(), same.max()), (histogram.len(), histogram.max()));
    }
}
