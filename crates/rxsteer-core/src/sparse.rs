//! Sparse flows: while there are few, each gets a CPU of its own instead of what its hash says.
//!
//! ```text
//!               CPU 1   CPU 2   CPU 3        the map's CPUs, walked from last to first,
//!   loop 0        3       2       1          one loop after the other: the first flow gets CPU 3,
//!   loop 1        6       5       4          the second CPU 2, …
//!   …
//!   none free, or a flow was hashed within the last second: the hash decides
//! ```
//!
//! Source: sparse-patch (`find_cpu`). A slot holds a flow, known by
//! device and hash, and when it was last seen; after a second without a packet it is free.
//!
//! What must hold:
//! - slots belong to the CPU: all devices and RX queues share them, whatever their maps;
//! - looking a flow up and giving it a slot are two passes; a flow that holds several slots uses
//!   the first in walk order;
//! - no slot is given away while a flow that is hashed sends (`hash_active` within a second): it
//!   could be pulled into a slot while its packets wait elsewhere. (Here the order guard would hold
//!   it back, but the decisions of sparse-patch are kept exactly.)
//! - exactly a second old is active; a time that lies ahead of now is not.
//!
//! sparse-patch walks `loops × CPUs` slots for each packet. Here flows that hold slots are found
//! through chains by hash, so a lookup costs the same whatever their number; only giving a slot away
//! walks, and where all are taken that happens once a second.
//!
//! The times are the packets' own, and must be as those of one clock for all producers: sparse-patch
//! reads jiffies. Packets of several queues that come in lists are not in the order of their times;
//! it is for the caller to see that none seems to lie ahead of another (the receive path does).
//!
//! Several threads may look and give away at a time. Giving away is one thread's at a time; another
//! waits for it a moment, and then goes by hash, which is not counted as hashing. A lookup beside it may miss, or meet a slot just
//! given to another flow; either is a target like any other to the order guard.

use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::slot::hash_32;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, spin_loop};
use alloc::boxed::Box;
use alloc::vec;

/// Most loops: slots per CPU.
pub const MAX_LOOPS: u8 = 5;

/// Loops by default (`CONFIG_NR_RPS_MAP_LOOPS`).
pub const DEFAULT_LOOPS: u8 = 4;

/// A slot is free, and hashing is over, when nothing was seen for longer than this.
pub const INACTIVE_AFTER_NS: u64 = 1_000_000_000;

/// Slots per CPU in the table: the power of two above [`MAX_LOOPS`].
const ROW: usize = 8;

/// How often a thread looks whether another has done giving a slot away.
const MOST_LOOKS: u32 = if cfg!(loom) { 2 } else { 1000 };

/// In a map's positions: the CPU is not in the map.
const NOWHERE: u16 = u16::MAX;

/// When something was last seen, plus one; 0 is never.
#[derive(Debug, Default)]
#[repr(transparent)]
struct LastSeen(AtomicU64);

impl LastSeen {
    /// Whether it was seen within the last second (`!FLOW_INACTIVE`).
    #[inline(always)]
    fn is_active(&self, now_ns: u64) -> bool {
        // ORDER: Relaxed, here and below; a time is a hint and the whole message.
        match self.0.load(Ordering::Relaxed).checked_sub(1) {
            None => false,
            Some(then) => then <= now_ns && now_ns - then <= INACTIVE_AFTER_NS,
        }
    }

    /// Whether it was seen within the last second; then it is seen now.
    #[inline(always)]
    fn touch_if_active(&self, now_ns: u64) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        let now = now_ns.saturating_add(1);
        let is_active = seen != 0 && seen <= now && now - seen <= INACTIVE_AFTER_NS;
        if is_active && seen != now {
            self.0.store(now, Ordering::Relaxed);
        }
        is_active
    }

    #[inline(always)]
    fn touch(&self, now_ns: u64) {
        let now = now_ns.saturating_add(1);
        // A line that many read is written only when it changes.
        if self.0.load(Ordering::Relaxed) != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}

