//! The mapping from key to slot: a hash table of buckets, each a cache line of twelve entries.
//!
//! ```text
//!  hash ─► bucket   word 0     1     2 ‥ 7
//!      │            twelve tags      twelve slots ─► head of the slot: compare the key
//!      └─► other bucket, if that one was nearly full
//! ```
//!
//! Lookups take no lock, and entries never move. A thread that inserts or removes an entry holds the lock of both
//! its buckets, so no key occurs twice. There are at least three times as many entries as the maximum number of
//! flows. So nearly all flows are in their first bucket, and both buckets are almost never full. If both are full,
//! the oldest flow in them is evicted.
//!
//! A tag is one byte; 0 means no entry. All tags are compared at once in two words, without branches. Such
//! branches would be mispredicted about half of the time, and each misprediction would be found only after the
//! bucket has arrived from memory, so the loads of a list would wait for one another. The result is a candidate:
//! it may be another flow, or no flow at all. The comparison of its key decides.

use crate::lines::{Line, Lines};
use crate::slots::FlowSlots;
use crate::sync::{Mutex, MutexGuard, Ordering, lock};
#[cfg(loom)]
use foldhash::quality::FixedState as RandomState; // Each run has to be like the last.
#[cfg(not(loom))]
use foldhash::quality::RandomState;
use rxsteer_core::FlowWords;
use std::collections::TryReserveError;
use std::hash::{BuildHasher, Hasher};

/// Entries of a bucket. The tags of the first eight are in word 0, those of the others in the lower half of word
/// 1.
const ENTRIES: usize = 12;
/// The word where the slots begin, two to a word.
const SLOTS: usize = 2;
/// Buckets that share a lock. A flow's second bucket is another bucket of the same group.
const GROUP: u64 = if cfg!(loom) { 4 } else { 16 };
/// The second bucket is used when the first one holds this many entries.
const NEARLY_FULL: usize = 10;
/// The largest number of locks.
const LOCKS: usize = 1024;

/// The value 1 in every byte. Multiplied by a byte, it repeats that byte.
const EACH: u64 = 0x0101_0101_0101_0101;
const TOP: u64 = 0x8080_8080_8080_8080;

#[derive(Debug)]
pub(crate) struct Index {
    buckets: Lines,
    mask: u64,
    locks: Box<[Mutex<()>]>,
    /// The low bits of the hash select the bucket. `foldhash::fast` does not mix them enough: with some of its global
    /// seeds, all flows of a range of ports are in one bucket.
    hasher: RandomState,
}

/// The hash of a key, which gives the place of its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hash(u64);

impl Hash {
    /// The tag, 1 to 255, from bits that do not select the bucket.
    #[inline(always)]
    fn tag(self) -> u64 {
        (self.0 >> 56).max(1)
    }
}

/// Both buckets of a key, locked.
pub(crate) struct Locked<'a> {
    index: &'a Index,
    hash: Hash,
    _lock: MutexGuard<'a, ()>,
}

impl Index {
    pub(crate) fn new(max_flows: u32) -> Result<Index, TryReserveError> {
        let buckets = (u64::from(max_flows) * 3 / ENTRIES as u64).next_power_of_two().max(GROUP);
        let locks = ((buckets / GROUP) as usize).min(LOCKS);
        Ok(Index {
            buckets: Lines::new(buckets as usize)?,
            mask: buckets - 1,
            locks: (0..locks).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::default(),
        })
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &FlowWords) -> Hash {
        let mut hasher = self.hasher.build_hasher();
        for word in key.0 {
            hasher.write_u64(word);
        }
        Hash(hasher.finish())
    }

    /// The bucket to search first.
    #[inline(always)]
    pub(crate) fn first(&self, hash: Hash) -> &Line {
        self.buckets.line((hash.0 & self.mask) as usize)
    }

    #[inline(always)]
    fn second(&self, hash: Hash) -> &Line {
        // Another bucket of the same group: the difference is 1 to 15.
        let difference = 1 + (hash.0 >> 40) % (GROUP - 1);
        self.buckets.line(((hash.0 & self.mask) ^ difference) as usize)
    }

    /// For each hash, the slot that probably belongs to the flow, or any other slot.
    #[inline(always)]
    pub(crate) fn candidates(&self, hashes: &[Hash], slots: &mut [u32]) {
        let buckets: &[Line] = self.buckets.in_groups_of();
        let mask = self.mask;
        let mut loaded = 0;
        for hash in hashes {
            // ORDER: Relaxed; this only loads the line, which is read below.
            loaded ^= buckets[(hash.0 & mask) as usize][0].load(Ordering::Relaxed);
        }
        std::hint::black_box(loaded);
        for (hash, slot) in hashes.iter().zip(slots) {
            *slot = candidate(&buckets[(hash.0 & mask) as usize], *hash);
        }
    }

