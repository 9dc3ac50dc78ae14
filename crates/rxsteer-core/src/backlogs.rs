//! What decisions are given: packets, and the backlogs they are for.

use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::verdict::DropReason;

/// What the policy needs to know of one packet.
///
/// The time is the packet's own rather than one for the batch: in a replay at full speed a batch
/// can span seconds of capture time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When the packet was received, in nanoseconds of a clock of the caller's choice.
    pub time_ns: u64,
    /// Its flow hash.
    pub hash: FlowHash,
    /// The RX queue it arrived on.
    pub rx_queue: u16,
    /// Always 0.
    pub reserved: u16,
}

const _: () = assert!(size_of::<Arrival>() == 16);

/// The backlogs as one producer sees them.
///
/// Each producer numbers what it queues to each CPU: free-running `u32` that wrap. A CPU that goes
/// away keeps its numbers: whoever takes its queue over completes them.
pub trait Backlogs {
    /// Reserves room for one packet in `cpu`'s backlog and says its position in this producer's
    /// queue to that CPU.
    ///
    /// # Errors
    /// [`Refusal`], when there is no room.
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal>;

    /// Whether the processing of what `producer` queued to `cpu` is *complete* up to and with
    /// `position`: `(i32)(completed − (position + 1)) ≥ 0`. Taken off the queue is not enough.
    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool;

    /// The position this producer's next packet to `cpu` would get.
    fn tail(&self, cpu: CpuId) -> u32;

    /// How many packets of this producer wait for `cpu` (those completed a moment ago may still
    /// count), and how many may. Asked only where there is a flow limit.
    fn waiting(&mut self, cpu: CpuId) -> (u32, u32);

    /// The number of this producer. With several, a packet may follow its flow's earlier ones to the
    /// same CPU from another producer only if each CPU has *one* queue for all of them.
    fn producer(&self) -> u16 {
        0
    }
}

/// Backlogs that always have room and whose packets are completed as soon as they are queued: for
/// asking a policy for its target, which is then where the packet goes.
#[derive(Clone, Debug, Default)]
pub struct Idle {
    queued: u32,
}

impl Backlogs for Idle {
    #[inline(always)]
    fn reserve(&mut self, _cpu: CpuId) -> Result<u32, Refusal> {
        let position = self.queued;
        self.queued = position.wrapping_add(1);
        Ok(position)
    }

    fn has_completed(&mut self, _producer: u16, _cpu: CpuId, _position: u32) -> bool {
        true
    }

    fn tail(&self, _cpu: CpuId) -> u32 {
        self.queued
    }

    fn waiting(&mut self, _cpu: CpuId) -> (u32, u32) {
        (0, u32::MAX)
    }
}

/// Why a backlog takes no packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet is to be dropped.
    Drop(DropReason),
    /// The packet must wait: the decision for it and all behind it comes later.
    Wait,
}
