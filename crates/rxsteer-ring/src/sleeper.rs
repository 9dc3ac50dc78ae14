//! Sleeping on empty backlogs, and being woken exactly when one fills.
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
//! Each side writes its own word, then reads the other's, with a sequentially consistent fence
//! between: at least one of them sees the other. So either the worker finds the list and stays
//! awake, or the sender finds it asleep and wakes it. The sender pays one fence for all the lists
//! it published in a batch, and no wake-up while the worker is busy: a backlog that was not empty
//! means a worker that is awake.

use crate::sync::{AtomicBool, Mutex, Ordering, Thread, fence, park};

/// Where a worker sleeps and a sender kicks it.
#[derive(Debug)]
pub struct Sleeper {
    asleep: AtomicBool,
    /// Whom to wake; changes when another worker takes this one's backlogs over.
    worker: Mutex<Option<Thread>>,
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Sleeper {
    /// A sleeper without a thread yet.
    #[must_use]
    pub fn new() -> Sleeper {
        Sleeper { asleep: AtomicBool::new(false), worker: Mutex::new(None) }
    }

    /// Makes the calling thread the one that is woken here.
    pub fn serve(&self) {
        *self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(crate::sync::current());
    }

    /// Wakes the worker if it sleeps; says whether it had to. Call [`published`] first, once for
    /// all lists published since the last call.
    #[inline]
    pub fn kick(&self) -> bool {
        // ORDER: Relaxed; ordered behind the publication by the fence in `published`.
        if !self.asleep.load(Ordering::Relaxed) {
            return false;
        }
        self.kick_sleeping()
    }

    #[cold]
    fn kick_sleeping(&self) -> bool {
        // ORDER: AcqRel, so that of several senders exactly one sends the wake-up, and the worker's
        // next announcement comes after it.
        if !self.asleep.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.wake();
        true
    }

    /// Wakes the worker whether it sleeps or not: for news other than packets.
    pub fn wake(&self) {
        let worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(worker) = worker.as_ref() {
            worker.unpark();
        }
    }

    /// The worker's side: sleeps once unless `has_work` finds something. `sleepers` are all places
    /// where another thread may kick the calling thread, and which it serves.
    pub fn sleep<'a>(
        sleepers: impl Iterator<Item = &'a Sleeper> + Clone,
        has_work: impl FnOnce() -> bool,
    ) {
        for sleeper in sleepers.clone() {
            // ORDER: Relaxed; ordered before the look at the backlogs by the fence.
            sleeper.asleep.store(true, Ordering::Relaxed);
        }
        // ORDER: pairs with the fence in `published`.
        fence(Ordering::SeqCst);
        if !has_work() {
            park();
        }
        for sleeper in sleepers {
            // ORDER: Relaxed; a stale `true` costs a needless wake-up, never a missed one.
            sleeper.asleep.store(false, Ordering::Relaxed);
        }
    }
}

/// To be called between publishing lists and [`Sleeper::kick`]: makes sure that either the kick
/// sees the worker asleep or the worker sees the lists.
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
        Sleeper::sleep(std::iter::once(&sleeper), || true);
        assert!(!sleeper.kick(), "it stayed awake");
    }
}
