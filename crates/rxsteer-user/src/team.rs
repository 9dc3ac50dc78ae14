//! The workers as a team: who sleeps where, who has stopped, and what is to be taken over.
//!
//! A CPU whose worker dies or is stopped keeps its backlog; another worker takes over *serving*
//! it, lane by lane. Since each lane stays first in, first out, and has one consumer at any time,
//! no packet is lost and none is overtaken.

use crate::lane::LaneReceiver;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_ring::Sleeper;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One CPU's place in the team.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) cpu: CpuId,
    pub(crate) sleeper: Sleeper,
    /// Set to make its worker stop.
    pub(crate) stop: AtomicBool,
    /// Set once its worker has left.
    left: AtomicBool,
}

impl Seat {
    /// Whether its own worker is gone; what is queued there is served by another.
    pub(crate) fn is_left(&self) -> bool {
        // ORDER: Relaxed; a hint for new hand-offs, the lane works either way.
        self.left.load(Ordering::Relaxed)
    }
}

/// Lanes without a worker, and the seats whose kicks they cause.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(crate) seats: Vec<Arc<Seat>>,
    pub(crate) lanes: Vec<LaneReceiver>,
}

/// What all workers and RX threads share.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) seats: Vec<Arc<Seat>>,
    orphans: Mutex<Vec<Orphans>>,
    has_orphans: AtomicBool,
    /// Workers that still run.
    alive: AtomicUsize,
    /// Lanes that may still bring packets.
    open_lanes: AtomicUsize,
    /// The latest receive time of any RX thread.
    pub(crate) time_ns: AtomicU64,
    /// Whether any RX queue was removed.
    any_removed: AtomicBool,
    /// RX queues whose interface was removed, by number.
    removed: Box<[AtomicBool]>,
}

impl Team {
    /// A team of one worker per CPU that serves `lanes` lanes altogether.
    pub(crate) fn new(cpus: &CpuSet, lanes: usize, rx_queues: u16) -> Team {
        let seat = |cpu| {
            Arc::new(Seat {
                cpu,
                sleeper: Sleeper::new(),
                stop: AtomicBool::new(false),
                left: AtomicBool::new(false),
            })
        };
        Team {
            seats: cpus.iter().map(seat).collect(),
            orphans: Mutex::new(Vec::new()),
            has_orphans: AtomicBool::new(false),
            alive: AtomicUsize::new(cpus.len()),
            open_lanes: AtomicUsize::new(lanes),
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

    /// Whether every lane is closed and empty.
    pub(crate) fn is_done(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `lane_finished`.
        self.open_lanes.load(Ordering::Acquire) == 0
    }

    /// One lane is closed and empty.
    pub(crate) fn lane_finished(&self) {
        // ORDER: AcqRel; the worker that sees 0 sees all that the others did.
        if self.open_lanes.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_all();
        }
    }

    pub(crate) fn wake_all(&self) {
        for seat in &self.seats {
            seat.sleeper.wake();
        }
    }

    /// A worker leaves, and leaves these behind.
    pub(crate) fn leave(&self, orphans: Orphans) {
        for seat in &orphans.seats {
            // ORDER: Relaxed; see `Seat::is_left`.
            seat.left.store(true, Ordering::Relaxed);
        }
        self.lock().push(orphans);
        // ORDER: Release; pairs with the Acquire in `has_orphans`.
        self.has_orphans.store(true, Ordering::Release);
        // ORDER: AcqRel; whoever sees nobody alive also sees the orphans.
        self.alive.fetch_sub(1, Ordering::AcqRel);
        self.wake_all();
    }

    pub(crate) fn has_orphans(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `leave`.
        self.has_orphans.load(Ordering::Acquire)
    }

    /// Takes everything that was left behind; the caller must serve it.
    pub(crate) fn adopt(&self) -> Vec<Orphans> {
        let mut orphans = self.lock();
        // ORDER: Relaxed; under the lock, and `adopt` only ever finds too little, not too much.
        self.has_orphans.store(false, Ordering::Relaxed);
        std::mem::take(&mut orphans)
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Orphans>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
