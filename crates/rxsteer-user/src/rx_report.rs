//! What receiving threads tell: at the end, and while they run.

use crate::ledger::LedgerReport;
use rxsteer_core::{CpuId, Drops, SteerCounts};
use rxsteer_packet::Malformed;
use std::sync::atomic::AtomicU64;

/// What one RX thread did.
#[derive(Clone, Debug, Default)]
pub struct RxReport {
    /// Packets received.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Frames that carry no IP packet.
    pub not_ip: u64,
    /// Frames whose outermost IP header can't be read, by reason.
    pub malformed: [u64; Malformed::ALL.len()],
    /// IP packets whose transport header is damaged or cut off.
    pub transport_truncated: u64,
    /// Packets refused before they had a destination.
    pub drops: Drops,
    /// Which mechanisms decided.
    pub steering: SteerCounts,
    /// Planned changes that were made, by any RX thread.
    pub changes_made: usize,
    /// What was queued to each CPU.
    pub lanes: Vec<LaneReport>,
    /// Flows and moves, where order is checked.
    pub ledger: Option<LedgerReport>,
    /// Whether the RX thread was pinned to its CPU.
    pub pinned: bool,
}

/// What one RX thread queued to one CPU.
#[derive(Clone, Copy, Debug)]
pub struct LaneReport {
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
pub struct RxProgress {
    /// Packets received so far.
    pub packets: AtomicU64,
    /// Units of the source done so far ([`crate::source::Source::progress`]).
    pub done: AtomicU64,
    /// Units of the source altogether; 0 while unknown.
    pub total: AtomicU64,
}