    /// The slot of a key, searched among all entries with its tag.
    #[inline(never)]
    pub(crate) fn find(&self, hash: Hash, key: &FlowWords, slots: &FlowSlots) -> Option<u32> {
        let buckets = [self.first(hash), self.second(hash)];
        let candidates = buckets.into_iter().flat_map(|bucket| {
            let tags = tags(bucket);
            (0..ENTRIES).filter(move |at| tags[*at] == hash.tag() as u8).map(|at| slot(bucket, at))
        });
        candidates.into_iter().find(|slot| slots.is_live_with_key(*slot, key))
    }

    pub(crate) fn lock(&self, hash: Hash) -> Locked<'_> {
        let group = (hash.0 & self.mask) / GROUP;
        let lock = lock(&self.locks[(group as usize) & (self.locks.len() - 1)]);
        Locked { index: self, hash, _lock: lock }
    }
}

/// The slot in a bucket that probably belongs to this hash, or any other slot.
#[inline(always)]
fn candidate(bucket: &Line, hash: Hash) -> u32 {
    // ORDER: Acquire; pairs with the Release in `Locked::fill`: the slot is filled in.
    let first = matches(bucket[0].load(Ordering::Acquire), hash);
    let rest = matches(bucket[1].load(Ordering::Acquire), hash);
    let entry =
        if first == 0 { 8 + (rest.trailing_zeros() >> 3) } else { first.trailing_zeros() >> 3 };
    // Without a match the entry is 16. Any slot is acceptable then, and this gives one.
    let word = SLOTS + (entry as usize >> 1) % (ENTRIES / 2);
    (bucket[word].load(Ordering::Relaxed) >> (32 * (entry & 1))) as u32
}

/// The top bits of those bytes of `tags` that equal this hash's tag. Only the lowest bit is reliable: higher bits
/// may be set without a match.
#[inline(always)]
fn matches(tags: u64, hash: Hash) -> u64 {
    let differ = tags ^ (hash.tag() * EACH);
    differ.wrapping_sub(EACH) & !differ & TOP
}

fn tags(bucket: &Line) -> [u8; 16] {
    // ORDER: Acquire; pairs with the Release in `Locked::fill`.
    let [first, rest] = [0, 1].map(|word: usize| bucket[word].load(Ordering::Acquire));
    (u128::from(first) | u128::from(rest) << 64).to_le_bytes()
}

fn slot(bucket: &Line, at: usize) -> u32 {
    // ORDER: Relaxed; read after the tag, or under the lock.
    (bucket[SLOTS + at / 2].load(Ordering::Relaxed) >> (32 * (at & 1))) as u32
}

/// The entries of a bucket that are in use, with their slots.
fn in_use(bucket: &Line) -> impl Iterator<Item = (usize, u32)> + use<'_> {
    let tags = tags(bucket);
    (0..ENTRIES).filter(move |at| tags[*at] != 0).map(|at| (at, slot(bucket, at)))
}

/// Sets the tag of an entry; 0 removes the entry. Called under the lock.
fn set_tag(bucket: &Line, at: usize, tag: u64) {
    let (word, shift) = (&bucket[at / 8], 8 * (at % 8));
    let others = word.load(Ordering::Relaxed) & !(0xff << shift);
    // ORDER: Release; pairs with the Acquire of the lookups.
    word.store(others | tag << shift, Ordering::Release);
}

/// A free entry. It stays free while its bucket is locked.
pub(crate) struct Place<'a> {
    bucket: &'a Line,
    at: usize,
}

