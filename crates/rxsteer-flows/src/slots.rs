//! The statistics of the flows. Each flow has a head, a block that is part of its slot, and blocks of further
//! CPUs, which a short list of (CPU, block) leads to.
//!
//! ```text
//!  head line                                               first CPU's block   (next line)
//!  word 0‥4   5              6                     7
//!       key   stamp | state  CPU₁ | CPU₂, block₂   list ─► line of 7 × (CPU, block), list ─► …
//!                                          │                            │
//!                                          ▼                            ▼
//!                                   block of CPU₂                block of CPU₃
//!  shared line: for CPUs that got no block (a bit beside CPU₁ is set when there are some); in its last two words,
//!  of flows on several CPUs, the CPU that counted last, and how often that changed
//! ```
//!
//! ovs-stats keeps an array of pointers by CPU and a mask of the CPUs used. Both are as long as the number of
//! possible CPUs. Here the list *is* the mask: it holds the CPUs that used the flow, whatever their ids, and
//! nothing else. So a flow that ran on one CPU takes two lines and one visit on any machine.
//!
//! The list only grows while the flow lives. Each CPU adds only its own entry, in one word, so no reader ever sees
//! half of an entry. The list starts in the head, which all CPUs read and almost none writes. It is not in the
//! blocks, since the search for a CPU's own block must not touch the blocks of other CPUs.

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

/// The slot holds no flow.
pub(crate) const FREE: u32 = 0;
/// The slot holds a flow that is in the table. Higher numbers mean that the flow was taken out, and give the
/// reason.
pub(crate) const LIVE: u32 = 1;

/// A bit beside the first CPU: the shared block is in use.
const SHARED: u64 = 1 << 15;

/// Words of the shared line, each with the flow's stamp in its upper half; another stamp means none and 0.
const LAST_CPU: usize = 6;
const MOVES: usize = 7;

/// A CPU as stored in the list, in 14 bits; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTag(u64);

impl CpuTag {
    pub(crate) fn of(cpu: CpuId) -> CpuTag {
        CpuTag(u64::from(cpu.get()) + 1)
    }

    /// The CPU of a tag. Only tags of valid CPUs are ever written.
    fn cpu(tag: u16) -> CpuId {
        CpuId::new(tag.wrapping_sub(1)).unwrap_or(CpuId::NONE)
    }
}

/// The stamp that follows the stamp in `state`. It is never 0: 0 is the stamp of a block in which no thread has
/// counted.
fn next_stamp(state: u64) -> u32 {
    ((state >> 32) as u32).wrapping_add(1).max(1)
}

/// The counterpart of ovs-stats' `flow->stats` and `cpu_used_mask`, for many flows.
///
/// This is the flow table without the hash table of its keys. It serves programs with a hash table of their own,
/// and the benchmarks against the walk over all possible CPUs. The caller manages the slot numbers: a slot is
/// claimed, used and freed. In between, only threads that know of the flow may touch the slot.
#[derive(Debug)]
pub struct FlowSlots {
    /// The head and the first block of each slot.
    slots: Lines,
    shared: Lines,
    blocks: Lines,
    free_blocks: Pool,
}

/// One CPU's access to [`FlowSlots`]. No other thread may count as this CPU.
#[derive(Debug)]
pub struct SlotWriter {
    cpu: CpuTag,
    lines: Magazine,
}

impl SlotWriter {
    /// A writer for `cpu`.
    #[must_use]
    pub fn new(cpu: CpuId) -> SlotWriter {
        SlotWriter { cpu: CpuTag::of(cpu), lines: Magazine::new() }
    }

    /// Gives back the blocks that this writer has in reserve.
    pub fn release(&mut self, slots: &FlowSlots) {
        self.lines.empty(&slots.free_blocks);
    }
}

/// The two lines of a slot: the flow's head, and the block that is part of the slot.
pub(crate) type FlowLines = [AtomicU64; 2 * WORDS];

