//! The workers as a group: which sleep, which have stopped, and what is to be taken over.
//!
//! A CPU whose worker dies or is stopped keeps its backlog; another worker takes over *serving* it,
//! backlog by backlog. Since each backlog stays first in, first out, and has one consumer at any
//! time, no packet is lost and none is overtaken.

use crate::backlog::BacklogReceiver;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_ring::Sleeper;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One CPU's slot in the group.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    pub(crate) cpu: CpuId,
    pub(crate) sleeper: Sleeper,
    /// Set to make its worker stop.
    pub(crate) stop: AtomicBool,
    /// Set once its worker has left.
    left: AtomicBool,
}

impl WorkerSlot {
    /// Whether its own worker is gone; what is queued there is served by another.
    pub(crate) fn is_left(&self) -> bool {
        // ORDER: Relaxed; a hint for new hand-offs, the backlog works either way.
        self.left.load(Ordering::Relaxed)
    }
}

/// Backlogs without a worker, and the slots whose kicks they cause.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) slots: Vec<Arc<WorkerSlot>>,
    pub(crate) backlogs: Vec<BacklogReceiver>,
}

/// What all workers and RX threads share.
#[derive(Debug)]
pub(crate) struct WorkerGroup {
    pub(crate) slots: Vec<Arc<WorkerSlot>>,
    abandoned: Mutex<Vec<Abandoned>>,
    has_abandoned: AtomicBool,
    /// Workers that still run.
    alive: AtomicUsize,
    /// Backlogs that may still bring packets.
    open_backlogs: AtomicUsize,
    /// The latest receive time of any RX thread.
    pub(crate) time_ns: AtomicU64,
    /// Whether any RX queue was removed.
    any_removed: AtomicBool,
    /// RX queues whose interface was removed, by number.
    removed: Box<[AtomicBool]>,
}

impl WorkerGroup {
    /// A group of one worker per CPU that serves `backlogs` backlogs altogether.
    pub(crate) fn new(cpus: &CpuSet, backlogs: usize, rx_queues: u16) -> WorkerGroup {
        let slot = |cpu| {
            Arc::new(WorkerSlot {
                cpu,
                sleeper: Sleeper::new(),
                stop: AtomicBool::new(false),
                left: AtomicBool::new(false),
            })
        };
        WorkerGroup {
            slots: cpus.iter().map(slot).collect(),
            abandoned: Mutex::new(Vec::new()),
            has_abandoned: AtomicBool::new(false),
            alive: AtomicUsize::new(cpus.len()),
            open_backlogs: AtomicUsize::new(backlogs),
            time_ns: AtomicU64::new(0),
            any_removed: AtomicBool::new(false),
            removed: (0..rx_queues).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Whether no worker is left to process anything.
    pub(crate) fn is_lost(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `leave`.
        self.alive.load(Ordering::Acquire) == 0
    }

    /// Whether every backlog is closed and empty.
    pub(crate) fn is_done(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `backlog_finished`.
        self.open_backlogs.load(Ordering::Acquire) == 0
    }

    /// One backlog is closed and empty.
    pub(crate) fn backlog_finished(&self) {
        // ORDER: AcqRel; the worker that sees 0 sees all that the others did.
        if self.open_backlogs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_all();
        }
    }

    pub(crate) fn wake_all(&self) {
        for slot in &self.slots {
            slot.sleeper.wake();
        }
    }

    /// A worker leaves, and leaves these behind.
    pub(crate) fn leave(&self, abandoned: Abandoned) {
        for slot in &abandoned.slots {
            // ORDER: Relaxed; see `WorkerSlot::is_left`.
            slot.left.store(true, Ordering::Relaxed);
        }
        self.lock().push(abandoned);
        // ORDER: Release; pairs with the Acquire in `has_abandoned`.
        self.has_abandoned.store(true, Ordering::Release);
        // ORDER: AcqRel; whoever sees no worker alive also sees what is abandoned.
        self.alive.fetch_sub(1, Ordering::AcqRel);
        self.wake_all();
    }

    pub(crate) fn has_abandoned(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `leave`.
        self.has_abandoned.load(Ordering::Acquire)
    }

    /// Takes everything that was left behind; the caller must serve it.
    pub(crate) fn take_over(&self) -> Vec<Abandoned> {
        let mut abandoned = self.lock();
        // ORDER: Relaxed; under the lock, and `take_over` only ever finds too little, not too much.
        self.has_abandoned.store(false, Ordering::Relaxed);
        std::mem::take(&mut abandoned)
    }

    /// The interface behind `rx_queue` is gone: what still waits of it is to be dropped.
    pub(crate) fn remove(&self, rx_queue: u16) {
        if let Some(removed) = self.removed.get(usize::from(rx_queue)) {
            // ORDER: Relaxed, then Release; pairs with the Acquire in `any_removed`.
            removed.store(true, Ordering::Relaxed);
            self.any_removed.store(true, Ordering::Release);
        }
    }

    /// Whether any RX queue was removed.
    #[inline]
    pub(crate) fn any_removed(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `remove`.
        self.any_removed.load(Ordering::Acquire)
    }

    pub(crate) fn is_removed(&self, rx_queue: u16) -> bool {
        // ORDER: Relaxed; read after `any_removed` said so.
        self.removed.get(usize::from(rx_queue)).is_some_and(|r| r.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Abandoned>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