/// One slot of one CPU. 24 bytes.
#[derive(Debug, Default)]
#[repr(C)]
struct Slot {
    /// `device + 1` above the hash; 0 while no flow ever had the slot.
    flow: AtomicU64,
    last_seen: LastSeen,
    /// Index of the next slot of the same chain plus one; 0 at its end.
    next: AtomicU32,
    reserved: u32,
}

/// When a producer last let the hash decide. A line of its own each, so that receiving CPUs under
/// load don't write one another's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HashActive(LastSeen);

/// The slots of all CPUs: one table for all devices and RX queues.
#[derive(Debug)]
pub struct SparseTable {
    /// [`ROW`] per CPU id, of which the first `loops` are used.
    slots: Box<[Slot]>,
    /// For each chain the index of its first slot plus one; 0 when it is empty.
    chains: Box<[AtomicU32]>,
    chains_log: u32,
    /// By producer. Together they are sparse-patch's one `hash_active`.
    hash_active: Box<[HashActive]>,
    /// Whether a thread is giving a slot away.
    giving: AtomicBool,
}

/// How an RX queue's map is walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The CPUs of the map that can be used now, in the map's order.
    cpus: Box<[CpuId]>,
    /// For each CPU id its index in `cpus`, or [`NOWHERE`].
    positions: Box<[u16]>,
}

impl Walk {
    /// The walk over `cpus`, of which those that can't be used are absent.
    pub(crate) fn new(cpus: impl Iterator<Item = CpuId>) -> Walk {
        let cpus: Box<[CpuId]> = cpus.collect();
        let rows = cpus.iter().map(|cpu| cpu.index() + 1).max().unwrap_or(0);
        let mut positions = vec![NOWHERE; rows].into_boxed_slice();
        for (position, cpu) in (0..).zip(&cpus) {
            positions[cpu.index()] = position;
        }
        Walk { cpus, positions }
    }

    /// When the walk comes to `loop_`'s slot of `cpu`: 0 is first. `None` where it never does.
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

/// A flow that asks for its slot.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) device: u16,
    pub(crate) hash: FlowHash,
    pub(crate) now_ns: u64,
    /// Who asks: the producer's number.
    pub(crate) producer: u16,
}

/// A slot, as people count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    /// Whose slot.
    pub cpu: CpuId,
    /// In which loop, from 0.
    pub loop_: u8,
}

