//! Sparse flows: while there are few flows, they get the CPUs in turn instead of the CPUs of their hashes.
//!
//! ```text
//!               CPU 1   CPU 2   CPU 3        the map's CPUs, walked from last to first,
//!   loop 0        3       2       1          one loop after the other: the first flow gets CPU 3,
//!   loop 1        6       5       4          the second CPU 2, …
//!   …
//!   none free, or a flow was hashed within the last second: the hash decides
//! ```
//!
//! Source: sparse-patch (`find_cpu`). A slot stores a flow (its device and hash) and the time when the flow was
//! last seen. A slot is free after a second without a packet.
//!
//! Invariants:
//! - Slots belong to the CPU: all devices and RX queues share them, with any map.
//! - Looking a flow up and giving it a slot are two passes. A flow that holds several slots uses the first one in
//!   walk order.
//! - No slot is given away while a hashed flow sends (`hash_active` within a second): that flow could be moved into a
//!   slot while its packets wait elsewhere. (Here the order guard would hold it back, but the decisions of sparse-patch
//!   are kept exactly.) With [admission](crate::admission) this holds for admitted flows; the order guard alone keeps the
//!   first packets of the others in order.
//! - A slot that is exactly a second old is active; a slot whose time lies in the future is not.
//!
//! sparse-patch walks `loops × CPUs` slots for each packet. Here hash chains lead to the flows that hold slots, so
//! the cost of a lookup does not depend on the number of slots. Only giving a slot away walks the slots. When all
//! slots are taken, this walk happens once a second.
//!
//! The times are the packets' own. For all producers they must be as if read from one clock, since sparse-patch
//! reads jiffies. Packets of several queues that arrive in lists are not in the order of their times. The caller
//! must ensure that no packet seems to lie ahead of another (the receive path does).
//!
//! Several threads may look slots up and give slots away at the same time. Only one thread at a time gives a slot
//! away. Another thread waits a moment for it, and then uses the hash without marking hashing as active. A
//! concurrent lookup may miss its slot, or find a slot that was just given to another flow. To the order guard,
//! either result is a target like any other.

use crate::admission::Candidates;
use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::last_seen::LastSeen;
use crate::slot::hash_32;
use crate::slot_request::{SlotRequest, flow_of, mixed};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, spin_loop};
use alloc::boxed::Box;
use alloc::vec;

pub use crate::admission::{DEFAULT_LOOPS, MAX_LOOPS};
pub use crate::last_seen::INACTIVE_AFTER_NS;
pub use crate::slot_request::identity;

/// Slots per CPU in the table: the next power of two above [`MAX_LOOPS`].
const ROW: usize = 8;

/// How often a thread checks whether another thread has finished giving a slot away.
const MAX_POLLS: u32 = if cfg!(loom) { 2 } else { 1000 };

/// In the positions of a map: the CPU is not in the map.
const NOWHERE: u16 = u16::MAX;

/// One slot of one CPU. 24 bytes.
#[derive(Debug, Default)]
#[repr(C)]
struct Slot {
    /// `device + 1` above the hash; 0 while no flow has ever held the slot.
    flow: AtomicU64,
    last_seen: LastSeen,
    /// Index plus one of the next slot of the same chain; 0 at the end of the chain.
    next: AtomicU32,
    reserved: u32,
}

/// When a producer last let the hash decide. Each producer has a cache line of its own, so that receiving CPUs
/// under load do not write one another's lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HashActive(LastSeen);

/// The slots of all CPUs: one table for all devices and RX queues.
#[derive(Debug)]
pub struct SparseTable {
    /// [`ROW`] slots per CPU id; the first `loops` of them are used.
    slots: Box<[Slot]>,
    /// For each chain, the index of its first slot plus one; 0 when the chain is empty.
    chains: Box<[AtomicU32]>,
    chains_log: u32,
    /// Indexed by producer. Together the rows are the single `hash_active` of sparse-patch.
    hash_active: Box<[HashActive]>,
    /// Whether a thread is giving a slot away.
    giving: AtomicBool,
}

/// The order in which the slots of an RX queue's map are walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The CPUs of the map that can be used now, in the map's order.
    cpus: Box<[CpuId]>,
    /// For each CPU id, its index in `cpus`, or [`NOWHERE`].
    positions: Box<[u16]>,
}

impl Walk {
    /// The walk over `cpus`, which excludes CPUs that can't be used now.
    pub(crate) fn new(cpus: impl Iterator<Item = CpuId>) -> Walk {
        let cpus: Box<[CpuId]> = cpus.collect();
        let rows = cpus.iter().map(|cpu| cpu.index() + 1).max().unwrap_or(0);
        let mut positions = vec![NOWHERE; rows].into_boxed_slice();
        for (position, cpu) in (0..).zip(&cpus) {
            positions[cpu.index()] = position;
        }
        Walk { cpus, positions }
    }

