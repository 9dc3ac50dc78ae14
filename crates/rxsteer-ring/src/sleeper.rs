//! Sleeping on empty backlogs, with a wake-up when a backlog receives packets.
//!
//! ```text
//!   sender                               worker
//!   ──────                               ──────
//!   publish the list                     announce: asleep = true
//!   fence (SeqCst)            ◄────►     fence (SeqCst)
//!   asleep? then swap it to false        backlogs empty? then park
//!   and unpark: that is the *kick*
//! ```
//!
//! Each side writes its own word and then reads the other side's word, with a sequentially consistent fence in
//! between. At least one side sees the other's write. So either the worker finds the list and stays awake, or the
//! sender finds the worker asleep and wakes it. The sender executes one fence for all lists that it publishes in a
//! batch, and sends no wake-up while the worker is busy: a backlog that was not empty means that the worker is
//! awake.

use crate::sync::{AtomicBool, Mutex, Ordering, Thread, fence, park, park_timeout};
use std::time::Duration;

/// The place where a worker sleeps and where a sender kicks the worker.
#[derive(Debug)]
pub struct Sleeper {
    asleep: AtomicBool,
    /// The thread to wake. It changes when another worker takes over this worker's backlogs.
    worker: Mutex<Option<Thread>>,
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Sleeper {
    /// A sleeper that has no thread yet.
    #[must_use]
    pub fn new() -> Sleeper {
        Sleeper { asleep: AtomicBool::new(false), worker: Mutex::new(None) }
    }

    /// Makes the calling thread the one that this sleeper wakes.
    pub fn serve(&self) {
        *self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(crate::sync::current());
    }

    /// Wakes the worker if it sleeps, and returns whether it did. Call [`published`] before this, once for all
    /// lists published since the last call.
    #[inline]
    pub fn kick(&self) -> bool {
        // ORDER: Relaxed; the fence in `published` orders it after the publication.
        if !self.asleep.load(Ordering::Relaxed) {
            return false;
        }
        self.kick_sleeping()
    }

    #[cold]
    fn kick_sleeping(&self) -> bool {
        // ORDER: AcqRel, so that exactly one of several senders sends the wake-up, and the worker's next
        // announcement comes after the swap.
        if !self.asleep.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.wake();
        true
    }

    /// Wakes the worker whether it sleeps or not, for events other than packets.
    pub fn wake(&self) {
        let worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(worker) = worker.as_ref() {
            worker.unpark();
        }
    }

    /// The worker's side: sleeps once, at most for `limit`, unless `has_work` returns true. `sleepers` are all sleepers
    /// that the calling thread serves and where another thread may kick it.
    pub fn sleep<'a>(
        sleepers: impl Iterator<Item = &'a Sleeper> + Clone,
        limit: Option<Duration>,
        has_work: impl FnOnce() -> bool,
    ) {
        for sleeper in sleepers.clone() {
            // ORDER: Relaxed; the fence orders it before the check of the backlogs.
            sleeper.asleep.store(true, Ordering::Relaxed);
        }
        // ORDER: pairs with the fence in `published`.
        fence(Ordering::SeqCst);
        if !has_work() {
            limit.map_or_else(park, park_timeout);
        }
        for sleeper in sleepers {
            // ORDER: Relaxed; a stale `true` costs a needless wake-up, never a missed one.
            sleeper.asleep.store(false, Ordering::Relaxed);
        }
    }
}

/// A fence between publishing lists and [`Sleeper::kick`]. It ensures that either the kick sees the worker asleep
/// or the worker sees the lists.
#[inline]
pub fn published() {
    // ORDER: pairs with the fence in `Sleeper::sleep`.
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn worker_that_is_awake_is_not_kicked() {
        let sleeper = Sleeper::new();
        sleeper.serve();
        published();
        assert!(!sleeper.kick());
        Sleeper::sleep(std::iter::once(&sleeper), None, || true);
        assert!(!sleeper.kick(), "it stayed awake");
    }
}
