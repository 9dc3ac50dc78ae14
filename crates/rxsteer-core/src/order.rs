//! The order guard: when a flow may move to another CPU. Every decision that can differ from the flow's last one
//! passes through it, whichever rule made the decision.
//!
//! ```text
//!   flow table of an RX queue              CPU a's queue
//!   slot: CPU a, producer, sequence 7 ───► … 5 6 7 │ 8 9 …     completed up to here: 7 is done,
//!                                                  ▲           the flow may go elsewhere
//! ```
//!
//! Source: "rfs: Receive Flow Steering", the `rps_dev_flow_table`. Three things differ. *Every* accepted packet
//! writes its slot, not only packets that RFS steered, since a flow placed by hash or by a sparse slot has packets
//! under way too. The number in the slot is that of the packet itself. A number counts as completed when the
//! processing of the packet is complete, not when the packet was taken from the queue.
//!
//! Invariants:
//! - A slot is written only for a packet that got room in a queue.
//! - Flows that share a slot are held back together. No tag may let one of them pass.
//! - Numbers wrap and are compared by signed difference ([`Backlogs::has_completed`]). The number in a very old
//!   slot can seem to lie ahead. Such a slot keeps its flows where they were until the next packet renews it: an
//!   old number can only hold a flow back, never let it move.

use crate::backlogs::{Arrival, Backlogs};
use crate::cpu::CpuId;
use crate::limits::{MAX_FLOW_CNT_OF_ALL, MAX_RX_QUEUES};
use crate::plan::Rules;
use crate::slot::{GOLDEN_RATIO_32, SlotOrder, upper_bits};
use crate::target::Target;
use alloc::boxed::Box;
use alloc::vec;

/// One slot of a flow table: where the last packet of its flows went. A slot of all zeros is unset.
///
/// `repr(C)`, 8 bytes: the BPF side reads and writes the same bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevFlow {
    /// The sequence number of the packet in the queue from its producer to its CPU.
    last_seq: u32,
    /// Bits 0–13: the CPU plus one, 0 while unset. Bits 14–27: the producer. Bits 28–31: the hysteresis, that is
    /// how many packets in a row may still follow the slot instead of their target.
    packed: u32,
}

const _: () = assert!(size_of::<DevFlow>() == 8);

const CPU_BITS: u32 = 14;
const CPU_MASK: u32 = (1 << CPU_BITS) - 1;
const HYSTERESIS_SHIFT: u32 = 2 * CPU_BITS;

/// How many packets in a row may follow a slot whose packets are all completed, before the next packet moves the
/// flow. It applies to packets that only their hash places.
pub const HYSTERESIS: u32 = 7;

const _: () = assert!((CpuId::MAX.get() as u32) < CPU_MASK && HYSTERESIS < 16);

impl DevFlow {
    /// The slot after a packet with the target `target` was queued to `cpu` as number `last_seq` of `producer`.
    #[inline(always)]
    #[must_use]
    pub const fn queued(self, cpu: CpuId, target: CpuId, producer: u16, last_seq: u32) -> DevFlow {
        let hysteresis = if cpu.get() == target.get() {
            HYSTERESIS
        } else {
            (self.packed >> HYSTERESIS_SHIFT).saturating_sub(1)
        };
        let producer = (producer as u32 & CPU_MASK) << CPU_BITS;
        let packed = hysteresis << HYSTERESIS_SHIFT | producer | (cpu.get() as u32 + 1);
        DevFlow { last_seq, packed }
    }

    /// The CPU, producer and number of the last packet; `None` when unset.
    #[must_use]
    pub fn last(self) -> Option<(CpuId, u16, u32)> {
        (self.cpu() != CpuId::NONE).then(|| (self.cpu(), self.producer(), self.last_seq))
    }

    /// How many packets in a row may still follow the slot instead of their target.
    #[must_use]
    pub fn hysteresis(self) -> u32 {
        self.packed >> HYSTERESIS_SHIFT
    }

    /// The CPU of the last packet, if that packet may still be under way.
    pub(crate) fn waiting<B: Backlogs>(self, backlogs: &mut B) -> Option<CpuId> {
        let (cpu, producer, last_seq) = self.last()?;
        (!backlogs.has_completed(producer, cpu, last_seq)).then_some(cpu)
    }

    /// A slot from its stored words.
    #[inline(always)]
    #[must_use]
    pub const fn of_words([last_seq, packed]: [u32; 2]) -> DevFlow {
        DevFlow { last_seq, packed }
    }

    /// The same slot without hysteresis: no packet may follow it instead of its target.
    pub(crate) const fn without_hysteresis(self) -> DevFlow {
        DevFlow { packed: self.packed & !(u32::MAX << HYSTERESIS_SHIFT), ..self }
    }

    /// The words to store.
    #[inline(always)]
    #[must_use]
    pub const fn words(self) -> [u32; 2] {
        [self.last_seq, self.packed]
    }

    /// A word of the slot, for a load whose value is not needed.
    #[inline(always)]
    pub(crate) fn loaded(self) -> u32 {
        self.last_seq
    }

    /// The CPU; [`CpuId::NONE`] when the slot is unset.
    #[inline(always)]
    fn cpu(self) -> CpuId {
        CpuId::from_raw((self.packed & CPU_MASK).wrapping_sub(1) as u16)
    }

    #[inline(always)]
    fn producer(self) -> u16 {
        (self.packed >> CPU_BITS & CPU_MASK) as u16
    }
}

