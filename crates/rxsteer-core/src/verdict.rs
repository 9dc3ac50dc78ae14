//! What becomes of a packet.

use crate::cpu::CpuId;

/// What was decided for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a place in this CPU's backlog.
    Deliver(CpuId),
    /// It was meant for this CPU and is refused.
    Drop(CpuId, DropReason),
}

/// Why a packet is dropped. The discriminants index arrays of counts.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The CPU's backlog held `max_backlog` packets.
    BacklogFull = 0,
    /// All frame memory was in use: the workers are behind by that much.
    NoBuffer = 1,
    /// The worker died while its handler had the packet, or no worker was left to process it.
    WorkerLost = 2,
    /// The packet's interface was removed while it waited.
    InterfaceRemoved = 3,
}

impl DropReason {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [DropReason; 4] =
        [Self::BacklogFull, Self::NoBuffer, Self::WorkerLost, Self::InterfaceRemoved];

    /// The reason's name in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BacklogFull => "backlog_full",
            Self::NoBuffer => "no_buffer",
            Self::WorkerLost => "worker_lost",
            Self::InterfaceRemoved => "interface_removed",
        }
    }
}

/// How many packets were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Counts `packets` more.
    #[inline]
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Counts all of `other` too.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_index_the_list() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
