//! The counts of what one RX thread sends to one CPU: while it runs, and at its end.

use crate::count::{Count, DropCounts};
use rxsteer_core::{CpuId, Drops};

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

/// The counts of the packets that one RX thread sends to one CPU.
#[derive(Debug)]
#[repr(align(128))]
#[non_exhaustive]
pub struct BacklogProgress {
    /// The CPU.
    pub cpu: CpuId,
    /// Lists published.
    pub lists: Count,
    /// Packets in these lists.
    pub queued: Count,
    /// Wake-ups sent.
    pub kicks: Count,
    /// Packets refused.
    pub drops: DropCounts,
}

impl BacklogProgress {
    pub(crate) fn new(cpu: CpuId) -> BacklogProgress {
        BacklogProgress {
            cpu,
            lists: Count::default(),
            queued: Count::default(),
            kicks: Count::default(),
            drops: DropCounts::default(),
        }
    }

    pub(crate) fn report(&self) -> BacklogReport {
        BacklogReport {
            cpu: self.cpu,
            lists: self.lists.get(),
            queued: self.queued.get(),
            kicks: self.kicks.get(),
            drops: self.drops.get(),
        }
    }
}
