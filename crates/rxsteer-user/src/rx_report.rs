//! The reports of RX threads: at their end, and while they run.

use crate::order_tracker::OrderTrackerReport;
use rxsteer_core::{CpuId, Drops, SteerCounts};
use rxsteer_packet::Malformed;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The results of one RX thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct RxReport {
    /// Packets received.
    pub(crate) packets: u64,
    /// The bytes of these packets on the wire.
    pub(crate) bytes: u64,
    /// Frames without an IP packet.
    pub(crate) not_ip: u64,
    /// Frames whose outermost IP header can't be read, by reason.
    pub(crate) malformed: [u64; Malformed::ALL.len()],
    /// IP packets whose transport header is damaged or cut off.
    pub(crate) transport_truncated: u64,
    /// Frames that the kernel dropped before they were received.
    pub(crate) kernel_drops: u64,
    /// Packets of an RX queue that the configuration does not have.
    pub(crate) unknown_rx_queue: u64,
    /// Packets refused before they had a target.
    pub(crate) drops: Drops,
    /// How many packets each mechanism decided on.
    pub(crate) steering: SteerCounts,
    /// Whether receiving ended because memory ran out.
    pub(crate) out_of_memory: bool,
    /// Planned changes that were made by any RX thread.
    pub(crate) changes_made: usize,
    /// The results for each CPU's backlog.
    pub(crate) backlogs: Vec<BacklogReport>,
    /// Flows and moves, where order is checked.
    pub(crate) order_tracker: Option<OrderTrackerReport>,
}

/// The packets that one RX thread queued to one CPU.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BacklogReport {
    /// The CPU.
    pub cpu: CpuId,
    /// Lists published.
    pub lists: u64,
    /// Packets in these lists.
    pub queued: u64,
    /// Wake-ups sent.
    pub kicks: u64,
    /// Packets refused.
    pub drops: Drops,
}

/// Counters of a running receiver, which other threads can read.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RxProgress {
    /// Packets received so far.
    pub packets: AtomicU64,
    /// Bytes of these packets on the wire.
    pub bytes: AtomicU64,
    /// Packets refused so far, for any reason.
    pub dropped: AtomicU64,
    /// Frames that the kernel dropped so far ([`crate::source::Source::kernel_drops`]).
    pub kernel_drops: AtomicU64,
    /// Units of the source completed so far ([`crate::source::Source::progress`]).
    pub done: AtomicU64,
    /// Units of the source in total; 0 while unknown.
    pub total: AtomicU64,
}

/// The reports of receivers that have ended. A pipeline gets a report from every receiver, however it ended.
#[derive(Debug)]
pub(crate) struct RxReports {
    state: Mutex<(usize, Vec<RxReport>)>,
}

impl RxReports {
    /// Reports of `receivers` receivers that are all still receiving.
    pub(crate) fn new(receivers: usize) -> RxReports {
        RxReports { state: Mutex::new((receivers, Vec::with_capacity(receivers))) }
    }

    /// Adds the report of a receiver that has ended.
    pub(crate) fn add(&self, report: RxReport) {
        let (receiving, reports) = &mut *self.lock();
        *receiving -= 1;
        reports.push(report);
    }

    /// The number of receivers that still receive.
    pub(crate) fn receiving(&self) -> usize {
        self.lock().0
    }

    /// Takes the reports of the receivers that have ended.
    pub(crate) fn take(&self) -> Vec<RxReport> {
        std::mem::take(&mut self.lock().1)
    }

    fn lock(&self) -> MutexGuard<'_, (usize, Vec<RxReport>)> {
        // A receiver that panicked left the count and the list consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
