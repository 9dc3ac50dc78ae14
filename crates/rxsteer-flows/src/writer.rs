//! How one CPU counts packets: list by list.
//!
//! ```text
//!  list of up to 64:  hash all ─► slots of all ─► count each ──► new flows: told to the keeper
//!                     (several loads under way     │
//!                      at a time)                  └─ not found, other CPU's, idle: look closer
//! ```
//!
//! The loads of a list are made in loops of their own that do nothing else: a processor looks only so
//! many instructions ahead of a load it waits for, and so it has many under way at a time. (With
//! 100 000 flows that halves the time of a packet.)

use crate::grace::Participant;
use crate::index::Hash;
use crate::record::{FlowEnd, FlowPacket};
use crate::slots::{Counted, LIVE, SlotWriter};
use crate::sync::lock;
use crate::table::FlowTable;
use rxsteer_core::{CpuId, FlowWords};
use std::sync::Arc;

/// Packets that are counted together.
const LIST: usize = 64;

/// Flows whose counts are looked at, at most, to find ones that can go for the new flows of a list.
const LOOKS: u32 = 256;

const NO_SLOT: u32 = u32::MAX;

/// A writer as the table knows it.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) cpu: CpuId,
    pub(crate) participant: Arc<Participant>,
}

/// Counts packets for one CPU.
///
/// The counting itself takes no lock and writes to no memory that other CPUs write: one cache line
/// per flow and CPU. A list that brings new flows takes a lock for the list, and one for each of
/// them.
#[derive(Debug)]
pub struct FlowWriter {
    table: Arc<FlowTable>,
    cpu: CpuId,
    participant: Arc<Participant>,
    slots: SlotWriter,
    /// Slots for the new flows of this list.
    promised: Vec<u32>,
    /// New flows and flows found idle, since the keeper was last told.
    created: Vec<u32>,
    idle: Vec<u32>,
    scratch: Box<Scratch>,
}

#[derive(Debug)]
struct Scratch {
    keys: [FlowWords; LIST],
    hashes: [Hash; LIST],
    slots: [u32; LIST],
}

impl FlowWriter {
    pub(crate) fn new(table: Arc<FlowTable>, cpu: CpuId, participant: Arc<Participant>) -> Self {
        FlowWriter {
            table,
            cpu,
            participant,
            slots: SlotWriter::new(cpu),
            promised: Vec::with_capacity(LIST),
            created: Vec::with_capacity(LIST),
            idle: Vec::with_capacity(LIST),
            scratch: Box::new(Scratch {
                keys: [FlowWords::default(); LIST],
                hashes: [Hash::default(); LIST],
                slots: [NO_SLOT; LIST],
            }),
        }
    }

    /// The CPU it counts for.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Counts packets in this order, and returns how many: it stops at the first one that is of a
    /// new flow for which there is no room. That is so while too many flows that ended are not
    /// collected ([`FlowTable::collect`]): the caller lets some time pass and comes with the rest,
    /// or gives the packet up by [`FlowWriter::refuse`].
    #[must_use = "the packets from there on are not counted"]
    pub fn update(&mut self, packets: &[FlowPacket]) -> usize {
        let mut done = 0;
        for list in packets.chunks(LIST) {
            let counted = self.update_list(list);
            done += counted;
            if counted < list.len() {
                break;
            }
        }
        done
    }

    /// Counts packets; those of new flows for which there is no room are counted as refused.
    /// Returns how many were.
    pub fn update_or_refuse(&mut self, mut packets: &[FlowPacket]) -> u64 {
        let mut refused = 0;
        loop {
            let done = self.update(packets);
            let Some(rest) = packets.get(done + 1..) else { break };
            refused += 1;
            packets = rest;
        }
        self.refuse(refused);
        refused
    }

    /// Counts packets as refused.
    pub fn refuse(&mut self, packets: u64) {
        if packets > 0 {
            lock(&self.table.keeper).counts.refused += packets;
        }
    }

    fn update_list(&mut self, packets: &[FlowPacket]) -> usize {
        self.participant.enter();
        let missing = self.find(packets);
        if missing > 0 {
            self.promise(self.new_flows(packets.len()));
        }
        let mut done = packets.len();
        for (at, packet) in packets.iter().enumerate() {
            let (slot, timeout) = (self.scratch.slots[at], self.table.idle_timeout_ns);
            if slot != NO_SLOT
                && self.table.slots.count_at_once(slot, &self.slots, packet, timeout)
                    == Counted::Yes
            {
                continue;
            }
            if !self.look_closer(at, packet) {
                done = at;
                break;
            }
        }
        // A place left over is told of too: another writer may wait for it.
        let to_tell = [&self.promised, &self.created, &self.idle];
        if to_tell.iter().any(|slots| !slots.is_empty()) {
            self.tell();
        }
        self.participant.leave();
        done
    }

