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
//! - a slot is written only for a packet that got room in a queue;
//! - flows that share a slot share its fate; no tag may let one of them pass;
//! - numbers wrap: they are compared by signed difference ([`Backlogs::has_completed`]). A slot so
//!   old that its number seems to lie ahead holds its flow where it was, until the next packet
//!   renews it: it can only hold, never permit.

use crate::backlogs::{Arrival, Backlogs};
use crate::cpu::CpuId;
use crate::limits::{MAX_FLOW_CNT_OF_ALL, MAX_RX_QUEUES};
use crate::plan::{Rules, Target};
use crate::slot::{GOLDEN_RATIO_32, SlotOrder, upper_bits};
use alloc::boxed::Box;
use alloc::vec;

/// One slot of a flow table: where the last packet of its flows went. All zero is unset.
///
/// `repr(C)`, 8 bytes: the BPF side reads and writes the same.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevFlow {
    /// The packet's number in the queue from its producer to its CPU.
    last_seq: u32,
    /// Bits 0–13 the CPU plus one, 0 while unset; bits 14–27 the producer; bits 28–31 the
    /// hysteresis: how many packets in a row may still follow the slot rather than their target.
    packed: u32,
}

const _: () = assert!(size_of::<DevFlow>() == 8);

const CPU_BITS: u32 = 14;
const CPU_MASK: u32 = (1 << CPU_BITS) - 1;
const HYSTERESIS_SHIFT: u32 = 2 * CPU_BITS;

/// How often in a row packets that nothing but their hash places follow a slot whose packets are all
/// completed, before one takes it elsewhere.
pub const HYSTERESIS: u32 = 7;

const _: () = assert!((CpuId::MAX.get() as u32) < CPU_MASK && HYSTERESIS < 16);

impl DevFlow {
    /// The slot after a packet with the target `target` went to `cpu` as number `last_seq` of
    /// `producer`.
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

    /// How many packets in a row may still follow the slot rather than their target.
    #[must_use]
    pub fn hysteresis(self) -> u32 {
        self.packed >> HYSTERESIS_SHIFT
    }

    /// Whether the last packet may still be under way, and where.
    pub(crate) fn waiting<B: Backlogs>(self, backlogs: &mut B) -> Option<CpuId> {
        let (cpu, producer, last_seq) = self.last()?;
        (!backlogs.has_completed(producer, cpu, last_seq)).then_some(cpu)
    }

    /// A slot as it is stored.
    #[inline(always)]
    #[must_use]
    pub const fn of_words([last_seq, packed]: [u32; 2]) -> DevFlow {
        DevFlow { last_seq, packed }
    }

    /// The same slot when no packet may follow it rather than its target.
    pub(crate) const fn without_hysteresis(self) -> DevFlow {
        DevFlow { packed: self.packed & !(u32::MAX << HYSTERESIS_SHIFT), ..self }
    }

    /// As it is stored.
    #[inline(always)]
    #[must_use]
    pub const fn words(self) -> [u32; 2] {
        [self.last_seq, self.packed]
    }

    /// Something of it, for a load whose value is not needed.
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

/// Where a packet goes whose target is `target` and whose slot is `flow`, outside a transition. The
/// order rule. A flow may go to another CPU when
///
/// - its slot is unset: nothing of it was ever queued; or
/// - the CPU in its slot has *completed* the last packet queued there: nothing of it is under way.
///   (That holds for a CPU that is gone as well: its queue is taken over, and its numbers are
///   completed by whoever processes it.)
///
/// Otherwise it follows its slot, and queues behind its own packets. A slot that says `target`
/// already needs no look at the queue.
///
/// Broken, the scheduler of `rxsteer-order` finds packets out of order within seconds; its test
/// `without_the_guard_flows_are_reordered` makes `has_completed` say yes to everything.
///
/// Beyond the rule, for the sake of those who share the slot: a packet that nothing but its hash places (or that
/// nothing places, and so is to stay where it is received: [`crate::policy::Fallback`]) follows a completed slot
/// too, while the slot has hysteresis left and its CPU is online and in a CPU map. It has [`HYSTERESIS`] anew
/// with every packet whose target is where it went. So a flood of new flows does not carry an established flow
/// off with it: most slots are met by few of its packets before one of the flow comes again.
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

/// Beside a slot's index: the packet is not steered. No table is so large that it needs the bit.
pub(crate) const UNSTEERED: u32 = 1 << 31;

const _: () = assert!(MAX_FLOW_CNT_OF_ALL + (MAX_RX_QUEUES as u64) < UNSTEERED as u64);

/// The flow tables of a producer's RX queues, all of one size: the kernel's `rps_dev_flow_table`s.
#[derive(Clone, Debug)]
pub(crate) struct FlowTables {
    /// For each table its `1 << log` slots, and one for packets without a flow. The words of
    /// [`DevFlow`]s, since an array of numbers is had zeroed, page by page as it is used.
    slots: Box<[[u32; 2]]>,
    log: u32,
    /// What a hash is multiplied by before its upper bits are taken.
    multiplier: u32,
    /// By RX queue where its table begins; queues that are not this producer's share the first.
    bases: Box<[u32]>,
}

impl FlowTables {
    /// Unset tables of `1 << log` slots for the queues whose tables `table_of_queue` numbers.
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

    /// Which slot is the packet's.
    #[inline(always)]
    pub(crate) fn index(&self, packet: &Arrival) -> u32 {
        self.find(packet) & !UNSTEERED
    }

    /// The same, with [`UNSTEERED`] for a packet that has no flow or whose queue is not there.
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

/// So many unset slots.
pub(crate) fn unset(slots: usize) -> Box<[[u32; 2]]> {
    vec![[0; 2]; slots].into()
}

/// Slots of one table with `1 << log` flows.
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
