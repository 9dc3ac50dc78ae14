//! The order guard: when a flow may move to another CPU. Every decision that can differ from the
//! flow's last one passes here, whoever made it.
//!
//! ```text
//!   flow table of an RX queue              CPU a's queue
//!   slot: CPU a, producer, sequence 7 ───► … 5 6 7 │ 8 9 …     completed up to here: 7 is done,
//!                                                  ▲           the flow may go elsewhere
//! ```
//!
//! Source: "rfs: Receive Flow Steering", the `rps_dev_flow_table`. Changed from there: *every*
//! accepted packet writes its slot, not only those RFS steered, since a flow that went by hash or by
//! a sparse slot has packets under way too; the number is that of the packet itself; and a number
//! counts as done when the packet's processing is complete, not when it was taken from the queue.
//!
//! What must hold:
//! - a slot is written only for a packet that got its place in a queue;
//! - flows that share a slot share its fate; no tag may let one of them pass;
//! - numbers wrap: they are compared by signed difference ([`Backlogs::has_completed`]). A slot so
//!   old that its number seems to lie ahead holds its flow where it was, until the next packet
//!   renews it: it can only hold, never permit.

use crate::cpu::CpuId;
use crate::steer::{Arrival, Backlogs};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

/// A multiplicative hash to `log` bits: the kernel's `hash_32`. 0 bits give 0.
#[inline(always)]
pub(crate) const fn hash_32(value: u32, log: u32) -> u32 {
    const GOLDEN_RATIO_32: u32 = 0x61c8_8647;
    (((value.wrapping_mul(GOLDEN_RATIO_32) as u64) << log) >> 32) as u32
}

/// One slot of a flow table: where the last packet of its flows went. All zero is unset.
///
/// `repr(C)`, 8 bytes: the BPF side reads and writes the same.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevFlow {
    /// The packet's number in the queue from `producer` to the CPU; or the lower half of a stamp.
    last_seq: u32,
    /// Who queued it; or the upper half of a stamp.
    producer: u16,
    /// The CPU plus one; 0 while unset, [`MIXED`] when the rest is a stamp.
    cpu_plus_1: u16,
}

const _: () = assert!(size_of::<DevFlow>() == 8);

/// In [`DevFlow::cpu_plus_1`]: the slot's flows went to several CPUs, each by rules that are no
/// more. The rest is the *period* of the last packet ([`crate::transition`]).
const MIXED: u16 = u16::MAX;

impl DevFlow {
    /// The slot after a packet went to `cpu` as number `last_seq` of `producer`.
    #[inline(always)]
    #[must_use]
    pub const fn queued(cpu: CpuId, producer: u16, last_seq: u32) -> DevFlow {
        DevFlow { last_seq, producer, cpu_plus_1: cpu.get() + 1 }
    }

    /// A slot whose flows went to several CPUs, the last packet in `period`.
    pub(crate) const fn mixed(period: u64) -> DevFlow {
        DevFlow { last_seq: period as u32, producer: (period >> 32) as u16, cpu_plus_1: MIXED }
    }

    /// The CPU, producer and number of the last packet; `None` when unset or mixed.
    #[must_use]
    pub fn last(self) -> Option<(CpuId, u16, u32)> {
        match self.cpu_plus_1 {
            0 | MIXED => None,
            cpu => Some((CpuId::from_raw(cpu - 1), self.producer, self.last_seq)),
        }
    }

    /// The period of a mixed slot's last packet.
    pub(crate) fn period(self) -> Option<u64> {
        let period = u64::from(self.producer) << 32 | u64::from(self.last_seq);
        (self.cpu_plus_1 == MIXED).then_some(period)
    }

    /// Something of it, for a load whose value nobody needs.
    #[inline(always)]
    pub(crate) fn loaded(self) -> u32 {
        self.last_seq
    }

    /// The CPU; above [`CpuId::MAX`] when the slot is unset or mixed.
    #[inline(always)]
    fn cpu(self) -> CpuId {
        CpuId::from_raw(self.cpu_plus_1.wrapping_sub(1))
    }
}