    /// The rank of the slot of `cpu` in `loop_` in the walk; 0 is first. `None` when the walk does not reach the
    /// slot.
    #[inline(always)]
    fn rank(&self, cpu: usize, loop_: usize) -> Option<usize> {
        match self.positions.get(cpu) {
            Some(&position) if position != NOWHERE => {
                Some(loop_ * self.cpus.len() + (self.cpus.len() - 1 - usize::from(position)))
            }
            _ => None,
        }
    }
}

/// Why a flow gets no sparse slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// A flow was hashed within the last second.
    HashActive,
    /// Every slot of the map is taken.
    AllTaken,
    /// The packet is not yet the one from which on its flow may get a slot ([`crate::admission`]).
    NotAdmitted {
        /// The packet's number within the flow's second, from 1.
        packet: u8,
        /// The number from which on the flow may get a slot.
        after: u8,
    },
}

/// The identity of a slot, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    /// The CPU of the slot.
    pub cpu: CpuId,
    /// The loop of the slot, from 0.
    pub loop_: u8,
}

/// The state of a slot in another table that was given to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// The slot.
    pub slot: SlotId,
    /// The device of the flow that holds it.
    pub device: u16,
    /// That flow's hash.
    pub hash: FlowHash,
    /// When that flow was last seen.
    pub seen_ns: u64,
}

impl SparseTable {
    /// Slots for CPUs up to `highest`, used by up to `producers` producers.
    pub(crate) fn new(highest: CpuId, producers: u16) -> SparseTable {
        let slots = (highest.index() + 1) * ROW;
        // There are far more chains than slots. So most flows without a slot meet an empty chain, and the CPU's
        // branch prediction is right about them.
        let chains = (slots * 8).next_power_of_two();
        SparseTable {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            chains: (0..chains).map(|_| AtomicU32::new(0)).collect(),
            chains_log: chains.trailing_zeros(),
            hash_active: (0..producers.max(1)).map(|_| HashActive::default()).collect(),
            giving: AtomicBool::new(false),
        }
    }