/// A slot that was given away, as another table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// Which slot.
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
        // Far more chains than slots: most flows without a slot are known by an empty chain, and the
        // CPU guesses that right.
        let chains = (slots * 8).next_power_of_two();
        SparseTable {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            chains: (0..chains).map(|_| AtomicU32::new(0)).collect(),
            chains_log: chains.trailing_zeros(),
            hash_active: (0..producers.max(1)).map(|_| HashActive::default()).collect(),
            giving: AtomicBool::new(false),
        }
    }

    /// The `find_cpu` of sparse-patch: the flow's slot, else a free one if slots may be given away,
    /// else `None`, and hashing is active.
    #[inline(always)]
    pub(crate) fn find(&self, asking: &Asking, walk: &Walk, loops: u8) -> Option<CpuId> {
        if let Some(slot) = self.held(asking, walk, loops) {
            self.slots[slot].last_seen.touch(asking.now_ns);
            return Some(cpu_of(slot));
        }
        // Under load this producer hashed something just now, and that decides it.
        if self.own_row(asking.producer).touch_if_active(asking.now_ns) {
            return None;
        }
        self.place(asking, walk, loops)
    }

    /// The second pass, and the hash.
    #[cold]
    #[inline(never)]
    fn place(&self, asking: &Asking, walk: &Walk, loops: u8) -> Option<CpuId> {
        if !self.is_hash_active(asking) {
            // While another thread is at it the hash decides, this once, and hashing is not called
            // active for it: that would keep slots from all flows as long as this flow sends.
            if let Some(slot) = self.alone(|| self.find_free(asking, walk, loops))? {
                return Some(cpu_of(slot));
            }
        }
        self.own_row(asking.producer).touch(asking.now_ns);
        None
    }

    /// Does something while no other thread gives slots away; `None` when one is at it and doesn't
    /// end.
    fn alone<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        // ORDER: Acquire; pairs with the Release below: one thread at a time changes chains.
        let mut looks = 0;
        while self.giving.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks == MOST_LOOKS {
                return None;
            }
            spin_loop();
        }
        let result = work();
        // ORDER: Release; pairs with the Acquire above.
        self.giving.store(false, Ordering::Release);
        Some(result)
    }

    /// Gives the flow a free slot, if it did not get one a moment ago through another thread.
    fn find_free(&self, asking: &Asking, walk: &Walk, loops: u8) -> Option<usize> {
        if let Some(slot) = self.held(asking, walk, loops) {
            return Some(slot);
        }
        let slot = self.free(asking.now_ns, walk, loops)?;
        self.give(slot, asking);
        Some(slot)
    }

    /// The slot that `find` would use, without touching anything.
    pub(crate) fn look(&self, asking: &Asking, walk: &Walk, loops: u8) -> Option<(SlotId, bool)> {
        let id = |slot: usize| SlotId { cpu: cpu_of(slot), loop_: (slot % ROW) as u8 };
        if let Some(slot) = self.held(asking, walk, loops) {
            return Some((id(slot), true));
        }
        if self.is_hash_active(asking) {
            return None;
        }
        self.free(asking.now_ns, walk, loops).map(|slot| (id(slot), false))
    }

    /// Whether a flow was hashed within the last second, so that no slot is given away.
    pub(crate) fn is_hash_active(&self, asking: &Asking) -> bool {
        self.hash_active.iter().any(|row| row.0.is_active(asking.now_ns))
    }

    #[inline(always)]
    fn own_row(&self, producer: u16) -> &LastSeen {
        &self.hash_active.get(usize::from(producer)).unwrap_or(&self.hash_active[0]).0
    }

    /// The first active slot in walk order that the flow holds.
    #[inline(always)]
    fn held(&self, asking: &Asking, walk: &Walk, loops: u8) -> Option<usize> {
        let flow = flow_of(asking);
        // ORDER: Acquire; pairs with the Release in `give`: a slot that is reached was filled.
        let head = self.chains[self.chain(flow)].load(Ordering::Acquire);
        if head == 0 {
            return None;
        }
        let index = head as usize - 1;
        // Nearly always a chain holds one slot.
        if self.slots[index].next.load(Ordering::Acquire) == 0 {
            return self.rank(index, flow, asking, walk, loops).map(|_| index);
        }
        self.first_held(head, flow, asking, walk, loops)
    }

    /// The same where the chain of slots that begins with `head` is longer.
    #[cold]
    fn first_held(
        &self,
        head: u32,
        flow: u64,
        asking: &Asking,
        walk: &Walk,
        loops: u8,
    ) -> Option<usize> {
        let mut first: Option<(usize, usize)> = None;
        // ORDER: Acquire, as above. A chain that changes meanwhile may lead into another; each slot
        // is asked whose it is, and the count ends a walk that a change has led in a circle.
        let mut next = head;
        let mut steps = self.slots.len();
        while next != 0 && steps != 0 {
            let index = next as usize - 1;
            if let Some(rank) = self.rank(index, flow, asking, walk, loops)
                && first.is_none_or(|(best, _)| rank < best)
            {
                first = Some((rank, index));
            }
            next = self.slots[index].next.load(Ordering::Acquire);
            steps -= 1;
        }
        first.map(|(_, index)| index)
    }

    /// When the walk comes to a slot, if the flow holds it and it is active.
    #[inline(always)]
    fn rank(
        &self,
        index: usize,
        flow: u64,
        asking: &Asking,
        walk: &Walk,
        loops: u8,
    ) -> Option<usize> {
        let slot = &self.slots[index];
        let holds = slot.flow.load(Ordering::Relaxed) == flow
            && index % ROW < usize::from(loops)
            && slot.last_seen.is_active(asking.now_ns);
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

    /// Makes `slot` the flow's. By one thread at a time.
    fn give(&self, slot: usize, asking: &Asking) {
        let link = slot as u32 + 1;
        let before = self.slots[slot].flow.load(Ordering::Relaxed);
        let flow = flow_of(asking);
        if before != 0 && before != flow {
            self.unlink(self.chain(before), link);
        }
        self.slots[slot].last_seen.touch(asking.now_ns);
        self.slots[slot].flow.store(flow, Ordering::Relaxed);
        if before != flow {
            let head = &self.chains[self.chain(flow)];
            // ORDER: Release, both; pair with the Acquires in `held`.
            self.slots[slot].next.store(head.load(Ordering::Relaxed), Ordering::Release);
            head.store(link, Ordering::Release);
        }
    }

    /// Makes a slot what another table has there. One that is not in this table is in no map either.
    pub(crate) fn restore(&self, state: &SlotState) {
        let at = state.slot.cpu.index() * ROW + usize::from(state.slot.loop_);
        if usize::from(state.slot.loop_) < ROW && at < self.slots.len() {
            let SlotState { device, hash, seen_ns, .. } = *state;
            self.give(at, &Asking { device, hash, now_ns: seen_ns, producer: 0 });
        }
    }

    /// A producer let the hash decide at that time.
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
        // Devices apart, so that a router's two halves of a flow are in two chains.
        let mixed = flow as u32 ^ ((flow >> 32) as u32).wrapping_mul(0x9e37_79b1);
        hash_32(mixed, self.chains_log) as usize
    }
}