/// Whether the slot with this head holds the flow with this key, and the flow is in the table.
#[inline(always)]
pub(crate) fn is_live_with_key(head: &[AtomicU64], key: &FlowWords) -> bool {
    // ORDER: Acquire; pairs with the Release in `claim`: the key of a live flow is complete.
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

/// Loads both lines of a slot into the cache.
#[inline(always)]
pub(crate) fn load(flow: &FlowLines) -> u64 {
    // ORDER: Relaxed; this only loads the lines, which are read later.
    flow[STATE].load(Ordering::Relaxed) ^ flow[WORDS].load(Ordering::Relaxed)
}

/// Counts a move, unless the CPU that counted before is unknown, as after a clear.
#[cold]
fn note_move(line: &Line, cpu: u64, begins: bool) {
    let before = line[LAST_CPU].swap(cpu, Ordering::Relaxed);
    if before >> 32 != cpu >> 32 && !begins {
        return;
    }
    let mut now = line[MOVES].load(Ordering::Relaxed);
    loop {
        let moves = if now >> 32 == cpu >> 32 { now as u32 } else { 0 };
        let more = cpu >> 32 << 32 | u64::from(moves.saturating_add(1));
        match line[MOVES].compare_exchange(now, more, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

impl FlowSlots {
    /// Memory for `slots` flows and `blocks` blocks of further CPUs.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
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
        // ORDER: Acquire; pairs with the Release in `claim`: the key and the first block of a live flow are
        // complete.
        let state = self.head(slot)[STATE].load(Ordering::Acquire);
        ((state >> 32) as u32, state as u32)
    }

    /// The head and the first block of each slot.
    #[inline(always)]
    pub(crate) fn flows(&self) -> &[FlowLines] {
        self.slots.in_groups_of()
    }

    /// Whether the slot holds the flow with this key, and the flow is in the table.
    #[inline(always)]
    pub(crate) fn is_live_with_key(&self, slot: u32, key: &FlowWords) -> bool {
        is_live_with_key(self.head(slot), key)
    }

    pub(crate) fn key(&self, slot: u32) -> FlowWords {
        let head = self.head(slot);
        // ORDER: Relaxed, as above.
        FlowWords(std::array::from_fn(|word| head[word].load(Ordering::Relaxed)))
    }

    /// Gives a free slot to a new flow whose first packet this CPU saw. The CPU counts in the block that is part
    /// of the slot.
    pub(crate) fn claim_with_key(
        &self,
        slot: u32,
        key: &FlowWords,
        writer: &SlotWriter,
        packet: &Sample,
    ) {
        let head = self.head(slot);
        // ORDER: Relaxed; no other thread knows of the slot before the Release below. The stamp changes, so that
        // the content of the shared block does not count for this flow, whether it is from the last flow in this
        // slot or the initial zeroes.
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

    /// Gives a free slot to a new flow whose first packet this CPU saw. The CPU counts in the block that is part
    /// of the slot. The caller keeps the key.
    pub fn claim(&self, slot: u32, writer: &SlotWriter, packet: &FlowPacket) {
        self.claim_with_key(slot, &FlowWords::default(), writer, &packet.sample());
    }

    /// Counts a packet if no block has to be allocated or started. Returns `false` if the packet was not counted:
    /// the CPU has no block in this flow, or the flow was cleared since or idle before.
    #[inline(always)]
    pub(crate) fn count_at_once(
        &self,
        (slot, flow): (u32, &FlowLines),
        writer: &SlotWriter,
        packet: &Sample,
        idle_timeout_ns: u64,
    ) -> bool {
        // ORDER: Relaxed; this CPU wrote the entry itself. The stamp is one number. A clear at this moment may
        // come before or after this packet.
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
        if cpus >> 16 != 0 {
            self.note_cpu(slot, stamp, writer.cpu, false);
        }
        true
    }

    /// Records which CPU counts a flow that is on several CPUs. With `begins`, the CPU is new to the flow.
    #[inline(always)]
    fn note_cpu(&self, slot: u32, stamp: u32, cpu: CpuTag, begins: bool) {
        let line = self.shared.line(slot as usize);
        let now = u64::from(stamp) << 32 | cpu.0;
        // ORDER: Relaxed, here and in `note_move`; the words carry no other data.
        if line[LAST_CPU].load(Ordering::Relaxed) != now {
            note_move(line, now, begins);
        }
    }

    /// Counts a packet of a flow: in this CPU's block, in a new block, or in the shared block.
    #[cold]
    pub(crate) fn count(&self, slot: u32, writer: &mut SlotWriter, packet: &Sample) {
        let (stamp, _) = self.state(slot);
        match self.own_block(slot, writer.cpu) {
            Some(block) if block::is_of(block, stamp) => block::add(block, packet),
            Some(block) => block::start_over(block, stamp, packet),
            None => {
                self.note_cpu(slot, stamp, writer.cpu, true);
                if !self.begin_block(slot, stamp, writer, packet) {
                    // ORDER: Relaxed; a reader that misses the bit reads the state before this packet. A reader
                    // that has seen the bit always sees it later.
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
        if !self.count_at_once((slot, flow), writer, &packet, u64::MAX) {
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

    /// Repeats the read if the flow was cleared meanwhile. Some of its CPUs may have started over by then, and the
    /// counts of the other CPUs alone would be a state that never existed.
    #[inline(always)]
    fn between_clears<T>(&self, slot: u32, mut read: impl FnMut(u32) -> T) -> T {
        loop {
            let (stamp, _) = self.state(slot);
            let value = read(stamp);
            // ORDER: a CPU that started over saw the new stamp first, and `block::read` acquired from that CPU, so
            // the new stamp is seen here.
            if self.state(slot).0 == stamp {
                return value;
            }
        }
    }

    /// The shared block of CPUs without a block of their own, if it is in use.
    #[inline(always)]
    fn shared_block(&self, slot: u32) -> Option<&Line> {
        // ORDER: Relaxed; see the place where the bit is set.
        let in_use = self.head(slot)[CPUS].load(Ordering::Relaxed) & SHARED != 0;
        in_use.then(|| self.shared.line(slot as usize))
    }

    /// The counts of CPUs without a block.
    #[inline(always)]
    fn read_shared(&self, slot: u32, stamp: u32) -> FlowTotals {
        self.shared_block(slot).map_or(FlowTotals::default(), |block| block::read(block, stamp))
    }

    /// Reads all of the flow's data except its key. `record` is reused, so most flows need no allocation.
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
            // ORDER: Relaxed; one number.
            let moves = self.shared.line(slot as usize)[MOVES].load(Ordering::Relaxed);
            record.moves = if (moves >> 32) as u32 == stamp { moves as u32 } else { 0 };
        });
    }

    /// The flow's activity, which clears do not reset. Of the shared block only the counts since the last clear
    /// are included: its earlier counts may belong to another flow.
    pub(crate) fn activity(&self, slot: u32) -> Activity {
        let (stamp, _) = self.state(slot);
        let mut all = Activity { packets: self.read_shared(slot, stamp).packets, last_ns: 0 };
        // The time in the shared block belongs to this flow once the bit is set and a thread has counted. Until
        // then it is an earlier time.
        all.last_ns = self.shared_block(slot).map_or(0, block::last_ns);
        for (_, block) in self.blocks_of(slot) {
            let of_cpu = block::ever(block);
            all.packets = all.packets.wrapping_add(of_cpu.packets);
            all.last_ns = all.last_ns.max(of_cpu.last_ns);
        }
        all
    }

    /// The time of the flow's latest packet, even if the flow was cleared since.
    pub(crate) fn last_ns(&self, slot: u32) -> u64 {
        self.activity(slot).last_ns
    }

    /// The time of the flow's first packet since the last clear.
    pub(crate) fn first_ns(&self, slot: u32) -> u64 {
        self.read(slot).first_ns
    }

    /// Sets the flow's counts to 0 on every CPU. A packet that is counted meanwhile comes before or after the
    /// clear. Returns whether there was a flow in the slot.
    pub fn clear(&self, slot: u32) -> bool {
        let state = &self.head(slot)[STATE];
        let mut now = state.load(Ordering::Relaxed);
        while now as u32 == LIVE {
            let cleared = u64::from(next_stamp(now)) << 32 | u64::from(LIVE);
            // ORDER: Relaxed; the stamp carries no other data, and each CPU starts its own block over.
            match state.compare_exchange_weak(now, cleared, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Takes a live flow out for the reason `why`; `false` if another thread did so first.
    pub(crate) fn end(&self, slot: u32, why: u32) -> bool {
        let state = &self.head(slot)[STATE];
        let mut now = state.load(Ordering::Relaxed);
        while now as u32 == LIVE {
            let ended = now & !u64::from(u32::MAX) | u64::from(why);
            // ORDER: Relaxed; the thread that reads the flow for the last time has waited for the flow's writers.
            match state.compare_exchange_weak(now, ended, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Frees the slot. It visits only the blocks of the CPUs that used the flow and passes their lines to `line`.
    /// No thread may use the flow any more.
    #[inline]
    pub(crate) fn free_with(&self, slot: u32, line: impl FnMut(u32)) {
        let head = self.head(slot);
        self.lines_of(head, line);
        // ORDER: Relaxed; no other thread uses the flow. The stamp stays; the next flow in this slot takes the
        // next stamp.
        let stamp = head[STATE].load(Ordering::Relaxed) & !u64::from(u32::MAX);
        head[STATE].store(stamp | u64::from(FREE), Ordering::Relaxed);
    }

    /// Frees a slot. No thread may use the flow any more.
    #[inline]
    pub fn free(&self, slot: u32, writer: &mut SlotWriter) {
        self.free_with(slot, |line| writer.lines.give_back(line, &self.free_blocks));
    }

    /// Gives back the lines of freed flows.
    pub(crate) fn give_back(&self, lines: &mut Vec<u32>) {
        if !lines.is_empty() {
            self.free_blocks.with(|numbers| numbers.give_back(lines.drain(..)));
        }
    }

    /// The number of blocks that belong to neither a flow nor a writer.
    pub(crate) fn free_blocks(&self) -> usize {
        self.free_blocks.with(|numbers| numbers.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
