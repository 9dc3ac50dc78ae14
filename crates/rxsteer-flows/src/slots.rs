//! The flows' statistics: for each flow a head, a block that comes with it, and blocks of further
//! CPUs, which are found by a short list of (CPU, block).
//!
//! ```text
//!  head line                                               first CPU's block   (next line)
//!  word 0‥4   5              6                     7
//!       key   stamp | state  CPU₁ | CPU₂, block₂   list ─► line of 7 × (CPU, block), list ─► …
//!                                          │                            │
//!                                          ▼                            ▼
//!                                   block of CPU₂                block of CPU₃
//!  shared line: for CPUs that got no block (a bit beside CPU₁ says that there are some)
//! ```
//!
//! ovs-stats keeps an array of pointers by CPU and a mask of the CPUs used,
//! both as long as there are possible CPUs. Here the list *is* the mask: it holds the CPUs that
//! touched the flow, whatever their ids, and nothing else. So a flow that ran on one CPU takes two
//! lines and one visit on any machine.
//!
//! The list only grows while the flow lives, and each CPU alone adds its own entry, in one word: no
//! reader ever sees half of it. It stands in the head, which all CPUs read and nearly none
//! writes, not in the blocks: looking for one's own block must not touch those of others.

mod used;

use crate::aging::Activity;
use crate::block;
use crate::lines::{Line, Lines, WORDS};
use crate::pool::{Magazine, Pool};
use crate::record::{CpuTotals, FlowPacket, FlowRecord, FlowTotals, Sample, SharedTotals};
use crate::sync::{AtomicU64, Ordering};
use rxsteer_core::{CpuId, FlowWords};
use std::collections::TryReserveError;

const STATE: usize = 5;
const CPUS: usize = 6;
const LIST: usize = 7;

/// No flow is in this slot.
pub(crate) const FREE: u32 = 0;
/// A flow that is in the table. Higher numbers: it was taken out, and why.
pub(crate) const LIVE: u32 = 1;

/// Beside the first CPU: the shared block is in use.
const SHARED: u64 = 1 << 15;

/// A CPU as the list has it, where 0 is none: 14 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTag(u64);

impl CpuTag {
    pub(crate) fn of(cpu: CpuId) -> CpuTag {
        CpuTag(u64::from(cpu.get()) + 1)
    }

    /// The CPU of a tag; only those of CPUs are ever written.
    fn cpu(tag: u16) -> CpuId {
        CpuId::new(tag.wrapping_sub(1)).unwrap_or(CpuId::NONE)
    }
}

/// The stamp after that of this state. It is never 0, which is that of a block no thread counted
/// in.
fn next_stamp(state: u64) -> u32 {
    ((state >> 32) as u32).wrapping_add(1).max(1)
}

/// What ovs-stats calls `flow->stats` and `cpu_used_mask`, for many flows.
///
/// This is the flow table without its keys' hash table: for those who have a table of their own,
/// and for the benchmarks against the walk over all possible CPUs. Numbers of slots are the
/// caller's affair: a slot is claimed, used and freed, and not touched in between by a thread that
/// doesn't know of it.
#[derive(Debug)]
pub struct FlowSlots {
    /// Head and first block of each slot.
    slots: Lines,
    shared: Lines,
    blocks: Lines,
    free_blocks: Pool,
}

/// One CPU's access to [`FlowSlots`]: no other thread may count as that CPU.
#[derive(Debug)]
pub struct SlotWriter {
    cpu: CpuTag,
    lines: Magazine,
}

impl SlotWriter {
    /// For `cpu`.
    #[must_use]
    pub fn new(cpu: CpuId) -> SlotWriter {
        SlotWriter { cpu: CpuTag::of(cpu), lines: Magazine::new() }
    }

    /// Gives back the blocks that lie ready here.
    pub fn release(&mut self, slots: &FlowSlots) {
        self.lines.empty(&slots.free_blocks);
    }
}

/// The two lines of a slot: the flow's head, and the block that comes with it.
pub(crate) type FlowLines = [AtomicU64; 2 * WORDS];