fn flow_of(asking: &Asking) -> u64 {
    (u64::from(asking.device) + 1) << 32 | u64::from(asking.hash.get())
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

    fn asking(device: u16, hash: u32, now_ns: u64) -> Asking {
        Asking { device, hash: FlowHash::from_raw(hash), now_ns, producer: 0 }
    }

    fn table() -> SparseTable {
        SparseTable::new(CpuId::new(7).unwrap(), 2)
    }

    #[test]
    fn flows_are_laid_out_from_last_to_first_and_loop_by_loop() {
        let (table, walk) = (table(), walk("1-3"));
        let found: Vec<_> = (1..=7).map(|hash| table.find(&asking(0, hash, 5), &walk, 2)).collect();
        let cpus = [3, 2, 1, 3, 2, 1].map(CpuId::new);
        assert_eq!(found[..6], cpus);
        assert_eq!(found[6], None, "two loops of three are taken");
        assert_eq!(table.find(&asking(0, 2, 6), &walk, 2), CpuId::new(2), "it keeps its slot");
    }

    #[test]
    fn two_devices_with_one_flow_each_land_on_two_cpus() {
        let (table, walk) = (table(), walk("1-3"));
        assert_eq!(table.find(&asking(0, 9, 0), &walk, 4), CpuId::new(3));
        assert_eq!(table.find(&asking(1, 9, 0), &walk, 4), CpuId::new(2));
    }

    #[test]
    fn hashed_flow_keeps_others_from_slots_for_a_second() {
        let (table, walk) = (table(), walk("1"));
        for hash in 1..=2 {
            table.find(&asking(0, hash, 0), &walk, 1);
        }
        let again = |now| table.find(&asking(0, 2, now), &walk, 1);
        assert_eq!(again(SECOND), None, "exactly a second old is active, slot and hashing alike");
        assert_eq!(again(2 * SECOND), None, "its own packet a second ago was hashed");
        assert_eq!(again(3 * SECOND + 1), CpuId::new(1));
    }

    #[test]
    fn any_producers_hashing_counts() {
        let (table, walk) = (table(), walk("1"));
        let other = |hash, now_ns| Asking { producer: 1, ..asking(0, hash, now_ns) };
        table.find(&asking(0, 1, 0), &walk, 1);
        assert_eq!(table.find(&other(2, SECOND), &walk, 1), None);
        assert_eq!(table.find(&asking(0, 3, 2 * SECOND), &walk, 1), None, "it was not its own");
    }

    #[test]
    fn time_that_runs_back_is_inactive() {
        let (table, walk) = (table(), walk("1-2"));
        assert_eq!(table.find(&asking(0, 1, 100), &walk, 1), CpuId::new(2));
        assert_eq!(table.find(&asking(0, 2, 99), &walk, 1), CpuId::new(2), "that one was ahead");
        assert_eq!(table.find(&asking(0, 1, 100), &walk, 1), CpuId::new(1));
    }
}
