//! Buckets: an indirection table between the hash and the CPUs, like the RSS table in a NIC. The load decides which CPU a
//! bucket belongs to, and buckets move when the load is uneven.
//!
//! ```text
//!   hash ──► upper bits ──► bucket │ 0 │ 1 │ 2 │ … │ 1023 │        a power of two
//!                           CPU    │ 0 │ 0 │ 3 │ … │  3   │  ◄──── moves, once in an interval (rebalance.rs)
//!                           count  │ 9 │ 7 │ 0 │ … │ 5021 │  ────► load, and the flow that fills the bucket
//! ```
//!
//! At the start the table gives each hash the same CPU as `rps`, except where the number of CPUs does not divide the
//! number of buckets. A table belongs to one [plan](crate::Plan), and a move makes a new plan. Between moves a flow's CPU
//! can't change, so `balance` alone keeps no flow table, and costs what `rps` costs plus one count. A move is a change of
//! rules: its [transition](crate::transition) holds each flow of a moved bucket on its CPU until its earlier packets are
//! completed. After `rfs` or `sparse`, the [order guard](crate::order) does that.
//!
//! Each producer counts the packets of each bucket in a separate row. It counts targets, as the rules choose them: the
//! offered load, including packets that get no room.
//!
//! **Large flows.** Every [`SAMPLE`]-th packet of a bucket votes by its hash, for or against the flow that the bucket's
//! row holds. A flow without votes is replaced. This is the majority vote of Boyer and Moore ("MJRTY: a fast majority
//! vote algorithm", 1981), which equals the frequency sketch of Misra and Gries (1982) with one counter. So a flow with
//! more than half of a bucket's packets stays in the row. Votes are limited to [`MAX_VOTES`], so that a large flow that
//! ends is forgotten within `MAX_VOTES × SAMPLE` packets. The memory is 12 bytes for each bucket and producer, for any
//! number of flows.
//!
//! Sources of the table: RSS (Documentation/networking/scaling.rst), and "RSS++: load and state-aware receive side
//! scaling" (Barbette et al., CoNEXT 2019), which moves buckets of the NIC's table. [`crate::rebalance`] has the
//! sources of the moves.

use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::sync::{AtomicU32, Ordering};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The smallest and the largest number of buckets.
pub const BUCKETS: [u16; 2] = [256, 4096];

/// The shortest and the longest interval, in milliseconds.
pub const INTERVAL_MS: [u16; 2] = [10, 10_000];

/// The smallest and the largest threshold, in percent.
pub const THRESHOLD_PERCENT: [u16; 2] = [1, 100];

/// One of this many packets of a bucket votes for its flow.
pub const SAMPLE: u32 = 8;

/// The largest number of votes of a flow.
pub const MAX_VOTES: u32 = 32;

/// With this many votes a flow counts as the bucket's large flow.
pub const LARGE_VOTES: u32 = 16;

/// The settings of `balance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The number of buckets: a power of two between the [limits](BUCKETS).
    pub buckets: u16,
    /// The interval between moves, in milliseconds.
    pub interval_ms: u16,
    /// How far a CPU's load may be above its share before buckets leave the CPU, in percent of the share.
    pub threshold_percent: u16,
    /// The largest number of buckets that move in an interval.
    pub moves: u16,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance::DEFAULT
    }
}

impl Balance {
    /// The default settings.
    pub const DEFAULT: Balance =
        Balance { buckets: 1024, interval_ms: 100, threshold_percent: 5, moves: 64 };

    /// The names of the settings, in the order in which they are written.
    const SETTINGS: [&'static str; 4] = ["buckets", "interval", "threshold", "moves"];

    /// Parses one setting, `name=value`. `None` if this policy has no setting of this name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), &'static str>> {
        let in_range = |value: &str, [least, most]: [u16; 2]| {
            value.parse::<u16>().ok().filter(|number| (least..=most).contains(number))
        };
        let (setting, read, why) = match name {
            "buckets" => {
                let read = in_range(value, BUCKETS).filter(|buckets| buckets.is_power_of_two());
                (&mut self.buckets, read, "buckets must be a power of two from 256 to 4096")
            }
            "interval" => {
                let millis = value.strip_suffix("ms");
                let read = match (millis, value.strip_suffix('s')) {
                    (Some(millis), _) => in_range(millis, INTERVAL_MS),
                    (None, Some(seconds)) => {
                        in_range(seconds, [1, INTERVAL_MS[1] / 1000]).map(|s| s * 1000)
                    }
                    (None, None) => None,
                };
                (&mut self.interval_ms, read, "interval must be 10ms to 10s, e.g. 100ms")
            }
            "threshold" => {
                let percent = value.strip_suffix('%').unwrap_or(value);
                let read = in_range(percent, THRESHOLD_PERCENT);
                (&mut self.threshold_percent, read, "threshold must be 1% to 100%")
            }
            "moves" => {
                let read = in_range(value, [1, BUCKETS[1]]);
                (&mut self.moves, read, "moves must be 1 to 4096 buckets in an interval")
            }
            _ => return None,
        };
        Some(read.map(|read| *setting = read).ok_or(why))
    }

