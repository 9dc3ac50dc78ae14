//! From key to slot: a hash table of buckets, each a cache line of twelve entries.
//!
//! ```text
//!  hash ─► bucket   word 0     1     2 ‥ 7
//!      │            twelve tags      twelve slots ─► head of the slot: compare the key
//!      └─► other bucket, if that one was nearly full
//! ```
//!
//! Lookups take no lock and find an entry or don't; entries never move. Whoever puts one in or takes
//! one out holds the lock of both its buckets, so no key is in twice. There are at least three times as
//! many entries as flows may be, so nearly all flows are in their first bucket, and both are full
//! next to never; then the oldest flow in them has to go.
//!
//! A tag is one byte, and 0 is no entry. The tags are compared all at once in two words, without
//! branches: those would be guessed wrong as often as not, and each only once the bucket has come
//! from memory, so that the loads of a list would wait for one another. What comes out is a
//! candidate; it may be another flow, or none at all, and its key decides.

use crate::lines::{Line, Lines};
use crate::slots::FlowSlots;
use crate::sync::{Mutex, MutexGuard, Ordering, lock};
#[cfg(loom)]
use foldhash::fast::FixedState as RandomState; // Each run has to be like the last.
#[cfg(not(loom))]
use foldhash::fast::RandomState;
use rxsteer_core::FlowWords;
use std::collections::TryReserveError;
use std::hash::{BuildHasher, Hasher};

/// Entries of a bucket: the first eight have their tags in word 0, the others in the lower half of
/// word 1.
const ENTRIES: usize = 12;
/// Where the slots begin, two in a word.
const SLOTS: usize = 2;
/// Buckets that share a lock: a flow's second bucket is another of them.
const GROUP: u64 = if cfg!(loom) { 4 } else { 16 };
/// Entries in the first bucket from which on the second one is used.
const NEARLY_FULL: usize = 10;
/// Locks, at most.
const LOCKS: usize = 1024;

/// A byte of each value in every byte of a word.
const EACH: u64 = 0x0101_0101_0101_0101;
const TOP: u64 = 0x8080_8080_8080_8080;

#[derive(Debug)]
pub(crate) struct Index {
    buckets: Lines,
    mask: u64,
    locks: Box<[Mutex<()>]>,
    hasher: RandomState,
}

/// Where a key's entry is or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hash(u64);

impl Hash {
    /// 1 to 255, from bits that pick no bucket.
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

    /// The bucket to look in first.
    #[inline(always)]
    pub(crate) fn first(&self, hash: Hash) -> &Line {
        self.buckets.line((hash.0 & self.mask) as usize)
    }

    #[inline(always)]
    fn second(&self, hash: Hash) -> &Line {
        // Another bucket of the group: the difference is 1 to 15.
        let difference = 1 + (hash.0 >> 40) % (GROUP - 1);
        self.buckets.line(((hash.0 & self.mask) ^ difference) as usize)
    }

    /// For each hash the slot that is likely the flow's, or any other.
    #[inline(always)]
    pub(crate) fn candidates(&self, hashes: &[Hash], slots: &mut [u32]) {
        let buckets: &[Line] = self.buckets.in_groups_of();
        let mask = self.mask;
        let mut loaded = 0;
        for hash in hashes {
            // ORDER: Relaxed; it is loaded for its line to come, and looked at below.
            loaded ^= buckets[(hash.0 & mask) as usize][0].load(Ordering::Relaxed);
        }
        std::hint::black_box(loaded);
        for (hash, slot) in hashes.iter().zip(slots) {
            *slot = candidate(&buckets[(hash.0 & mask) as usize], *hash);
        }
    }