    /// The `find_cpu` of sparse-patch: the flow's slot; or a free slot if slots may be given away; or `None`, and
    /// hashing becomes active. `admission` counts flows without a slot; one with fewer packets than its number gets
    /// `None`, and hashing does not become active.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        request: &SlotRequest,
        walk: &Walk,
        loops: u8,
        admission: Option<(&Candidates, u8)>,
    ) -> Option<CpuId> {
        if let Some(slot) = self.held(request, walk, loops) {
            self.slots[slot].last_seen.touch(request.now_ns);
            return Some(cpu_of(slot));
        }
        if let Some((candidates, after)) = admission
            && candidates.count(request) < after
        {
            return None;
        }
        // Under load this producer hashed a flow just now, which decides the question.
        if self.own_row(request.producer).touch_if_active(request.now_ns) {
            return None;
        }
        self.place(request, walk, loops)
    }

    /// The second pass of `find`, or else the hash.
    #[cold]
    #[inline(never)]
    fn place(&self, request: &SlotRequest, walk: &Walk, loops: u8) -> Option<CpuId> {
        if !self.is_hash_active(request) {
            // While another thread gives a slot away, the hash decides this once, and hashing is not marked as
            // active. Otherwise no flow would get a slot as long as this flow sends.
            if let Some(slot) = self.alone(|| self.find_free(request, walk, loops))? {
                return Some(cpu_of(slot));
            }
        }
        self.own_row(request.producer).touch(request.now_ns);
        None
    }

    /// Runs `work` while no other thread gives slots away. Returns `None` when another thread does not finish in
    /// time.
    fn alone<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        // ORDER: Acquire; pairs with the Release below: one thread at a time changes chains.
        let mut polls = 0;
        while self.giving.swap(true, Ordering::Acquire) {
            polls += 1;
            if polls == MAX_POLLS {
                return None;
            }
            spin_loop();
        }
        let result = work();
        // ORDER: Release; pairs with the Acquire above.
        self.giving.store(false, Ordering::Release);
        Some(result)
    }

    /// Gives the flow a free slot, unless another thread has just given it one.
    fn find_free(&self, request: &SlotRequest, walk: &Walk, loops: u8) -> Option<usize> {
        if let Some(slot) = self.held(request, walk, loops) {
            return Some(slot);
        }
        let slot = self.free(request.now_ns, walk, loops)?;
        self.give(slot, request);
        Some(slot)
    }

    /// The slot that `find` would use. Changes nothing.
    pub(crate) fn peek(
        &self,
        request: &SlotRequest,
        walk: &Walk,
        loops: u8,
    ) -> Option<(SlotId, bool)> {
        let id = |slot: usize| SlotId { cpu: cpu_of(slot), loop_: (slot % ROW) as u8 };
        if let Some(slot) = self.held(request, walk, loops) {
            return Some((id(slot), true));
        }
        if self.is_hash_active(request) {
            return None;
        }
        self.free(request.now_ns, walk, loops).map(|slot| (id(slot), false))
    }

    /// Whether a flow was hashed within the last second, so that no slot may be given away.
    pub(crate) fn is_hash_active(&self, request: &SlotRequest) -> bool {
        self.hash_active.iter().any(|row| row.0.is_active(request.now_ns))
    }

    #[inline(always)]
    fn own_row(&self, producer: u16) -> &LastSeen {
        &self.hash_active.get(usize::from(producer)).unwrap_or(&self.hash_active[0]).0
    }

    /// The first active slot in walk order that the flow holds.
    #[inline(always)]
    fn held(&self, request: &SlotRequest, walk: &Walk, loops: u8) -> Option<usize> {
        let flow = flow_of(request);
        // ORDER: Acquire; pairs with the Release in `give`: a slot that is reached is already filled.
        let head = self.chains[self.chain(flow)].load(Ordering::Acquire);
        if head == 0 {
            return None;
        }
        let index = head as usize - 1;
        // A chain nearly always holds one slot.
        if self.slots[index].next.load(Ordering::Acquire) == 0 {
            return self.rank(index, flow, request, walk, loops).map(|_| index);
        }
        self.first_held(head, flow, request, walk, loops)
    }

    /// `held` for a chain of several slots that begins with `head`.
    #[cold]
    fn first_held(
        &self,
        head: u32,
        flow: u64,
        request: &SlotRequest,
        walk: &Walk,
        loops: u8,
    ) -> Option<usize> {
        let mut first: Option<(usize, usize)> = None;
        // ORDER: Acquire, as above. A chain that changes meanwhile may lead into another chain. The flow of each
        // slot is therefore checked, and the step count ends a walk that a change has turned into a circle.
        let mut next = head;
        let mut steps = self.slots.len();
        while next != 0 && steps != 0 {
            let index = next as usize - 1;
            if let Some(rank) = self.rank(index, flow, request, walk, loops)
                && first.is_none_or(|(best, _)| rank < best)
            {
                first = Some((rank, index));
            }
            next = self.slots[index].next.load(Ordering::Acquire);
            steps -= 1;
        }
        first.map(|(_, index)| index)
    }

    /// The rank of a slot in the walk, if the flow holds the slot and the slot is active.
    #[inline(always)]
    fn rank(
        &self,
        index: usize,
        flow: u64,
        request: &SlotRequest,
        walk: &Walk,
        loops: u8,
    ) -> Option<usize> {
        let slot = &self.slots[index];
        let holds = slot.flow.load(Ordering::Relaxed) == flow
            && index % ROW < usize::from(loops)
            && slot.last_seen.is_active(request.now_ns);
        if holds { walk.rank(index / ROW, index % ROW) } else { None }
    }

    /// The first slot in walk order that no flow holds.
    fn free(&self, now_ns: u64, walk: &Walk, loops: u8) -> Option<usize> {
        (0..usize::from(loops))
            .flat_map(|row| walk.cpus.iter().rev().map(move |cpu| cpu.index() * ROW + row))
            .find(|slot| {
                let slot = &self.slots[*slot];
                slot.flow.load(Ordering::Relaxed) == 0 || !slot.last_seen.is_active(now_ns)
            })
    }

    /// Gives `slot` to the flow. Only one thread at a time may call this.
    fn give(&self, slot: usize, request: &SlotRequest) {
        let link = slot as u32 + 1;
        let before = self.slots[slot].flow.load(Ordering::Relaxed);
        let flow = flow_of(request);
        if before != 0 && before != flow {
            self.unlink(self.chain(before), link);
        }
        self.slots[slot].last_seen.touch(request.now_ns);
        self.slots[slot].flow.store(flow, Ordering::Relaxed);
        if before != flow {
            let head = &self.chains[self.chain(flow)];
            // ORDER: Release, both; pair with the Acquires in `held`.
            self.slots[slot].next.store(head.load(Ordering::Relaxed), Ordering::Release);
            head.store(link, Ordering::Release);
        }
    }

    /// Sets a slot to its state in another table. A slot outside this table is in no map either, and is ignored.
    pub(crate) fn restore(&self, state: &SlotState) {
        let at = state.slot.cpu.index() * ROW + usize::from(state.slot.loop_);
        if usize::from(state.slot.loop_) < ROW && at < self.slots.len() {
            let SlotState { device, hash, seen_ns, .. } = *state;
            self.give(at, &SlotRequest { device, hash, now_ns: seen_ns, producer: 0 });
        }
    }

    /// Records that a producer let the hash decide at `seen_ns`.
    pub(crate) fn restore_hash_active(&self, producer: u16, seen_ns: u64) {
        self.own_row(producer).touch(seen_ns);
    }

    fn unlink(&self, chain: usize, link: u32) {
        let mut at = &self.chains[chain];
        loop {
            let next = at.load(Ordering::Relaxed);
            if next == 0 {
                debug_assert!(false, "a slot that was given stands in its chain");
                return;
            }
            let after = &self.slots[next as usize - 1].next;
            if next == link {
                // ORDER: Release; pairs with the Acquires in `held`.
                at.store(after.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            at = after;
        }
    }

    #[inline(always)]
    fn chain(&self, flow: u64) -> usize {
        hash_32(mixed(flow), self.chains_log) as usize
    }
}

#[inline(always)]
fn cpu_of(slot: usize) -> CpuId {
    CpuId::from_raw((slot / ROW) as u16)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SECOND: u64 = INACTIVE_AFTER_NS;

    fn walk(cpus: &str) -> Walk {
        Walk::new(cpus.parse::<crate::cpu::CpuSet>().unwrap().iter())
    }

    fn slot_request(device: u16, hash: u32, now_ns: u64) -> SlotRequest {
        SlotRequest { device, hash: FlowHash::from_raw(hash), now_ns, producer: 0 }
    }

    fn table() -> SparseTable {
        SparseTable::new(CpuId::new(7).unwrap(), 2)
    }

    #[test]
    fn flows_are_laid_out_from_last_to_first_and_loop_by_loop() {
        let (table, walk) = (table(), walk("1-3"));
        let found: Vec<_> =
            (1..=7).map(|hash| table.find(&slot_request(0, hash, 5), &walk, 2, None)).collect();
        let cpus = [3, 2, 1, 3, 2, 1].map(CpuId::new);
        assert_eq!(found[..6], cpus);
        assert_eq!(found[6], None, "two loops of three are taken");
        assert_eq!(
            table.find(&slot_request(0, 2, 6), &walk, 2, None),
            CpuId::new(2),
            "it keeps its slot"
        );
    }

    #[test]
    fn two_devices_with_one_flow_each_land_on_two_cpus() {
        let (table, walk) = (table(), walk("1-3"));
        assert_eq!(table.find(&slot_request(0, 9, 0), &walk, 4, None), CpuId::new(3));
        assert_eq!(table.find(&slot_request(1, 9, 0), &walk, 4, None), CpuId::new(2));
    }

    #[test]
    fn hashed_flow_keeps_others_from_slots_for_a_second() {
        let (table, walk) = (table(), walk("1"));
        for hash in 1..=2 {
            table.find(&slot_request(0, hash, 0), &walk, 1, None);
        }
        let again = |now| table.find(&slot_request(0, 2, now), &walk, 1, None);
        assert_eq!(again(SECOND), None, "exactly a second old is active, slot and hashing alike");
        assert_eq!(again(2 * SECOND), None, "its own packet a second ago was hashed");
        assert_eq!(again(3 * SECOND + 1), CpuId::new(1));
    }

    #[test]
    fn any_producers_hashing_counts() {
        let (table, walk) = (table(), walk("1"));
        let other = |hash, now_ns| SlotRequest { producer: 1, ..slot_request(0, hash, now_ns) };
        table.find(&slot_request(0, 1, 0), &walk, 1, None);
        assert_eq!(table.find(&other(2, SECOND), &walk, 1, None), None);
        assert_eq!(
            table.find(&slot_request(0, 3, 2 * SECOND), &walk, 1, None),
            None,
            "it was not its own"
        );
    }

    #[test]
    fn time_that_runs_back_is_inactive() {
        let (table, walk) = (table(), walk("1-2"));
        assert_eq!(table.find(&slot_request(0, 1, 100), &walk, 1, None), CpuId::new(2));
        assert_eq!(
            table.find(&slot_request(0, 2, 99), &walk, 1, None),
            CpuId::new(2),
            "that one was ahead"
        );
        assert_eq!(table.find(&slot_request(0, 1, 100), &walk, 1, None), CpuId::new(1));
    }
}
