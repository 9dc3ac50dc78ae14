//! When does no thread use a flow any more? Lookups take no lock, so a CPU may hold the slot of a
//! flow that another thread takes out of the table just then.
//!
//! ```text
//!  writer     enter ── finds, counts ── leave        enter ── …
//!  collector        taken out ·  · waits ·  ·  ▲ its packets are all counted: final record, slot free
//! ```
//!
//! A thread that looks flows up is a [`Reader`] with a number that is odd while it does. After
//! flows were taken out, the collector notes the odd numbers; once each has changed, whoever could
//! know of those flows has left (RCU's grace period, with lists of packets for read-side critical
//! sections). No datapath ever waits: the flows wait.

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

    /// From now on, flows that are found stay.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        // ORDER: Relaxed; the fence does it.
        let epoch = load_own(&self.epoch);
        self.epoch.store(epoch.wrapping_add(1), Ordering::Relaxed);
        // ORDER: SeqCst; pairs with the fence in `GracePeriod::begin`. Either that one comes first,
        // and flows taken out before it are not found any more; or this one does, and the odd
        // number is seen there.
        fence(Ordering::SeqCst);
    }

    /// What was found may go.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let epoch = load_own(&self.epoch);
        // ORDER: Release; pairs with the Acquire in `GracePeriod::is_over`: all that was counted is
        // seen by whoever reads the flow for the last time.
        self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
    }

    /// Stays until the result is dropped.
    pub(crate) fn guard(&self) -> ReadGuard<'_> {
        self.enter();
        ReadGuard(self)
    }

    /// Whether it is between the two.
    pub(crate) fn is_in(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) & 1 == 1
    }
}

/// A reader that leaves when this is dropped, whatever happens.
pub(crate) struct ReadGuard<'a>(&'a Reader);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The time until every reader that was in has left.
#[derive(Debug, Default)]
pub(crate) struct GracePeriod {
    waiting_for: Vec<(Arc<Reader>, u64)>,
}

impl GracePeriod {
    /// Begins after flows were taken out (and that was seen here).
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

    /// Whether all have left who were in.
    pub(crate) fn is_over(&mut self) -> bool {
        self.waiting_for.retain(|(reader, epoch)| {
            // ORDER: Acquire; pairs with the Release in `leave`.
            reader.epoch.load(Ordering::Acquire) == *epoch
        });
        self.waiting_for.is_empty()
    }
}