    /// Whether all settings are in range.
    pub(crate) fn is_valid(&self) -> bool {
        let in_range = |number: u16, [least, most]: [u16; 2]| (least..=most).contains(&number);
        in_range(self.buckets, BUCKETS)
            && self.buckets.is_power_of_two()
            && in_range(self.interval_ms, INTERVAL_MS)
            && in_range(self.threshold_percent, THRESHOLD_PERCENT)
            && in_range(self.moves, [1, BUCKETS[1]])
    }

    /// The table at the start: the CPUs `cpus` in equal parts, in the order of the hash.
    ///
    /// # Panics
    /// If `cpus` is empty.
    #[must_use]
    pub fn first_table(&self, cpus: &[CpuId]) -> Box<[CpuId]> {
        let buckets = usize::from(self.buckets);
        (0..buckets).map(|bucket| cpus[bucket * cpus.len() / buckets]).collect()
    }

    /// The table after a change of CPUs or settings. If `old` has as many buckets, it is kept, and the buckets of CPUs
    /// that are not in `cpus` are spread over those that are, fewest buckets first.
    ///
    /// # Panics
    /// If `cpus` is empty.
    #[must_use]
    pub fn next_table(&self, old: Option<&[CpuId]>, cpus: &[CpuId]) -> Box<[CpuId]> {
        let Some(old) = old.filter(|old| old.len() == usize::from(self.buckets)) else {
            return self.first_table(cpus);
        };
        let position = |cpu: CpuId| cpus.iter().position(|usable| *usable == cpu);
        let mut held: Vec<usize> = cpus.iter().map(|_| 0).collect();
        for cpu in old.iter().filter_map(|cpu| position(*cpu)) {
            held[cpu] += 1;
        }
        let mut table: Box<[CpuId]> = old.into();
        for entry in table.iter_mut().filter(|entry| position(**entry).is_none()) {
            if let Some((least, held)) = held.iter_mut().enumerate().min_by_key(|(_, held)| **held)
            {
                *entry = cpus[least];
                *held += 1;
            }
        }
        table
    }
}

/// Writes the settings that differ from the defaults, each after a comma: `,buckets=256,interval=1s`.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Balance::default();
        let values = [
            (self.buckets, default.buckets, ""),
            (self.interval_ms, default.interval_ms, "ms"),
            (self.threshold_percent, default.threshold_percent, "%"),
            (self.moves, default.moves, ""),
        ];
        for (name, (value, default, unit)) in Self::SETTINGS.into_iter().zip(values) {
            match (value != default, unit) {
                (false, _) => {}
                (true, "ms") if value.is_multiple_of(1000) => {
                    write!(f, ",{name}={}s", value / 1000)?;
                }
                (true, unit) => write!(f, ",{name}={value}{unit}")?,
            }
        }
        Ok(())
    }
}

/// The counts of one producer in one bucket.
#[derive(Debug, Default)]
#[repr(C)]
struct Counter {
    packets: AtomicU32,
    /// The flow with the most votes, and its votes.
    flow: AtomicU32,
    votes: AtomicU32,
}

/// The packets of all buckets, in a row for each producer. After them, by CPU, each row has the packets that another rule
/// sent there. Only the producer writes its row.
#[derive(Debug)]
pub(crate) struct BucketCounts {
    counters: Box<[Counter]>,
    buckets: usize,
    row: usize,
}