/// Whether the slot with this head holds the flow of this key, and it is in the table.
#[inline(always)]
pub(crate) fn is_live_with_key(head: &[AtomicU64], key: &FlowWords) -> bool {
    // ORDER: Acquire; pairs with the Release in `claim`: of a live flow the key is there.
    let mut differ = u64::from(head[STATE].load(Ordering::Acquire) as u32 ^ LIVE);
    for (word, key) in head.iter().zip(key.0) {
        differ |= word.load(Ordering::Relaxed) ^ key;
    }
    differ == 0
}

#[inline(always)]
fn first_block(flow: &FlowLines) -> &Line {
    match flow.last_chunk() {
        Some(block) => block,
        None => unreachable!("two lines have a last one"),
    }
}

/// Has both lines of a slot loaded.
#[inline(always)]
pub(crate) fn load(flow: &FlowLines) -> u64 {
    // ORDER: Relaxed; they are loaded for their lines to come, and looked at later.
    flow[STATE].load(Ordering::Relaxed) ^ flow[WORDS].load(Ordering::Relaxed)
}

impl FlowSlots {
    /// Room for `slots` flows and `blocks` blocks of further CPUs.
    ///
    /// # Errors
    /// When there isn't the memory.
    pub fn new(slots: u32, blocks: u32) -> Result<FlowSlots, TryReserveError> {
        Ok(FlowSlots {
            slots: Lines::new(slots as usize * 2)?,
            shared: Lines::new(slots as usize)?,
            blocks: Lines::new(blocks as usize)?,
            free_blocks: Pool::below(blocks),
        })
    }

    #[inline(always)]
    pub(crate) fn head(&self, slot: u32) -> &Line {
        self.slots.line(slot as usize * 2)
    }

    fn first_block(&self, slot: u32) -> &Line {
        first_block(&self.flows()[slot as usize])
    }

    /// The flow's stamp and state.
    #[inline(always)]
    pub(crate) fn state(&self, slot: u32) -> (u32, u32) {
        // ORDER: Acquire; pairs with the Release in `claim`: of a live flow the key and the first
        // block are there.
        let state = self.head(slot)[STATE].load(Ordering::Acquire);
        ((state >> 32) as u32, state as u32)
    }

    /// Head and first block of each slot.
    #[inline(always)]
    pub(crate) fn flows(&self) -> &[FlowLines] {
        self.slots.in_groups_of()
    }

    /// Whether the slot holds the flow of this key, and it is in the table.
    #[inline(always)]
    pub(crate) fn is_live_with_key(&self, slot: u32, key: &FlowWords) -> bool {
        is_live_with_key(self.head(slot), key)
    }

    pub(crate) fn key(&self, slot: u32) -> FlowWords {
        let head = self.head(slot);
        // ORDER: Relaxed, as above.
        FlowWords(std::array::from_fn(|word| head[word].load(Ordering::Relaxed)))
    }

    /// Makes a free slot that of a new flow, whose first packet this CPU saw: its block is the one
    /// that comes with the flow.
    pub(crate) fn claim_with_key(
        &self,
        slot: u32,
        key: &FlowWords,
        writer: &SlotWriter,
        packet: &Sample,
    ) {
        let head = self.head(slot);
        // ORDER: Relaxed; no other thread knows of the slot before the Release below.
        // Another stamp, so that what the shared block holds is no count of this flow, be it of
        // the last flow here or the zeroes it was made of.
        let stamp = next_stamp(head[STATE].load(Ordering::Relaxed));
        for (word, key) in head.iter().zip(key.0) {
            word.store(key, Ordering::Relaxed);
        }
        block::start(self.first_block(slot), stamp, packet);
        head[CPUS].store(writer.cpu.0, Ordering::Relaxed);
        head[LIST].store(0, Ordering::Relaxed);
        // ORDER: Release; pairs with the Acquire in `state`.
        head[STATE].store(u64::from(stamp) << 32 | u64::from(LIVE), Ordering::Release);
    }

    /// Makes a free slot that of a new flow, whose first packet this CPU saw: its block is the one
    /// that comes with the flow. Keys are kept elsewhere.
    pub fn claim(&self, slot: u32, writer: &SlotWriter, packet: &FlowPacket) {
        self.claim_with_key(slot, &FlowWords::default(), writer, &packet.sample());
    }

