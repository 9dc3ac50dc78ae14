//! The result of a decision: delivery or drop.

use crate::cpu::CpuId;
use core::fmt;

/// The decision for one packet: its CPU, and whether there is room.
///
/// A verdict is one word instead of an enum, so that it is written and read as a whole. The tag and the CPU of an
/// enum are written separately. Reading them together a few instructions later stalls the load.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verdict(u32);

impl Verdict {
    /// The packet has room in this CPU's backlog.
    #[inline(always)]
    #[must_use]
    pub const fn deliver(cpu: CpuId) -> Verdict {
        Verdict(cpu.get() as u32)
    }

    /// The packet was meant for this CPU and is refused.
    #[inline(always)]
    #[must_use]
    pub const fn drop(cpu: CpuId, reason: DropReason) -> Verdict {
        Verdict(cpu.get() as u32 | (reason as u32 + 1) << 16)
    }

    /// The CPU the packet is for.
    #[inline(always)]
    #[must_use]
    pub const fn cpu(self) -> CpuId {
        CpuId::from_raw(self.0 as u16)
    }

    /// Whether the packet is refused.
    #[inline(always)]
    #[must_use]
    pub const fn is_drop(self) -> bool {
        self.0 >> 16 != 0
    }

    /// Why the packet is refused; `None` when it has room.
    #[inline(always)]
    #[must_use]
    pub fn drop_reason(self) -> Option<DropReason> {
        match self.0 >> 16 {
            0 => None,
            reason => DropReason::ALL.get(reason as usize - 1).copied(),
        }
    }
}

/// A verdict without CPU and packet, for filling a list of verdicts before they are made.
impl Default for Verdict {
    fn default() -> Self {
        Verdict::deliver(CpuId::NONE)
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.drop_reason() {
            None => write!(f, "deliver to {:?}", self.cpu()),
            Some(reason) => write!(f, "drop for {:?}: {}", self.cpu(), reason.name()),
        }
    }
}

/// Why a packet is dropped. The discriminants index arrays of counts.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The CPU's backlog held `max_backlog` packets.
    BacklogFull = 0,
    /// All frame memory was in use: the workers are that far behind.
    NoBuffer = 1,
    /// The worker ended while its handler had the packet, no worker was left to process it, or the receiving
    /// thread panicked before the packet was steered.
    WorkerLost = 2,
    /// The packet's interface was removed while it waited.
    InterfaceRemoved = 3,
    /// The CPU's backlog was half full, and the packet's flow had more than half of the last packets.
    FlowLimit = 4,
    /// The packet was to be forwarded, and the TX ring or the driver had no room for it.
    TxFull = 5,
}

impl DropReason {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [DropReason; 6] = [
        Self::BacklogFull,
        Self::NoBuffer,
        Self::WorkerLost,
        Self::InterfaceRemoved,
        Self::FlowLimit,
        Self::TxFull,
    ];

    /// The reason's name in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BacklogFull => "backlog_full",
            Self::NoBuffer => "no_buffer",
            Self::WorkerLost => "worker_lost",
            Self::InterfaceRemoved => "interface_removed",
            Self::FlowLimit => "flow_limit",
            Self::TxFull => "tx_full",
        }
    }
}

/// How many packets were dropped, by reason.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Adds `packets` to the count of `reason`.
    #[inline]
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Drops) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Packets dropped for `reason`.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Packets dropped for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(reason, count)| (reason.name(), count))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_index_the_list() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }

    #[test]
    fn verdicts_keep_both_halves() {
        let cpu = CpuId::MAX;
        assert_eq!((Verdict::deliver(cpu).cpu(), Verdict::deliver(cpu).drop_reason()), (cpu, None));
        for reason in DropReason::ALL {
            let verdict = Verdict::drop(cpu, reason);
            assert_eq!((verdict.cpu(), verdict.drop_reason()), (cpu, Some(reason)));
        }
    }
}