/// Counters are equal only to themselves.
impl PartialEq for BucketCounts {
    fn eq(&self, other: &BucketCounts) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for BucketCounts {}

/// The buckets of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    /// The CPU of each bucket.
    pub(crate) table: Box<[CpuId]>,
    pub(crate) counts: Arc<BucketCounts>,
}

impl Buckets {
    /// The buckets of a plan over `cpus`. It keeps the buckets of the former plan as far as possible. If there is no CPU,
    /// the table does not change.
    pub(crate) fn next(
        balance: &Balance,
        cpus: &[CpuId],
        old: Option<&Buckets>,
        highest: CpuId,
        producers: u16,
    ) -> Buckets {
        let old = old.filter(|old| old.table.len() == usize::from(balance.buckets));
        let counts = match old {
            Some(old) => old.counts.clone(),
            None => Arc::new(BucketCounts::new(balance.buckets, highest, producers)),
        };
        let table = match old {
            Some(old) if cpus.is_empty() => old.table.clone(),
            None if cpus.is_empty() => vec![CpuId::NONE; usize::from(balance.buckets)].into(),
            _ => balance.next_table(old.map(|old| &*old.table), cpus),
        };
        Buckets { table, counts }
    }
}

impl BucketCounts {
    /// Counters for CPUs up to `highest`.
    pub(crate) fn new(buckets: u16, highest: CpuId, producers: u16) -> BucketCounts {
        let buckets = usize::from(buckets);
        let row = buckets + highest.index() + 1;
        let counters = (0..row * usize::from(producers.max(1))).map(|_| Counter::default());
        BucketCounts { counters: counters.collect(), buckets, row }
    }

    /// The counters of a producer.
    #[inline(always)]
    pub(crate) fn row(&self, producer: u16) -> Row<'_> {
        let first = usize::from(producer) * self.row;
        let counters = self.counters.get(first..first + self.row).unwrap_or_default();
        Row { counters, buckets: self.buckets }
    }

    /// Adds up the counts of all producers.
    pub(crate) fn read(&self) -> Counted {
        let mut counted = Counted::new(self.buckets, self.row - self.buckets);
        for row in self.counters.chunks(self.row) {
            for (bucket, counter) in row.iter().enumerate() {
                let [packets, flow, votes] = [&counter.packets, &counter.flow, &counter.votes]
                    .map(|number| number.load(Ordering::Relaxed));
                counted.add(bucket, packets, flow, votes);
            }
        }
        counted
    }
}

/// Counts the packets of one producer by bucket, under policies with buckets. A trait, so that loops without buckets
/// have no check for each packet: `cargo xtask bench --filter decide` shows its cost.
pub(crate) trait CountPackets: Copy {
    /// Counts a packet of `bucket`.
    fn in_bucket(self, bucket: usize, hash: FlowHash);

    /// Counts a packet that a slot, a desired CPU or a rule sends to `cpu`.
    fn elsewhere(self, cpu: CpuId);
}

/// There are no buckets, so nothing is counted.
#[derive(Clone, Copy)]
pub(crate) struct NoBuckets;

impl CountPackets for NoBuckets {
    #[inline(always)]
    fn in_bucket(self, _bucket: usize, _hash: FlowHash) {}

    #[inline(always)]
    fn elsewhere(self, _cpu: CpuId) {}
}

/// There may be buckets: for code that runs under every policy.
impl CountPackets for Option<Row<'_>> {
    #[inline(always)]
    fn in_bucket(self, bucket: usize, hash: FlowHash) {
        if let Some(row) = self {
            row.in_bucket(bucket, hash);
        }
    }

    #[inline(always)]
    fn elsewhere(self, cpu: CpuId) {
        if let Some(row) = self {
            row.elsewhere(cpu);
        }
    }
}

/// The counters of one producer.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// One for each bucket, then one for each CPU.
    counters: &'a [Counter],
    buckets: usize,
}

impl CountPackets for Row<'_> {
    #[inline(always)]
    fn in_bucket(self, bucket: usize, hash: FlowHash) {
        let Some(counter) = self.counters.get(bucket) else { return };
        // ORDER: Relaxed, here and below: one thread writes it, and each number carries all of the information.
        let packets = counter.packets.load(Ordering::Relaxed).wrapping_add(1);
        counter.packets.store(packets, Ordering::Relaxed);
        if packets.is_multiple_of(SAMPLE) {
            counter.vote(hash);
        }
    }

    #[inline(always)]
    fn elsewhere(self, cpu: CpuId) {
        self.in_bucket(self.buckets + cpu.index(), FlowHash::NONE);
    }
}

