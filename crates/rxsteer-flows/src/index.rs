//! From key to slot: a hash table of buckets, each a cache line of eight entries.
//!
//! ```text
//!  hash ─► bucket ─► eight of (tag, slot) ─► head of the slot: compare the key
//!      └─► other bucket, if that one was nearly full
//! ```
//!
//! Lookups take no lock and find an entry or don't; entries never move. Whoever puts one in or takes
//! one out holds the lock of both its buckets, so no key is in twice. There are at least four times as
//! many entries as flows may be, so nearly all flows are in their first bucket, and both are full
//! next to never; then the oldest flow in them has to go.

use crate::lines::{Line, Lines, WORDS};
use crate::slots::{FlowSlots, KeyWords, LIVE};
use crate::sync::{Mutex, MutexGuard, Ordering, lock};
use foldhash::quality::RandomState;
use std::collections::TryReserveError;
use std::hash::{BuildHasher, Hasher};

/// Buckets that share a lock: a flow's second bucket is another of them.
const GROUP: u64 = 16;
/// Entries in the first bucket from which on the second one is used.
const NEARLY_FULL: usize = 6;
/// Locks, at most.
const LOCKS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Index {
    buckets: Lines,
    mask: u64,
    locks: Box<[Mutex<()>]>,
    hasher: RandomState,
}

/// Where a key's entry is or would be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hash(u64);

impl Hash {
    /// The upper half of an entry; never 0.
    #[inline(always)]
    fn tag(self) -> u64 {
        self.0 >> 32 | 1
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
        let buckets = (u64::from(max_flows) * 4 / WORDS as u64).next_power_of_two().max(GROUP);
        let locks = ((buckets / GROUP) as usize).min(LOCKS);
        Ok(Index {
            buckets: Lines::new(buckets as usize)?,
            mask: buckets - 1,
            locks: (0..locks).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::default(),
        })
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &KeyWords) -> Hash {
        let mut hasher = self.hasher.build_hasher();
        for word in key {
            hasher.write_u64(*word);
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

    /// The slot in a bucket that has this hash's tag; that its key is the same is likely.
    #[inline(always)]
    pub(crate) fn candidate(bucket: &Line, hash: Hash) -> Option<u32> {
        for word in bucket {
            // ORDER: Acquire; pairs with the Release in `Locked::insert`: the slot is filled in.
            let entry = word.load(Ordering::Acquire);
            if entry >> 32 == hash.tag() {
                return Some(entry as u32);
            }
        }
        None
    }

    /// The slot of a key, by all entries that can be its.
    pub(crate) fn find(&self, hash: Hash, key: &KeyWords, slots: &FlowSlots) -> Option<u32> {
        let entries = self.first(hash).iter().chain(self.second(hash));
        entries
            // ORDER: Acquire, as above.
            .map(|word| word.load(Ordering::Acquire))
            .filter(|entry| entry >> 32 == hash.tag())
            .map(|entry| entry as u32)
            .find(|slot| slots.has_key(*slot, key) && slots.state(*slot).1 == LIVE)
    }

    pub(crate) fn lock(&self, hash: Hash) -> Locked<'_> {
        let group = (hash.0 & self.mask) / GROUP;
        let lock = lock(&self.locks[(group as usize) & (self.locks.len() - 1)]);
        Locked { index: self, hash, _lock: lock }
    }
}

impl Locked<'_> {
    /// Puts a slot in; `false` when there is no place in either bucket.
    #[must_use]
    pub(crate) fn insert(&self, slot: u32) -> bool {
        let (first, second) = (self.index.first(self.hash), self.index.second(self.hash));
        let in_use = first.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count();
        let order = if in_use < NEARLY_FULL { [first, second] } else { [second, first] };
        // ORDER: Relaxed; under the lock.
        let free = order.into_iter().flatten().find(|word| word.load(Ordering::Relaxed) == 0);
        let Some(free) = free else { return false };
        // ORDER: Release; pairs with the Acquire of the lookups.
        free.store(self.hash.tag() << 32 | u64::from(slot), Ordering::Release);
        true
    }

    /// Takes a slot out; it may not be in.
    pub(crate) fn remove(&self, slot: u32) {
        let entry = self.hash.tag() << 32 | u64::from(slot);
        let (first, second) = (self.index.first(self.hash), self.index.second(self.hash));
        // ORDER: Relaxed; under the lock. Lookups that find the slot still are waited for.
        let found = first.iter().chain(second).find(|word| word.load(Ordering::Relaxed) == entry);
        if let Some(word) = found {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The slots in both buckets.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        let (first, second) = (self.index.first(self.hash), self.index.second(self.hash));
        let entries = first.iter().chain(second).map(|word| word.load(Ordering::Relaxed));
        entries.filter(|entry| *entry != 0).map(|entry| entry as u32)
    }
}