impl Locked<'_> {
    fn buckets(&self) -> [&Line; 2] {
        [self.index.first(self.hash), self.index.second(self.hash)]
    }

    /// A free entry; `None` when both buckets are full.
    pub(crate) fn place(&self) -> Option<Place<'_>> {
        let [first, second] = self.buckets();
        let order =
            if in_use(first).count() < NEARLY_FULL { [first, second] } else { [second, first] };
        order.into_iter().find_map(|bucket| {
            let tags = tags(bucket);
            let at = (0..ENTRIES).find(|at| tags[*at] == 0)?;
            Some(Place { bucket, at })
        })
    }

    /// Writes a slot into a free entry.
    pub(crate) fn fill(&self, Place { bucket, at }: Place<'_>, slot: u32) {
        let (word, shift) = (&bucket[SLOTS + at / 2], 32 * (at & 1));
        // ORDER: Relaxed; under the lock. Lookups read the slot after the tag.
        let other = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(other | u64::from(slot) << shift, Ordering::Relaxed);
        set_tag(bucket, at, self.hash.tag());
    }

    /// Removes a slot, which may be absent. The grace period covers lookups that still find it.
    pub(crate) fn remove(&self, slot: u32) {
        for bucket in self.buckets() {
            let found = in_use(bucket).find(|(_, of)| *of == slot);
            if let Some((at, _)) = found {
                set_tag(bucket, at, 0);
            }
        }
    }

    /// The slots in both buckets.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.buckets().into_iter().flat_map(in_use).map(|(_, slot)| slot)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{FlowEnd, FlowPacket, FlowTable, FlowTableConfig};
    use rxsteer_core::{CpuId, FlowKey};
    use std::sync::Arc;

    /// Packets of `flows` flows that all belong to the same two buckets.
    fn crowd(table: &FlowTable, flows: usize) -> Vec<FlowPacket> {
        let packet = |number: u32| {
            let mut key = FlowKey { ip_version: 4, ..FlowKey::default() };
            key.src[..4].copy_from_slice(&number.to_be_bytes());
            FlowPacket {
                flow: key.into(),
                time_ns: number.into(),
                bytes: 60,
                ..FlowPacket::default()
            }
        };
        let buckets = |packet: &FlowPacket| {
            let hash = table.index.hash(&table.mask.apply(&packet.flow));
            let mut two = [table.index.first(hash), table.index.second(hash)].map(|b| b.as_ptr());
            two.sort();
            two
        };
        let first = buckets(&packet(0));
        (0..).map(packet).filter(|packet| buckets(packet) == first).take(flows).collect()
    }

    fn table() -> Arc<FlowTable> {
        FlowTable::new(&FlowTableConfig::new(100)).unwrap()
    }

    /// The flow with the oldest last packet is evicted, however many entries the table has.
    #[test]
    fn two_full_buckets_make_place() {
        let table = table();
        let mut writer = table.writer(CpuId::new(0).unwrap()).unwrap();
        let mut packets = crowd(&table, 2 * ENTRIES + 3);
        let more = packets.split_off(2 * ENTRIES);
        assert_eq!(writer.update(&packets), packets.len());
        assert_eq!(table.counts().evicted, 0, "all are in");
        // This makes the first flow no longer the oldest.
        assert_eq!(writer.update(&[FlowPacket { time_ns: u64::MAX, ..packets[0] }]), 1);
        assert_eq!(writer.update(&more), more.len());
        let mut gone = Vec::new();
        table.collect(|record| gone.push((record.key, record.end)));
        let oldest = packets[1..4].iter().map(|packet| (packet.flow.key(), Some(FlowEnd::Evicted)));
        assert!(gone.into_iter().eq(oldest));
        let counts = table.counts();
        assert_eq!((counts.live, counts.evicted, counts.refused), (24, 3, 0));
        assert!(more.iter().all(|packet| table.get(&packet.flow.key()).is_some()));
        // No slot was claimed and then left unused: a thread that visits all slots could have ended such a flow.
        assert!((0..24 + 3).all(|slot| table.slots.state(slot).0 == 1), "one claim, one stamp");
    }

    #[test]
    fn second_bucket_is_another_of_the_group() {
        let index = Index::new(1 << 12).unwrap();
        for number in 0..1000 {
            let hash = index.hash(&FlowWords([number; 5]));
            let at = |bucket: &Line| bucket.as_ptr() as usize / size_of::<Line>();
            let base = at(index.buckets.line(0));
            let (first, second) = (at(index.first(hash)) - base, at(index.second(hash)) - base);
            assert_ne!(first, second);
            assert_eq!(first / GROUP as usize, second / GROUP as usize);
        }
    }

    /// Flows that differ only in some bits of a port are spread over the buckets, with any seeds of the table.
    #[test]
    fn consecutive_ports_are_spread() {
        for _ in 0..20_000 {
            let index = Index::new(41).unwrap();
            let mut flows = [0; GROUP as usize];
            for port in 0..80 {
                let key = FlowKey { ip_version: 4, src_port: port, ..FlowKey::default() };
                flows[(index.hash(&key.into()).0 & index.mask) as usize] += 1;
            }
            // The mean is 5. Of a random spread, one in more than 10^15 has 32.
            assert!(flows.iter().all(|flows| *flows < 32), "{flows:?}");
        }
    }
}
