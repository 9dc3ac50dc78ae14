//! Counts that one thread writes while others look at them.

use rxsteer_core::{DropReason, Drops};
use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread writes and any thread may read.
///
/// What the writer did before it counted is visible to a thread that reads the count. So if a packet is counted where
/// it is queued and then where it is processed, a thread that reads the second count first never finds more packets
/// processed than queued.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The present count.
    #[must_use]
    pub fn get(&self) -> u64 {
        // ORDER: Acquire; pairs with the Release in `set`.
        self.0.load(Ordering::Acquire)
    }

    /// Counts `more`.
    #[inline(always)]
    pub(crate) fn add(&self, more: u64) {
        // ORDER: Relaxed; this thread wrote the value. There is one writer, so nothing is lost.
        self.set(self.0.load(Ordering::Relaxed) + more);
    }

    /// Replaces the count.
    #[inline(always)]
    pub(crate) fn set(&self, count: u64) {
        // ORDER: Release; pairs with the Acquire in `get`.
        self.0.store(count, Ordering::Release);
    }
}

impl From<u64> for Count {
    fn from(count: u64) -> Count {
        Count(count.into())
    }
}

/// Packets dropped by reason, each a [`Count`].
#[derive(Debug, Default)]
pub struct DropCounts([Count; DropReason::ALL.len()]);

impl DropCounts {
    /// The present counts.
    #[must_use]
    pub fn get(&self) -> Drops {
        let mut drops = Drops::default();
        for (reason, count) in DropReason::ALL.into_iter().zip(&self.0) {
            drops.add(reason, count.get());
        }
        drops
    }

    /// Counts `packets` for `reason`.
    pub(crate) fn add(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].add(packets);
    }
}