    /// The slot of a key, by all entries that can be its.
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

/// The slot in a bucket that is likely the one with this hash, or any other.
#[inline(always)]
fn candidate(bucket: &Line, hash: Hash) -> u32 {
    // ORDER: Acquire; pairs with the Release in `Locked::fill`: the slot is filled in.
    let first = matches(bucket[0].load(Ordering::Acquire), hash);
    let rest = matches(bucket[1].load(Ordering::Acquire), hash);
    let entry =
        if first == 0 { 8 + (rest.trailing_zeros() >> 3) } else { first.trailing_zeros() >> 3 };
    // Without a match, entry 16: any slot will do, and this is one.
    let word = SLOTS + (entry as usize >> 1) % (ENTRIES / 2);
    (bucket[word].load(Ordering::Relaxed) >> (32 * (entry & 1))) as u32
}

/// The top bits of the bytes of `tags` that are this hash's, of the lowest one at least: bits above it
/// may be there without a match.
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

/// The slots in a bucket with their entries.
fn in_use(bucket: &Line) -> impl Iterator<Item = (usize, u32)> + use<'_> {
    let tags = tags(bucket);
    (0..ENTRIES).filter(move |at| tags[*at] != 0).map(|at| (at, slot(bucket, at)))
}

/// Puts `tag` into an entry: 0 takes it out. Under the lock.
fn set_tag(bucket: &Line, at: usize, tag: u64) {
    let (word, shift) = (&bucket[at / 8], 8 * (at % 8));
    let others = word.load(Ordering::Relaxed) & !(0xff << shift);
    // ORDER: Release; pairs with the Acquire of the lookups.
    word.store(others | tag << shift, Ordering::Release);
}

/// An entry that is free, as long as its bucket is locked.
pub(crate) struct Place<'a> {
    bucket: &'a Line,
    at: usize,
}

impl Locked<'_> {
    fn buckets(&self) -> [&Line; 2] {
        [self.index.first(self.hash), self.index.second(self.hash)]
    }

    /// A place for an entry; `None` when both buckets are full.
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

    /// Puts a slot in a place.
    pub(crate) fn fill(&self, Place { bucket, at }: Place<'_>, slot: u32) {
        let (word, shift) = (&bucket[SLOTS + at / 2], 32 * (at & 1));
        // ORDER: Relaxed; under the lock. Lookups read it after the tag.
        let other = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(other | u64::from(slot) << shift, Ordering::Relaxed);
        set_tag(bucket, at, self.hash.tag());
    }

    /// Takes a slot out; it may not be in. Lookups that find it still are waited for.
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

    /// Packets of so many flows that are all to be in the same two buckets.
    fn crowd(table: &FlowTable, flows: usize) -> Vec<FlowPacket> {
        let packet = |number: u32| {
            let mut key = FlowKey { ip_version: 4, ..FlowKey::default() };
            key.src[..4].copy_from_slice(&number.to_be_bytes());
            FlowPacket { flow: key.into(), time_ns: number.into(), bytes: 60, tcp_flags: 0 }
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

    /// The flow whose last packet is the oldest goes, however many places the table has.
    #[test]
    fn two_full_buckets_make_place() {
        let table = table();
        let mut writer = table.writer(CpuId::new(0).unwrap()).unwrap();
        let mut packets = crowd(&table, 2 * ENTRIES + 3);
        let more = packets.split_off(2 * ENTRIES);
        assert_eq!(writer.update(&packets), packets.len());
        assert_eq!(table.counts().evicted, 0, "all are in");
        // The first flow is not the oldest any more.
        assert_eq!(writer.update(&[FlowPacket { time_ns: u64::MAX, ..packets[0] }]), 1);
        assert_eq!(writer.update(&more), more.len());
        let mut gone = Vec::new();
        table.collect(|record| gone.push((record.key, record.end)));
        let oldest = packets[1..4].iter().map(|packet| (packet.flow.key(), Some(FlowEnd::Evicted)));
        assert!(gone.into_iter().eq(oldest));
        let counts = table.counts();
        assert_eq!((counts.live, counts.evicted, counts.refused), (24, 3, 0));
        assert!(more.iter().all(|packet| table.get(&packet.flow.key()).is_some()));
        // No slot was claimed in vain: whoever goes through all slots could have ended such a flow.
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
}
