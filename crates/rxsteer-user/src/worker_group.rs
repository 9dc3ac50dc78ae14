//! The workers as a group: which of them sleep, which have stopped, and which backlogs must be taken over.
//!
//! A CPU whose worker dies or is stopped keeps its backlogs. Another worker takes over *serving* them, backlog by
//! backlog. Each backlog stays first in, first out, and has one consumer at any time. So no packet is lost and
//! none is overtaken.

use crate::backlog::BacklogReceiver;
use crate::count::{Count, DropCounts};
use crate::delay_counts::DelayCounts;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_ring::Sleeper;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counts of one CPU's worker, which other threads can read while it runs.
#[derive(Debug)]
#[repr(align(128))]
#[non_exhaustive]
pub struct WorkerProgress {
    /// The CPU.
    pub cpu: CpuId,
    /// Packets whose handler returned here and that, if they were to be sent on, were sent.
    pub packets: Count,
    /// The bytes on the wire of all packets whose handler returned here.
    pub bytes: Count,
    /// Packets that were processed before or at the same time as an earlier one of their flow; only if order is checked.
    pub reordered: Count,
    /// Packets that were lost when a handler panicked, whose interface was removed, or that found no room for sending.
    pub drops: DropCounts,
    /// From queueing to the start of processing.
    pub delay: DelayCounts,
    /// Nanoseconds spent in its handler, including interruptions; only if load is measured.
    pub busy_ns: Count,
}

impl WorkerProgress {
    /// Nanoseconds spent in its handler, and the packets that were processed or dropped in that time.
    pub(crate) fn work(&self) -> (u64, u64) {
        (self.busy_ns.get(), self.packets.get() + self.drops.get().total())
    }
}

/// One CPU's slot in the group.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    pub(crate) cpu: CpuId,
    /// What its own worker counts.
    pub(crate) progress: Arc<WorkerProgress>,
    pub(crate) sleeper: Sleeper,
    /// Set to stop the slot's worker.
    pub(crate) stop: AtomicBool,
    /// Set once the slot's worker has left.
    left: AtomicBool,
}

impl WorkerSlot {
    /// Whether the slot's own worker is gone; another worker then serves its backlogs.
    pub(crate) fn has_left(&self) -> bool {
        // ORDER: Relaxed; a hint for new hand-offs, and the backlog works in both cases.
        self.left.load(Ordering::Relaxed)
    }
}

/// Backlogs without a worker, and the slots where kicks for these backlogs arrive.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) slots: Vec<Arc<WorkerSlot>>,
    pub(crate) backlogs: Vec<BacklogReceiver>,
}

/// The state that all workers and RX threads share.
#[derive(Debug)]
pub(crate) struct WorkerGroup {
    pub(crate) slots: Vec<Arc<WorkerSlot>>,
    abandoned: Mutex<Vec<Abandoned>>,
    has_abandoned: AtomicBool,
    /// The number of workers that still run.
    alive: AtomicUsize,
    /// The number of backlogs that may still receive packets.
    open_backlogs: AtomicUsize,
    /// The latest receive time of any RX thread.
    pub(crate) time_ns: AtomicU64,
    /// Whether any RX queue was removed.
    any_removed: AtomicBool,
    /// RX queues whose interface was removed, by number.
    removed: Box<[AtomicBool]>,
}

impl WorkerGroup {
    /// A group of one worker per CPU that serves `backlogs` backlogs in total.
    pub(crate) fn new(cpus: &CpuSet, backlogs: usize, rx_queues: u16) -> WorkerGroup {
        let slot = |cpu| {
            Arc::new(WorkerSlot {
                cpu,
                progress: Arc::new(WorkerProgress {
                    cpu,
                    packets: Count::default(),
                    bytes: Count::default(),
                    reordered: Count::default(),
                    drops: DropCounts::default(),
                    delay: DelayCounts::default(),
                    busy_ns: Count::default(),
                }),
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

    /// Whether no worker is left to process packets.
    pub(crate) fn is_lost(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `leave`.
        self.alive.load(Ordering::Acquire) == 0
    }

    /// Whether every backlog is closed and empty.
    pub(crate) fn is_done(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `backlog_finished`.
        self.open_backlogs.load(Ordering::Acquire) == 0
    }

    /// Records that one backlog is closed and empty.
    pub(crate) fn backlog_finished(&self) {
        // ORDER: AcqRel; the worker that sees 0 also sees all effects of the others.
        if self.open_backlogs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_all();
        }
    }

    pub(crate) fn wake_all(&self) {
        for slot in &self.slots {
            slot.sleeper.wake();
        }
    }

    /// Records that a worker leaves, with the backlogs that it abandons.
    pub(crate) fn leave(&self, abandoned: Abandoned) {
        for slot in &abandoned.slots {
            // ORDER: Relaxed; see `WorkerSlot::has_left`.
            slot.left.store(true, Ordering::Relaxed);
        }
        self.lock().push(abandoned);
        // ORDER: Release; pairs with the Acquire in `has_abandoned`.
        self.has_abandoned.store(true, Ordering::Release);
        // ORDER: AcqRel; a thread that sees no worker alive also sees what is abandoned.
        self.alive.fetch_sub(1, Ordering::AcqRel);
        self.wake_all();
    }

    pub(crate) fn has_abandoned(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `leave`.
        self.has_abandoned.load(Ordering::Acquire)
    }

    /// Takes all abandoned backlogs; the caller must serve them.
    pub(crate) fn take_over(&self) -> Vec<Abandoned> {
        let mut abandoned = self.lock();
        // ORDER: Relaxed; under the lock, and a stale flag makes `take_over` find too little, never too much.
        self.has_abandoned.store(false, Ordering::Relaxed);
        std::mem::take(&mut abandoned)
    }

    /// Records that the interface of `rx_queue` was removed: packets of this queue that still wait must be
    /// dropped.
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
        // ORDER: Relaxed; read after `any_removed` returned true.
        self.removed.get(usize::from(rx_queue)).is_some_and(|r| r.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Abandoned>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