    /// Finds the slots of a list's flows; returns how many packets have none at first sight.
    #[inline(always)]
    fn find(&mut self, packets: &[FlowPacket]) -> u32 {
        let table = &*self.table;
        let Scratch { keys, hashes, slots } = &mut *self.scratch;
        let count = packets.len().min(LIST);
        let (keys, hashes, slots) = (&mut keys[..count], &mut hashes[..count], &mut slots[..count]);
        let mut loaded = 0;
        for at in 0..count {
            keys[at] = table.mask.apply(&packets[at].flow);
            hashes[at] = table.index.hash(&keys[at]);
        }
        for hash in hashes.iter() {
            loaded ^= table.index.load_first(*hash);
        }
        for at in 0..count {
            slots[at] = table.index.candidate(hashes[at]);
        }
        for slot in slots.iter() {
            loaded ^= table.slots.load(*slot);
        }
        std::hint::black_box(loaded);
        let mut missing = 0;
        for at in 0..count {
            if !table.slots.is_live_with_key(slots[at], &keys[at]) {
                let found = table.index.find(hashes[at], &keys[at], &table.slots);
                slots[at] = found.unwrap_or(NO_SLOT);
                missing += u32::from(found.is_none());
            }
        }
        missing
    }

    /// How many flows the packets without a slot are of: each place too many would cost an old flow
    /// its own.
    #[cold]
    fn new_flows(&self, count: usize) -> u32 {
        let Scratch { hashes, slots, .. } = &*self.scratch;
        let mut new = [Hash::default(); LIST];
        let mut len = 0;
        for at in (0..count.min(LIST)).filter(|at| slots[*at] == NO_SLOT) {
            new[len] = hashes[at];
            len += 1;
        }
        new[..len].sort_unstable();
        new[..len].chunk_by(|one, next| one == next).count() as u32
    }

    /// Counts a packet that could not be counted at once; `false` when it is of a new flow and there
    /// is no room.
    #[cold]
    fn look_closer(&mut self, at: usize, packet: &FlowPacket) -> bool {
        let (hash, key) = (self.scratch.hashes[at], self.scratch.keys[at]);
        loop {
            let table = &*self.table;
            // Again: an earlier packet of this list may have brought the flow.
            if let Some(slot) = table.index.find(hash, &key, &table.slots) {
                let idle = packet.time_ns.saturating_sub(table.slots.last_ns(slot));
                if idle <= table.idle_timeout_ns {
                    table.slots.count(slot, &mut self.slots, packet);
                    return true;
                }
                if table.end(slot, FlowEnd::Idle) {
                    self.idle.push(slot);
                    // Packets further on in the list are of the next record, whatever their times.
                    let later = self.scratch.slots[at..].iter_mut();
                    later.filter(|later| **later == slot).for_each(|later| *later = NO_SLOT);
                }
            }
            if self.promised.is_empty() {
                // The place of a flow that was idle is one of these.
                self.tell();
                self.promise(1);
            }
            let Some(slot) = self.promised.pop() else { return false };
            match self.create(slot, hash, &key, packet) {
                Created::Yes => {
                    self.created.push(slot);
                    return true;
                }
                Created::IsThere => self.promised.push(slot),
                Created::NoPlace => {
                    self.promised.push(slot);
                    self.make_place(hash);
                }
            }
        }
    }

    fn create(&self, slot: u32, hash: Hash, key: &FlowWords, packet: &FlowPacket) -> Created {
        let table = &*self.table;
        let locked = table.index.lock(hash);
        if table.index.find(hash, key, &table.slots).is_some() {
            return Created::IsThere;
        }
        // The place first: from the claim on, whoever goes through all slots can end the flow.
        let Some(place) = locked.place() else { return Created::NoPlace };
        table.slots.claim_with_key(slot, key, &self.slots, packet);
        locked.fill(place, slot);
        Created::Yes
    }

    /// Takes the flow out of two full buckets whose last packet is the oldest.
    fn make_place(&mut self, hash: Hash) {
        let table = &*self.table;
        let locked = table.index.lock(hash);
        let oldest = locked.slots().min_by_key(|slot| table.slots.last_ns(*slot));
        drop(locked);
        if let Some(slot) = oldest
            && table.end(slot, FlowEnd::Evicted)
        {
            let keeper = &mut *lock(&table.keeper);
            keeper.counts.evicted += 1;
            keeper.ended(slot);
        }
    }

    /// Gets slots for so many new flows, as far as there is room; older flows go for them.
    #[cold]
    fn promise(&mut self, count: u32) {
        let table = &*self.table;
        let keeper = &mut *lock(&table.keeper);
        let mut budget = LOOKS;
        for _ in 0..count {
            let mut slot = keeper.slot_if_below_limit();
            if slot.is_none() && keeper.free_slots.len() > 0 && keeper.evict_one(table, &mut budget)
            {
                slot = keeper.slot_if_below_limit();
            }
            let Some(slot) = slot else { break };
            self.promised.push(slot);
        }
    }

    /// Tells the keeper what became of flows and of promised slots.
    #[cold]
    fn tell(&mut self) {
        let table = &*self.table;
        let mut keeper = lock(&table.keeper);
        for slot in self.created.drain(..) {
            keeper.created(slot, table.slots.state(slot).1 == LIVE);
        }
        keeper.unused(self.promised.drain(..));
        drop(keeper);
        table.tell_ended(&mut self.idle, FlowEnd::Idle);
    }
}

/// What became of a new flow.
enum Created {
    Yes,
    /// Another CPU was faster.
    IsThere,
    /// Both its buckets are full.
    NoPlace,
}

impl Drop for FlowWriter {
    fn drop(&mut self) {
        self.tell();
        // Amid a list only if something of ours panicked.
        if self.participant.is_in() {
            self.participant.leave();
        }
        self.slots.release(&self.table.slots);
        lock(&self.table.seats).retain(|seat| seat.cpu != self.cpu);
    }
}