    /// Counts a packet where nothing has to be made or begun; `false` if it isn't counted: the CPU
    /// has no block in this flow, or the flow was cleared since or idle before.
    #[inline(always)]
    pub(crate) fn count_at_once(
        &self,
        flow: &FlowLines,
        writer: &SlotWriter,
        packet: &Sample,
        idle_timeout_ns: u64,
    ) -> bool {
        // ORDER: Relaxed; this CPU wrote the entry itself. The stamp is one number, and a clear at
        // this very moment may come before or after this packet.
        let cpus = flow[CPUS].load(Ordering::Relaxed);
        let stamp = (flow[STATE].load(Ordering::Relaxed) >> 32) as u32;
        let block = if cpus & (SHARED - 1) == writer.cpu.0 {
            first_block(flow)
        } else {
            match self.further_block(flow, cpus, writer.cpu) {
                Some(block) => block,
                None => return false,
            }
        };
        if !block::is_of(block, stamp)
            || packet.time_ns.saturating_sub(block::last_ns(block)) > idle_timeout_ns
        {
            return false;
        }
        block::add(block, packet);
        true
    }

    /// Counts a packet of a flow: in this CPU's block, or a new one, or the shared one.
    #[cold]
    pub(crate) fn count(&self, slot: u32, writer: &mut SlotWriter, packet: &Sample) {
        let (stamp, _) = self.state(slot);
        match self.own_block(slot, writer.cpu) {
            Some(block) if block::is_of(block, stamp) => block::add(block, packet),
            Some(block) => block::start_over(block, stamp, packet),
            None => {
                if !self.begin_block(slot, stamp, writer, packet) {
                    // ORDER: Relaxed; a reader that misses the bit reads as of before this packet.
                    // Once it has seen the bit it sees it for ever.
                    self.head(slot)[CPUS].fetch_or(SHARED, Ordering::Relaxed);
                    let stamp = || self.state(slot).0;
                    block::add_shared(self.shared.line(slot as usize), stamp, packet);
                }
            }
        }
    }

    /// Counts a packet of a flow.
    #[inline]
    pub fn update(&self, slot: u32, writer: &mut SlotWriter, packet: &FlowPacket) {
        let (flow, packet) = (&self.flows()[slot as usize], packet.sample());
        if !self.count_at_once(flow, writer, &packet, u64::MAX) {
            self.count(slot, writer, &packet);
        }
    }

    /// The flow's totals over all CPUs that used it.
    #[inline]
    pub fn read(&self, slot: u32) -> FlowTotals {
        self.between_clears(slot, |stamp| {
            let mut totals = FlowTotals::default();
            for (_, block) in self.blocks_of(slot) {
                totals.merge(&block::read(block, stamp));
            }
            totals.merge(&self.read_shared(slot, stamp));
            totals
        })
    }

    /// Reads over when the flow was cleared meanwhile: some of its CPUs might have started over by
    /// then, and the counts of the others alone are what never was.
    #[inline(always)]
    fn between_clears<T>(&self, slot: u32, mut read: impl FnMut(u32) -> T) -> T {
        loop {
            let (stamp, _) = self.state(slot);
            let value = read(stamp);
            // ORDER: a CPU that started over saw the new stamp first, and `block::read` acquired
            // from it; so it is seen here.
            if self.state(slot).0 == stamp {
                return value;
            }
        }
    }

    /// The block of CPUs without one of their own, if it is in use.
    #[inline(always)]
    fn shared_block(&self, slot: u32) -> Option<&Line> {
        // ORDER: Relaxed; as described where the bit is set.
        let in_use = self.head(slot)[CPUS].load(Ordering::Relaxed) & SHARED != 0;
        in_use.then(|| self.shared.line(slot as usize))
    }

    /// What was counted by CPUs without a block.
    #[inline(always)]
    fn read_shared(&self, slot: u32, stamp: u32) -> FlowTotals {
        self.shared_block(slot).map_or(FlowTotals::default(), |block| block::read(block, stamp))
    }