/// The order rule: the CPU for a packet with the target `target` and the slot `flow`, outside a transition. A flow
/// may move to another CPU when
///
/// - its slot is unset: no packet of the flow was ever queued; or
/// - the CPU in its slot has *completed* the last packet queued there: no packet of the flow is under way. This
///   also holds for a CPU that went offline: another worker takes over its queue and completes its numbers.
///
/// Otherwise the packet follows the slot and queues behind the flow's earlier packets. When the slot already names
/// `target`, the queue need not be examined.
///
/// If this rule is broken, the scheduler of `rxsteer-order` finds packets out of order within seconds. Its test
/// `without_the_guard_flows_are_reordered` makes `has_completed` always return true.
///
/// One rule protects flows that share a slot. It applies to a packet that only its hash places, and to a packet
/// that no rule places and that therefore stays where it is received ([`crate::policy::Fallback`]). Such a packet
/// follows a completed slot too, while the slot has hysteresis left and the slot's CPU is online and in a CPU map.
/// Every packet that goes to its target resets the slot's hysteresis to [`HYSTERESIS`]. So a flood of new flows
/// does not move an established flow: few packets of the flood meet its slot before the next packet of the flow
/// arrives.
#[inline(always)]
pub(crate) fn allowed<B: Backlogs>(
    flow: DevFlow,
    target: Target,
    rules: &Rules,
    backlogs: &mut B,
) -> CpuId {
    let current = flow.cpu();
    if current != target.cpu && current != CpuId::NONE {
        let follows = flow.hysteresis() != 0 && rules.may_linger(target.by, current);
        if follows || !backlogs.has_completed(flow.producer(), current, flow.last_seq) {
            return current;
        }
    }
    target.cpu
}

/// A bit beside a slot's index: the packet is not steered. No table is large enough to need this bit.
pub(crate) const UNSTEERED: u32 = 1 << 31;

const _: () = assert!(MAX_FLOW_CNT_OF_ALL + (MAX_RX_QUEUES as u64) < UNSTEERED as u64);

/// The flow tables of a producer's RX queues, all of one size: the kernel's `rps_dev_flow_table`.
#[derive(Clone, Debug)]
pub(crate) struct FlowTables {
    /// For each table, `1 << log` slots and one slot for packets without a flow. The slots are stored as the words
    /// of [`DevFlow`], since the system supplies an array of numbers zeroed, page by page as it is used.
    slots: Box<[[u32; 2]]>,
    log: u32,
    /// The factor that is applied to a hash before its upper bits are taken.
    multiplier: u32,
    /// For each RX queue, where its table begins. Queues of other producers share the first table.
    bases: Box<[u32]>,
}

impl FlowTables {
    /// Unset tables of `1 << log` slots. `table_of_queue` gives the table number of each queue.
    pub(crate) fn new(log: u32, order: SlotOrder, table_of_queue: &[u16]) -> FlowTables {
        let tables = table_of_queue.iter().max().map_or(1, |last| usize::from(*last) + 1);
        let base = |table: &u16| u32::from(*table) * row(log) as u32;
        FlowTables {
            slots: unset(tables * row(log)),
            log,
            multiplier: match order {
                SlotOrder::Scattered => GOLDEN_RATIO_32,
                SlotOrder::Ascending => 1,
            },
            bases: table_of_queue.iter().map(base).collect(),
        }
    }

    /// No tables, for rules that need none.
    pub(crate) fn none() -> FlowTables {
        FlowTables { slots: Box::new([]), log: 0, multiplier: 1, bases: Box::new([]) }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn log(&self) -> u32 {
        self.log
    }

    /// The index of the packet's slot.
    #[inline(always)]
    pub(crate) fn index(&self, packet: &Arrival) -> u32 {
        self.find(packet) & !UNSTEERED
    }

    /// The index of the packet's slot, with [`UNSTEERED`] for a packet without a flow or of a queue that does not
    /// exist.
    #[inline(always)]
    pub(crate) fn find(&self, packet: &Arrival) -> u32 {
        let without_flow = UNSTEERED | 1 << self.log;
        match self.bases.get(usize::from(packet.rx_queue)) {
            Some(base) if packet.hash.is_none() => base + without_flow,
            Some(base) => {
                base + upper_bits(packet.hash.get().wrapping_mul(self.multiplier), self.log)
            }
            None => without_flow,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> DevFlow {
        DevFlow::of_words(self.slots[index as usize])
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, index: u32, flow: DevFlow) {
        self.slots[index as usize] = flow.words();
    }
}

/// `slots` unset slots.
pub(crate) fn unset(slots: usize) -> Box<[[u32; 2]]> {
    vec![[0; 2]; slots].into()
}

/// The number of slots of one table for `1 << log` flows.
#[inline(always)]
pub(crate) const fn row(log: u32) -> usize {
    (1 << log) + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_what_is_recorded() {
        let cpu = |id| CpuId::new(id).unwrap();
        assert_eq!(DevFlow::default().last(), None);
        for at in [cpu(0), CpuId::MAX] {
            for producer in [0, 1023, 8191] {
                let flow = DevFlow::default().queued(at, at, producer, u32::MAX);
                assert_eq!(flow.last(), Some((at, producer, u32::MAX)));
                assert_eq!(DevFlow::of_words(flow.words()), flow);
            }
        }
    }

    #[test]
    fn hysteresis_runs_out_and_is_renewed() {
        let [here, there] = [3, 4].map(|id| CpuId::new(id).unwrap());
        let mut flow = DevFlow::default().queued(here, here, 0, 0);
        for left in (0..HYSTERESIS).rev().chain([0]) {
            flow = flow.queued(here, there, 0, 0);
            assert_eq!(flow.hysteresis(), left);
        }
        assert_eq!(flow.queued(here, here, 0, 0).hysteresis(), HYSTERESIS);
    }
}