impl Counter {
    #[inline(never)]
    #[cold]
    fn vote(&self, hash: FlowHash) {
        let (flow, votes) = (self.flow.load(Ordering::Relaxed), self.votes.load(Ordering::Relaxed));
        if votes == 0 {
            self.flow.store(hash.get(), Ordering::Relaxed);
        }
        let votes =
            if flow == hash.get() || votes == 0 { MAX_VOTES.min(votes + 1) } else { votes - 1 };
        self.votes.store(votes, Ordering::Relaxed);
    }
}

/// Counts by bucket, over all producers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets since the start, modulo 2³²: those of each bucket, and after them, by CPU id, those that another rule sent
    /// there.
    pub packets: Vec<u32>,
    /// The bucket's large flow; [`FlowHash::NONE`] if there is none.
    pub large: Vec<FlowHash>,
    votes: Vec<u32>,
}

impl Counted {
    /// No packets in `buckets` buckets and on `cpus` CPUs.
    #[must_use]
    pub fn new(buckets: usize, cpus: usize) -> Counted {
        Counted {
            packets: vec![0; buckets + cpus],
            large: vec![FlowHash::NONE; buckets],
            votes: vec![LARGE_VOTES - 1; buckets],
        }
    }

    /// Adds a producer's counts for `bucket`, or for a CPU after the buckets: packets, the flow with the most votes, and
    /// its votes.
    pub fn add(&mut self, bucket: usize, packets: u32, flow: u32, votes: u32) {
        self.packets[bucket] = self.packets[bucket].wrapping_add(packets);
        if bucket < self.votes.len() && votes > self.votes[bucket] {
            self.votes[bucket] = votes;
            self.large[bucket] = FlowHash::from_raw(flow);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cpu::CpuSet;

    fn cpus(ids: &str) -> Vec<CpuId> {
        ids.parse::<CpuSet>().unwrap().iter().collect()
    }

    #[test]
    fn first_table_is_that_of_rps() {
        let table = Balance::default().first_table(&cpus("1,4,5,7"));
        let map = crate::rps::RpsMap::new(&"1,4,5,7".parse().unwrap());
        for hash in (0..u32::MAX - 9_999_999).step_by(9_999_999) {
            let bucket = crate::slot::upper_bits(hash, 10) as usize;
            assert_eq!(table[bucket], map.cpu(FlowHash::from_raw(hash)), "{hash:x}");
        }
    }

    #[test]
    fn buckets_of_a_cpu_that_goes_are_spread_and_the_others_stay() {
        let balance = Balance { buckets: 256, ..Balance::default() };
        let before = balance.first_table(&cpus("0-3"));
        let after = balance.next_table(Some(&before), &cpus("0-2,9"));
        let held =
            |table: &[CpuId], cpu: u16| table.iter().filter(|entry| entry.get() == cpu).count();
        assert_eq!([0, 1, 2, 3, 9].map(|cpu| held(&after, cpu)), [64, 64, 64, 0, 64]);
        assert!(before.iter().zip(&after).all(|(a, b)| a == b || a.get() == 3));
        let other_size = Balance::default().next_table(Some(&after), &cpus("0-1"));
        assert_eq!([0, 1].map(|cpu| held(&other_size, cpu)), [512, 512]);
    }

    #[test]
    fn large_flow_is_found_and_forgotten() {
        let counts = BucketCounts::new(256, CpuId::new(3).unwrap(), 2);
        let large = || counts.read().large[7];
        let send = |n: u32, flow: &dyn Fn(u32) -> u32| {
            (0..n).for_each(|n| counts.row(1).in_bucket(7, FlowHash::from_raw(flow(n))));
        };
        send(4000, &|n| n + 1000);
        assert_eq!(large(), FlowHash::NONE, "no flow of many small ones");
        send(1000, &|n| if n % 5 < 3 { 9 } else { n + 1000 });
        assert_eq!(large(), FlowHash::from_raw(9), "it has three of five packets");
        send(MAX_VOTES * SAMPLE, &|n| n + 1000);
        assert_eq!(large(), FlowHash::NONE);
        assert_eq!(counts.read().packets[7], 4000 + 1000 + MAX_VOTES * SAMPLE);
    }
}