    /// All there is to say of the flow but its key. `record` is used again, so nothing is
    /// allocated for most flows.
    pub(crate) fn read_into(&self, slot: u32, record: &mut FlowRecord) {
        self.between_clears(slot, |stamp| {
            record.totals = FlowTotals::default();
            record.per_cpu.clear();
            for (cpu, block) in self.blocks_of(slot) {
                let part = block::read(block, stamp);
                record.totals.merge(&part);
                if part.packets != 0 {
                    let (packets, bytes) = (part.packets, part.bytes);
                    record.per_cpu.push(CpuTotals { cpu: CpuTag::cpu(cpu), packets, bytes });
                }
            }
            let shared = self.read_shared(slot, stamp);
            record.totals.merge(&shared);
            record.shared = SharedTotals { packets: shared.packets, bytes: shared.bytes };
        });
    }

    /// What the flow has done, clears or not. Of the shared block only what was not cleared: what it
    /// holds from before may be another flow's.
    pub(crate) fn activity(&self, slot: u32) -> Activity {
        let (stamp, _) = self.state(slot);
        let mut all = Activity { packets: self.read_shared(slot, stamp).packets, last_ns: 0 };
        // But its time is this flow's once the bit is set and a thread counted; until then it is
        // earlier.
        all.last_ns = self.shared_block(slot).map_or(0, block::last_ns);
        for (_, block) in self.blocks_of(slot) {
            let of_cpu = block::ever(block);
            all.packets = all.packets.wrapping_add(of_cpu.packets);
            all.last_ns = all.last_ns.max(of_cpu.last_ns);
        }
        all
    }

    /// Time of the flow's latest packet, also if it was cleared since.
    pub(crate) fn last_ns(&self, slot: u32) -> u64 {
        self.activity(slot).last_ns
    }

    /// Sets the flow's counts to 0, on every CPU: a packet that is counted meanwhile comes before
    /// or after. Says whether there was a flow in the slot.
    pub fn clear(&self, slot: u32) -> bool {
        let state = &self.head(slot)[STATE];
        let mut now = state.load(Ordering::Relaxed);
        while now as u32 == LIVE {
            let cleared = u64::from(next_stamp(now)) << 32 | u64::from(LIVE);
            // ORDER: Relaxed; the stamp carries no data, and each CPU starts its own block over.
            match state.compare_exchange_weak(now, cleared, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Takes a live flow out for this reason; `false` if another thread did.
    pub(crate) fn end(&self, slot: u32, why: u32) -> bool {
        let state = &self.head(slot)[STATE];
        let mut now = state.load(Ordering::Relaxed);
        while now as u32 == LIVE {
            let ended = now & !u64::from(u32::MAX) | u64::from(why);
            // ORDER: Relaxed; who reads the flow for the last time has waited for its writers.
            match state.compare_exchange_weak(now, ended, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Frees the slot: visits the blocks of the CPUs that used it, hands their lines to `line`, and
    /// nothing else. No thread may be using the flow any more.
    #[inline]
    pub(crate) fn free_with(&self, slot: u32, line: impl FnMut(u32)) {
        let head = self.head(slot);
        self.lines_of(head, line);
        // ORDER: Relaxed; no other thread uses the flow. The stamp stays; the next flow here takes
        // another one.
        let stamp = head[STATE].load(Ordering::Relaxed) & !u64::from(u32::MAX);
        head[STATE].store(stamp | u64::from(FREE), Ordering::Relaxed);
    }

    /// Frees a slot. No thread may be using the flow any more.
    #[inline]
    pub fn free(&self, slot: u32, writer: &mut SlotWriter) {
        self.free_with(slot, |line| writer.lines.give_back(line, &self.free_blocks));
    }

    /// Gives back lines of freed flows.
    pub(crate) fn give_back(&self, lines: &mut Vec<u32>) {
        if !lines.is_empty() {
            self.free_blocks.with(|numbers| numbers.give_back(lines.drain(..)));
        }
    }

    /// Blocks that are with neither a flow nor a writer.
    pub(crate) fn free_blocks(&self) -> usize {
        self.free_blocks.with(|numbers| numbers.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
