//! What receiving threads report: at the end, and while they run.

use crate::order_tracker::OrderTrackerReport;
use rxsteer_core::{CpuId, Drops, SteerCounts};
use rxsteer_packet::Malformed;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one RX thread did.
#[derive(Clone, Debug, Default)]
pub(crate) struct RxReport {
    /// Packets received.
    pub(crate) packets: u64,
    /// Their bytes on the wire.
    pub(crate) bytes: u64,
    /// Frames that carry no IP packet.
    pub(crate) not_ip: u64,
    /// Frames whose outermost IP header can't be read, by reason.
    pub(crate) malformed: [u64; Malformed::ALL.len()],
    /// IP packets whose transport header is damaged or cut off.
    pub(crate) transport_truncated: u64,
    /// Frames that the kernel dropped before they were received.
    pub(crate) kernel_drops: u64,
    /// Packets of an RX queue that the configuration does not have.
    pub(crate) unknown_rx_queue: u64,
    /// Packets refused before they had a destination.
    pub(crate) drops: Drops,
    /// Which mechanisms decided.
    pub(crate) steering: SteerCounts,
    /// Receiving ended because memory ran out.
    pub(crate) out_of_memory: bool,
    /// Planned changes that were made, by any RX thread.
    pub(crate) changes_made: usize,
    /// What was queued to each CPU.
    pub(crate) backlogs: Vec<BacklogReport>,
    /// Flows and moves, where order is checked.
    pub(crate) order_tracker: Option<OrderTrackerReport>,
}

/// What one RX thread queued to one CPU.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BacklogReport {
    /// The CPU.
    pub cpu: CpuId,
    /// Lists published.
    pub lists: u64,
    /// Packets in them.
    pub queued: u64,
    /// Wake-ups sent.
    pub kicks: u64,
    /// Packets refused.
    pub drops: Drops,
}

/// Figures of a running receiver, to be looked at from other threads.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RxProgress {
    /// Packets received so far.
    pub packets: AtomicU64,
    /// Their bytes on the wire.
    pub bytes: AtomicU64,
    /// Packets refused so far, for whatever reason.
    pub dropped: AtomicU64,
    /// Frames that the kernel dropped so far ([`crate::source::Source::kernel_drops`]).
    pub kernel_drops: AtomicU64,
    /// Units of the source done so far ([`crate::source::Source::progress`]).
    pub done: AtomicU64,
    /// Units of the source altogether; 0 while unknown.
    pub total: AtomicU64,
}

/// Where receivers leave their reports when they end: a pipeline can count on each, however it ended.
#[derive(Debug)]
pub(crate) struct RxReports {
    state: Mutex<(usize, Vec<RxReport>)>,
}

impl RxReports {
    /// For `receivers` receivers, which all still receive.
    pub(crate) fn new(receivers: usize) -> RxReports {
        RxReports { state: Mutex::new((receivers, Vec::with_capacity(receivers))) }
    }

    /// One receiver has ended.
    pub(crate) fn add(&self, report: RxReport) {
        let (receiving, reports) = &mut *self.lock();
        *receiving -= 1;
        reports.push(report);
    }

    /// How many still receive.
    pub(crate) fn receiving(&self) -> usize {
        self.lock().0
    }

    /// The reports of those that have ended.
    pub(crate) fn take(&self) -> Vec<RxReport> {
        std::mem::take(&mut self.lock().1)
    }

    fn lock(&self) -> MutexGuard<'_, (usize, Vec<RxReport>)> {
        // A receiver that panicked left the count and the list whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