/// Where a packet goes that is wanted on `want` and whose slot is `flow`, outside a transition. The
/// order rule. A flow may go to another CPU when
///
/// - its slot is unset (nothing of it was ever queued), or mixed (a transition is over, and so is
///   all that was under way in it); or
/// - the CPU in its slot has *completed* the last packet queued there: nothing of it is under way.
///   (That holds for a CPU that is gone as well: its queue is taken over, and its numbers are
///   completed by whoever processes it.)
///
/// Otherwise it follows its slot, and queues behind its own packets. A slot that says `want` already
/// needs no look at the queue.
///
/// Broken, the scheduler of `rxsteer-order` finds packets out of order within seconds; its test
/// `without_the_guard_flows_are_reordered` makes `has_completed` say yes to everything.
#[inline(always)]
pub(crate) fn allowed<B: Backlogs>(flow: DevFlow, want: CpuId, backlogs: &mut B) -> CpuId {
    let current = flow.cpu();
    if current != want
        && current <= CpuId::MAX
        && !backlogs.has_completed(flow.producer, current, flow.last_seq)
    {
        return current;
    }
    want
}

/// The flow tables of a producer's RX queues, all of one size: the kernel's `rps_dev_flow_table`s.
#[derive(Clone, Debug)]
pub(crate) struct FlowTables {
    /// For each table its `1 << log` slots, and one for packets without a flow.
    slots: Box<[DevFlow]>,
    log: u32,
    /// By RX queue the index of its table; queues that are not this producer's share the first.
    table_of_queue: Arc<[u16]>,
}

impl FlowTables {
    /// Unset tables of `1 << log` slots for the queues whose tables `table_of_queue` numbers.
    pub(crate) fn new(log: u32, table_of_queue: &Arc<[u16]>) -> FlowTables {
        let tables = table_of_queue.iter().max().map_or(1, |last| usize::from(*last) + 1);
        FlowTables {
            slots: vec![DevFlow::default(); tables * row(log)].into(),
            log,
            table_of_queue: table_of_queue.clone(),
        }
    }

    /// No tables, for rules that need none.
    pub(crate) fn none(table_of_queue: &Arc<[u16]>) -> FlowTables {
        FlowTables { slots: Box::new([]), log: 0, table_of_queue: table_of_queue.clone() }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn log(&self) -> u32 {
        self.log
    }

    /// Which slot is the packet's.
    #[inline(always)]
    pub(crate) fn index(&self, packet: &Arrival) -> u32 {
        let queue = self.table_of_queue.get(usize::from(packet.rx_queue));
        let table = u32::from(queue.copied().unwrap_or(0)) * row(self.log) as u32;
        // A queue that is not there has no flows.
        if packet.hash.is_none() || queue.is_none() {
            return table + (1 << self.log);
        }
        table + hash_32(packet.hash.get(), self.log)
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> DevFlow {
        self.slots[index as usize]
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, index: u32, flow: DevFlow) {
        self.slots[index as usize] = flow;
    }
}

/// Slots of one table with `1 << log` flows.
#[inline(always)]
const fn row(log: u32) -> usize {
    (1 << log) + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hash_32_is_the_kernels() {
        assert_eq!(hash_32(1, 0), 0);
        assert_eq!(hash_32(1, 8), 0x61);
        assert_eq!(hash_32(0xffff_ffff, 16), 0x9e37);
        assert_eq!(hash_32(3, 32), 3u32.wrapping_mul(0x61c8_8647));
    }

    #[test]
    fn slots_keep_what_they_are_told() {
        assert_eq!(DevFlow::default().last(), None);
        for cpu in [CpuId::new(0).unwrap(), CpuId::MAX] {
            let flow = DevFlow::queued(cpu, 1023, u32::MAX);
            assert_eq!((flow.last(), flow.period()), (Some((cpu, 1023, u32::MAX)), None));
        }
        let mixed = DevFlow::mixed(0x1234_5678_9abc);
        assert_eq!((mixed.last(), mixed.period()), (None, Some(0x1234_5678_9abc)));
        assert!(mixed.cpu() > CpuId::MAX && DevFlow::default().cpu() > CpuId::MAX);
    }
}
