//! The delay of packets from their sender to the network stack, for any kind of steering.

use libbpf_rs::{Link as BpfLink, MapCore, MapFlags, Object};
use rustix::time::{ClockId, clock_gettime};

use crate::datagrams::MAGIC;
use crate::error::{Bpf, Result};
use crate::namespace::Namespace;
use crate::numbers::{LAB_DELAY_BUCKETS, LAB_DELAY_STEPS, LAB_DELAY_STEPS_LOG, LAB_DELAY_UNIT};
use crate::objects::{ObjectSpec, map, program};
use crate::testbed::End;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/delay.o"));

/// The unit of delays in nanoseconds.
const UNIT: u64 = LAB_DELAY_UNIT as u64;
/// The number of buckets for each power of two.
const STEPS: u64 = LAB_DELAY_STEPS as u64;
const BUCKETS: usize = LAB_DELAY_BUCKETS as usize;

/// The monotonic clock, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Counts of delays; a bucket is 3 % wide, but at least 256 ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays(Vec<u64>);

impl Default for Delays {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl Delays {
    /// Counts a delay.
    pub fn add(&mut self, ns: u64) {
        self.0[bucket(ns)] += 1;
    }

    /// Adds the counts of another value.
    pub fn merge(&mut self, other: &Delays) {
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count += more);
    }

    /// The delays that were counted since an earlier value.
    pub fn since(&self, earlier: &Delays) -> Delays {
        let counts = self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then));
        Delays(counts.collect())
    }

    /// The number of delays.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The delay that `share` of the delays do not exceed, in nanoseconds; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let place = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let at = self.0.iter().position(|count| {
            below += count;
            below >= place
        });
        at.map(|bucket| lowest_of(bucket + 1) - 1)
    }
}

fn bucket(ns: u64) -> usize {
    let value = ns / UNIT;
    if value < STEPS {
        return value as usize;
    }
    if value >> 31 != 0 {
        return BUCKETS - 1;
    }
    let log = value.ilog2();
    let step = (value >> (log - LAB_DELAY_STEPS_LOG)) & (STEPS - 1);
    (u64::from(log - LAB_DELAY_STEPS_LOG + 1) * STEPS + step) as usize
}

/// The lowest delay of a bucket.
fn lowest_of(bucket: usize) -> u64 {
    let (row, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match row {
        0 => step * UNIT,
        _ => ((STEPS + step) << (row - 1)) * UNIT,
    }
}

/// The first 22 bytes of a measured payload: its flow, and the time at which it was sent.
pub(crate) fn stamped(flow: u32, at_ns: u64) -> [u8; 22] {
    let mut bytes = [0; 22];
    bytes[..8].copy_from_slice(&(MAGIC << 32 | u64::from(flow)).to_be_bytes());
    bytes[8..16].copy_from_slice(&at_ns.to_be_bytes());
    bytes
}

/// The time at which such a payload was sent.
pub(crate) fn sent_at(payload: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_be_bytes(payload.get(at..at + 8)?.try_into().ok()?));
    (word(0)? >> 32 == MAGIC).then_some(())?;
    word(8)
}

/// Measures packets that arrive at an interface, until this is dropped.
#[derive(Debug)]
pub struct DelayCheck {
    object: Object,
    _link: BpfLink,
}

impl DelayCheck {
    /// Starts to measure.
    pub fn new(namespace: &Namespace, end: &End) -> Result<Self> {
        let settings: Vec<u8> =
            [end.index, namespace.inode()?].into_iter().flat_map(u32::to_ne_bytes).collect();
        let spec = ObjectSpec {
            bytes: OBJECT,
            programs: &["delay_check"],
            settings: &settings,
            map: ("delay_buckets", BUCKETS as u32),
        };
        let object = spec.load()?;
        let link = program(&object, "delay_check")?
            .attach()
            .bpf(|| "attach the delay check to netif_receive_skb".to_owned())?;
        Ok(Self { object, _link: link })
    }

    /// The delays of the packets so far.
    pub fn delays(&self) -> Result<Delays> {
        let map = map(&self.object, "delay_buckets")?;
        let count = |bucket: usize| -> Result<u64> {
            let values = map
                .lookup_percpu(&(bucket as u32).to_ne_bytes(), MapFlags::ANY)
                .bpf(|| "read delay_buckets".to_owned())?
                .unwrap_or_default();
            let number =
                |value: &Vec<u8>| value.first_chunk().map_or(0, |n| u64::from_ne_bytes(*n));
            Ok(values.iter().map(number).sum())
        };
        (0..BUCKETS).map(count).collect::<Result<_>>().map(Delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_delay_is_in_its_bucket() {
        for ns in (0..100_000).step_by(37).chain([1 << 20, (1 << 30) + 12_345, 60_000_000_000]) {
            let at = bucket(ns);
            assert!(lowest_of(at) <= ns && ns < lowest_of(at + 1), "{ns} in {at}");
            assert!(lowest_of(at + 1) - lowest_of(at) <= 256.max(ns / 31), "{ns} in {at}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_counts() {
        let mut delays = Delays::default();
        assert_eq!(delays.quantile(0.5), None);
        (1..=100).for_each(|us| delays.add(us * 1000));
        let near = |share, us: u64| {
            let found = delays.quantile(share).unwrap();
            assert!(found.abs_diff(us * 1000) <= us * 40 + 256, "{share}: {found}");
        };
        near(0.5, 50);
        near(0.99, 99);
        let earlier = delays.clone();
        delays.add(5);
        assert_eq!((delays.since(&earlier).count(), delays.count()), (1, 101));
        assert_eq!(sent_at(&stamped(7, 99)), Some(99));
        assert_eq!(sent_at(&[0; 22]), None);
    }
}
