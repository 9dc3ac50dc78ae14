//! The reports of RX threads: at their end, and while they run.

use crate::backlog_progress::BacklogProgress;
use crate::count::{Count, DropCounts};
use crate::order_tracker::OrderTrackerReport;
use crate::rebalance::MovesByLoad;
use rxsteer_core::counters::SteerCounter;
use rxsteer_core::{Drops, SteerCounts};
use rxsteer_packet::Malformed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The results of one RX thread.
#[derive(Debug)]
pub(crate) struct RxReport {
    /// What it counted.
    pub(crate) progress: Arc<RxProgress>,
    /// Frames that the kernel dropped before they were received.
    pub(crate) kernel_drops: u64,
    /// Whether receiving ended because memory ran out.
    pub(crate) out_of_memory: bool,
    /// Buckets that moved by load, through any RX thread.
    pub(crate) moves_by_load: MovesByLoad,
    /// Flows and moves, where order is checked.
    pub(crate) order_tracker: Option<OrderTrackerReport>,
}

/// The counts of one RX thread, which other threads can read while it runs.
///
/// Once a packet is decided on, it counts in `backlogs` as queued or dropped, or in `drops`. Up to one batch of the
/// packets received may not be decided on yet.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RxProgress {
    /// Packets received.
    pub packets: Count,
    /// The bytes of these packets on the wire.
    pub bytes: Count,
    /// Frames without an IP packet.
    pub not_ip: Count,
    /// Frames whose outermost IP header can't be read, by reason.
    pub malformed: [Count; Malformed::ALL.len()],
    /// IP packets whose transport header is damaged or cut off.
    pub transport_truncated: Count,
    /// Packets of an RX queue that the configuration does not have.
    pub unknown_rx_queue: Count,
    /// Packets refused before they had a target.
    pub drops: DropCounts,
    /// How often a flow moved to another CPU; only if order is checked.
    pub moves: Count,
    /// Whether packets sent by former settings are under way: 1 or 0.
    pub changing: Count,
    /// Changes that this thread has taken, of [`crate::Control::changes`]; `u64::MAX` once it has ended.
    pub changes: Count,
    /// Frames that the kernel dropped ([`crate::source::Source::kernel_drops`]).
    pub kernel_drops: Count,
    /// Units of the source completed ([`crate::source::Source::progress`]).
    pub done: Count,
    /// Units of the source in total; 0 while unknown.
    pub total: Count,
    /// The packets sent to each CPU.
    pub backlogs: Vec<Arc<BacklogProgress>>,
    steering: [Count; SteerCounter::ALL.len()],
}

impl RxProgress {
    /// How many packets the mechanism of `counter` decided on.
    #[must_use]
    pub fn steered(&self, counter: SteerCounter) -> u64 {
        self.steering[counter as usize].get()
    }

    /// How many packets each mechanism decided on.
    #[must_use]
    pub fn steering(&self) -> SteerCounts {
        let mut counts = SteerCounts::default();
        for counter in SteerCounter::ALL {
            *counts.of(*counter) = self.steered(*counter);
        }
        counts
    }

    /// Packets refused, by reason.
    #[must_use]
    pub fn dropped(&self) -> Drops {
        let mut drops = self.drops.get();
        self.backlogs.iter().for_each(|backlog| drops.merge(&backlog.drops.get()));
        drops
    }

    #[inline]
    pub(crate) fn set_steering(&self, counts: SteerCounts) {
        for (counter, shown) in SteerCounter::ALL.iter().zip(&self.steering) {
            shown.set(counts.get(*counter));
        }
    }
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
