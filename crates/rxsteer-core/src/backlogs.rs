//! The input of a decision: packets, and the backlogs they go to.

use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::verdict::DropReason;

/// The properties of one packet that the policy uses.
///
/// Each packet has its own time, since a batch can span seconds of capture time in a replay at full speed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When the packet was received, in nanoseconds of a clock that the caller chooses.
    pub time_ns: u64,
    /// The flow hash of the packet.
    pub hash: FlowHash,
    /// The RX queue that received the packet.
    pub rx_queue: u16,
    /// The number of the first rule before the policy that matches the packet ([`crate::matching`]), counted from 1; 0: none.
    pub rule: u16,
}

const _: () = assert!(size_of::<Arrival>() == 16);

/// The backlogs as one producer sees them.
///
/// Each producer numbers the packets it queues to each CPU. The numbers are free-running `u32` that wrap. When a
/// CPU goes offline its numbers stay valid: the worker that takes over the queue completes them.
pub trait Backlogs {
    /// Reserves room for one packet in `cpu`'s backlog and returns the packet's position in this producer's queue
    /// to that CPU.
    ///
    /// # Errors
    /// [`Refusal`] when there is no room.
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal>;

    /// Whether `cpu` has *completed* all packets that `producer` queued to it, up to and including `position`:
    /// `(i32)(completed − (position + 1)) ≥ 0`. A packet that was only taken off the queue is not completed.
    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool;

    /// The position that this producer's next packet to `cpu` would get.
    fn tail(&self, cpu: CpuId) -> u32;

    /// How many packets of this producer wait for `cpu`, and the most that may wait. Packets completed a moment
    /// ago may still count. Called only when there is a flow limit.
    fn waiting(&mut self, cpu: CpuId) -> (u32, u32);

    /// The number of this producer. With several producers, a packet may follow its flow's earlier packets from
    /// another producer to the same CPU only if each CPU has *one* queue for all producers.
    fn producer(&self) -> u16 {
        0
    }
}

/// Backlogs that always have room and complete each packet as soon as it is queued. A policy asked with these
/// backlogs sends each packet to its target.
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

/// Why a backlog does not accept a packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet must be dropped.
    Drop(DropReason),
    /// The packet must wait. It and all packets after it are decided on later.
    Wait,
}
