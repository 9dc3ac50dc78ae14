//! Detects when no thread uses a flow any more. Lookups take no lock, so a CPU may hold the slot of a flow that another
//! thread is taking out of the table.
//!
//! ```text
//!  writer     enter ── finds, counts ── leave        enter ── …
//!  collector        taken out ·  · waits ·  ·  ▲ its packets are all counted: final record, slot free
//! ```
//!
//! A thread that looks flows up is a [`Reader`] with a number that is odd during its read-side section. After
//! flows were taken out, the collector records the odd numbers. Once each of them has changed, every reader that
//! could know those flows has left. This is RCU's grace period, with lists of packets as read-side critical
//! sections. The datapath never waits: only the removal of flows waits.

use crate::sync::{AtomicU64, Ordering, fence, load_own};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// A thread that looks flows up.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Odd between `enter` and `leave`.
    epoch: CachePadded<AtomicU64>,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader { epoch: CachePadded::new(AtomicU64::new(0)) }
    }

    /// Enters the read-side section. Flows found from now on stay.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        // ORDER: Relaxed; the fence below orders it.
        let epoch = load_own(&self.epoch);
        self.epoch.store(epoch.wrapping_add(1), Ordering::Relaxed);
        // ORDER: SeqCst; pairs with the fence in `GracePeriod::begin`. If that fence comes first, this reader no
        // longer finds flows that were taken out before it. If this fence comes first, `begin` sees the odd
        // number.
        fence(Ordering::SeqCst);
    }

    /// Leaves the read-side section. Flows that were found may be freed.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let epoch = load_own(&self.epoch);
        // ORDER: Release; pairs with the Acquire in `GracePeriod::is_over`: the last reader of the flow sees all
        // that was counted.
        self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
    }

    /// Enters the section and leaves it when the result is dropped.
    pub(crate) fn guard(&self) -> ReadGuard<'_> {
        self.enter();
        ReadGuard(self)
    }

    /// Whether the reader is in a read-side section.
    pub(crate) fn is_in(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) & 1 == 1
    }
}

/// A reader that leaves its section when this guard is dropped, also during a panic.
pub(crate) struct ReadGuard<'a>(&'a Reader);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The time until every reader that was in a read-side section has left it.
#[derive(Debug, Default)]
pub(crate) struct GracePeriod {
    waiting_for: Vec<(Arc<Reader>, u64)>,
}

impl GracePeriod {
    /// Begins a grace period. The flows must already be out of the table, and this thread must have seen that.
    pub(crate) fn begin(&mut self, readers: &[Arc<Reader>]) {
        // ORDER: SeqCst; pairs with the fence in `Reader::enter`.
        fence(Ordering::SeqCst);
        self.waiting_for.clear();
        for reader in readers {
            let epoch = reader.epoch.load(Ordering::Acquire);
            if epoch & 1 == 1 {
                self.waiting_for.push((reader.clone(), epoch));
            }
        }
    }

    /// Whether all readers that were in a section have left it.
    pub(crate) fn is_over(&mut self) -> bool {
        self.waiting_for.retain(|(reader, epoch)| {
            // ORDER: Acquire; pairs with the Release in `leave`.
            reader.epoch.load(Ordering::Acquire) == *epoch
        });
        self.waiting_for.is_empty()
    }
}
