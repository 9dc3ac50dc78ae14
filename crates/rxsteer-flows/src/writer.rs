//! Counting on one CPU, list by list.
//!
//! ```text
//!  list of up to 64:  hash all ─► guess slots ─► count each ──► new flows: noted in the table state
//!                     (many loads under way       │
//!                      at a time)                 └─ another key, no block yet, idle: slow path
//! ```
//!
//! The loads of a list are in separate loops that do nothing else. A processor looks only a limited number of
//! instructions ahead of a load that it waits for. With such loops it has many loads under way at a time.

use crate::grace::Reader;
use crate::index::Hash;
use crate::record::{FlowEnd, FlowPacket, Sample};
use crate::slots::{self, LIVE, SlotWriter};
use crate::sync::{lock, yield_now};
use crate::table::{FlowTable, FlowTableError, RegisteredReader};
use rxsteer_core::{CpuId, FlowWords};
use std::sync::Arc;
use std::time::Duration;

/// The number of packets that are counted together.
const LIST: usize = 64;

/// How long a writer that waits for room sleeps between two checks.
const WAIT: Duration = Duration::from_micros(50);

const NO_SLOT: u32 = u32::MAX;

/// Counts packets for one CPU.
///
/// Counting takes no lock and writes only memory that no other CPU writes: one cache line per flow and CPU. A list
/// with new flows takes one lock for the list and one for each new flow. Every sixteenth block of a further CPU
/// takes one lock. When no block is left, the CPUs without one share one block per flow, and its lock.
#[derive(Debug)]
pub struct FlowWriter {
    table: Arc<FlowTable>,
    cpu: CpuId,
    reader: Arc<Reader>,
    slots: SlotWriter,
    /// Slots reserved for the new flows of this list.
    reserved: Vec<u32>,
    /// Flows created and flows found idle since the last update of the table state.
    created: Vec<u32>,
    idle: Vec<u32>,
    list: Box<List>,
}

/// The packets being counted.
#[derive(Debug)]
struct List {
    len: usize,
    keys: [FlowWords; LIST],
    samples: [Sample; LIST],
    hashes: [Hash; LIST],
    slots: [u32; LIST],
    /// Whether `slots` holds the slots of the keys, or `NO_SLOT`, instead of likely guesses.
    is_looked_up: bool,
}

/// What happens to packets of new flows while the table has no room because flows that ended are not collected
/// yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The writer waits for the thread that collects, and no packet is refused. There must be such a thread.
    Wait,
    /// The packets are counted as refused and are in no record.
    Refuse,
}

impl FlowTable {
    /// The writer of `cpu`, for one thread. There is at most one at a time.
    ///
    /// # Errors
    /// [`FlowTableError::HasWriter`].
    pub fn writer(self: &Arc<Self>, cpu: CpuId) -> Result<FlowWriter, FlowTableError> {
        let mut registered = lock(&self.registered);
        if registered.iter().any(|registered_reader| registered_reader.cpu == cpu) {
            return Err(FlowTableError::HasWriter(cpu));
        }
        let reader = Arc::new(Reader::new());
        registered.push(RegisteredReader { cpu, reader: reader.clone() });
        drop(registered);
        Ok(FlowWriter::new(self.clone(), cpu, reader))
    }
}

impl FlowWriter {
    fn new(table: Arc<FlowTable>, cpu: CpuId, reader: Arc<Reader>) -> Self {
        FlowWriter {
            table,
            cpu,
            reader,
            slots: SlotWriter::new(cpu),
            reserved: Vec::with_capacity(LIST),
            created: Vec::with_capacity(LIST),
            idle: Vec::with_capacity(LIST),
            list: Box::new(List {
                len: 0,
                keys: [FlowWords::default(); LIST],
                samples: [Sample::default(); LIST],
                hashes: [Hash::default(); LIST],
                slots: [NO_SLOT; LIST],
                is_looked_up: false,
            }),
        }
    }

    /// The CPU that this writer counts for.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Counts packets in this order and returns how many it counted. It stops at the first packet of a new flow
    /// for which there is no room. There is no room while too many flows that ended are not collected
    /// ([`FlowTable::collect`]), or while other writers hold all places. The caller waits a little and passes the
    /// rest again.
    #[must_use = "the packets from there on are not counted"]
    pub fn update(&mut self, packets: &[FlowPacket]) -> usize {
        let mut done = 0;
        for list in packets.chunks(LIST) {
            self.fill(&mut list.iter().copied());
            let counted = self.count_from(0);
            done += counted;
            if counted < list.len() {
                break;
            }
        }
        done
    }

    /// Counts packets in this order. `when_full` decides on packets of new flows for which there is no room, as
    /// described at [`FlowWriter::update`]. Returns how many packets were refused.
    #[inline(always)]
    pub fn update_all(
        &mut self,
        packets: impl IntoIterator<Item = FlowPacket>,
        when_full: WhenFull,
    ) -> u64 {
        let (mut packets, mut refused) = (packets.into_iter(), 0);
        loop {
            self.fill(&mut packets);
            if self.list.len == 0 {
                return refused;
            }
            let done = self.count_from(0);
            if done < self.list.len {
                refused += self.count_rest(done, when_full);
            }
        }
    }

    /// Counts the rest of a list, starting at a packet for which there was no room. Returns how many packets were
    /// refused.
    #[cold]
    fn count_rest(&mut self, mut done: usize, when_full: WhenFull) -> u64 {
        if when_full == WhenFull::Refuse {
            return self.count_those_there(done);
        }
        while done < self.list.len {
            while lock(&self.table.state).free_slots.len() == 0 {
                std::thread::sleep(WAIT);
            }
            let counted = self.count_from(done);
            if counted == 0 {
                yield_now();
            }
            done += counted;
        }
        0
    }

    /// Counts the packets from `from` on whose flows are in the table, and refuses the others. So no thread
    /// requests room repeatedly while there is none.
    fn count_those_there(&mut self, from: usize) -> u64 {
        self.reader.enter();
        let mut refused = 0;
        for at in from..self.list.len {
            let List { keys, hashes, samples, .. } = &*self.list;
            let found = self.table.index.find(hashes[at], &keys[at], &self.table.slots);
            match found.filter(|slot| !self.is_idle(*slot, &samples[at])) {
                Some(slot) => self.table.slots.count(slot, &mut self.slots, &samples[at]),
                None => refused += 1,
            }
        }
        self.reader.leave();
        self.refuse(refused);
        refused
    }

    /// Whether the flow in a slot had been idle for too long when this packet came.
    fn is_idle(&self, slot: u32, packet: &Sample) -> bool {
        let table = &*self.table;
        packet.time_ns.saturating_sub(table.slots.last_ns(slot)) > table.idle_timeout_ns
    }

    /// Takes packets to count, at most as many as fit in a list.
    #[inline(always)]
    fn fill(&mut self, packets: &mut impl Iterator<Item = FlowPacket>) {
        let (table, list) = (&*self.table, &mut *self.list);
        let mut len = 0;
        while len < LIST
            && let Some(packet) = packets.next()
        {
            let key = table.mask.apply(&packet.flow);
            list.hashes[len] = table.index.hash(&key);
            list.keys[len] = key;
            list.samples[len] = packet.sample();
            len += 1;
        }
        list.len = len;
    }

    /// Counts packets as refused: those that the caller of [`FlowWriter::update`] discards.
    pub fn refuse(&mut self, packets: u64) {
        if packets > 0 {
            lock(&self.table.state).counts.refused += packets;
        }
    }

    /// Counts the packets of the list from `from` on, and returns how many.
    fn count_from(&mut self, from: usize) -> usize {
        self.reader.enter();
        self.guess(from);
        let mut at = self.count_known(from);
        while at < self.list.len && self.count_slow(at) {
            at = self.count_known(at + 1);
        }
        // An unused place is recorded, too: another writer may wait for it.
        let to_note = [&self.reserved, &self.created, &self.idle];
        if to_note.iter().any(|slots| !slots.is_empty()) {
            self.note();
        }
        self.reader.leave();
        at - from
    }

    /// Guesses the slots of the packets from `from` on, and loads their lines.
    #[inline(always)]
    fn guess(&mut self, from: usize) {
        let (table, list) = (&*self.table, &mut *self.list);
        let packets = from..list.len.min(LIST);
        list.is_looked_up = false;
        table.index.candidates(&list.hashes[packets.clone()], &mut list.slots[packets.clone()]);
        let (flows, mut loaded) = (table.slots.flows(), 0);
        for slot in &list.slots[packets] {
            loaded ^= slots::load(&flows[*slot as usize]);
        }
        std::hint::black_box(loaded);
    }

    /// Counts packets from `from` on while their flows are in the guessed slots and no block has to be allocated
    /// or started. Returns the index of the first packet that was not counted.
    #[inline(always)]
    fn count_known(&mut self, from: usize) -> usize {
        let (table, list) = (&*self.table, &*self.list);
        let (flows, timeout) = (table.slots.flows(), table.idle_timeout_ns);
        for at in from..list.len.min(LIST) {
            // No flow is at NO_SLOT.
            let Some(flow) = flows.get(list.slots[at] as usize) else { return at };
            if !slots::is_live_with_key(flow, &list.keys[at])
                || !table.slots.count_at_once(
                    (list.slots[at], flow),
                    &self.slots,
                    &list.samples[at],
                    timeout,
                )
            {
                return at;
            }
        }
        list.len
    }

    /// Looks up the slots of all packets from `from` on whose guess was wrong, and requests places for new flows:
    /// exactly one per flow, since each extra place would evict an old flow.
    #[cold]
    fn look_up(&mut self, from: usize) {
        let (table, list) = (&*self.table, &mut *self.list);
        let mut new = [Hash::default(); LIST];
        let mut len = 0;
        for at in from..list.len.min(LIST) {
            if table.slots.is_live_with_key(list.slots[at], &list.keys[at]) {
                continue;
            }
            let found = table.index.find(list.hashes[at], &list.keys[at], &table.slots);
            list.slots[at] = found.unwrap_or(NO_SLOT);
            if found.is_none() {
                new[len] = list.hashes[at];
                len += 1;
            }
        }
        list.is_looked_up = true;
        if len > 0 {
            new[..len].sort_unstable();
            let flows = new[..len].chunk_by(|one, next| one == next).count() as u32;
            let now_ns = self.list.samples[from].time_ns;
            self.reserve_slots(flows, now_ns);
        }
    }

    /// Counts a packet that could not be counted at once. Returns `false` when its flow is new and there is no
    /// room.
    #[cold]
    fn count_slow(&mut self, at: usize) -> bool {
        let List { keys, hashes, samples, slots, .. } = &*self.list;
        let (hash, key, packet, guess) = (hashes[at], keys[at], samples[at], slots[at]);
        // Usually the flow is there, and only this CPU's block in it is missing.
        let is_there = guess != NO_SLOT && self.table.slots.is_live_with_key(guess, &key);
        if is_there {
            if self.count_unless_idle(guess, &packet) {
                return true;
            }
            // The new flow takes the place of the idle one, so no other flow has to be evicted for it.
            self.note();
        }
        if !self.list.is_looked_up {
            self.look_up(at);
        }
        // A flow that was missing a moment ago is most likely new. If there is a place for it, the check whether
        // it exists is left to the insertion.
        let mut may_be_there = self.list.slots[at] != NO_SLOT;
        loop {
            if (may_be_there || self.reserved.is_empty())
                && let Some(slot) = self.table.index.find(hash, &key, &self.table.slots)
                && self.count_unless_idle(slot, &packet)
            {
                return true;
            }
            if self.reserved.is_empty() {
                // This makes the place of an idle flow available.
                self.note();
                self.reserve_slots(1, packet.time_ns);
            }
            let Some(slot) = self.reserved.pop() else { return false };
            match self.create(slot, hash, &key, &packet) {
                Created::Yes => {
                    self.created.push(slot);
                    return true;
                }
                Created::IsThere => {
                    self.reserved.push(slot);
                    may_be_there = true;
                }
                Created::NoPlace => {
                    self.reserved.push(slot);
                    self.make_place(hash);
                }
            }
        }
    }

    /// Counts a packet of a flow. Returns `false` if the flow was idle for too long and is therefore over.
    fn count_unless_idle(&mut self, slot: u32, packet: &Sample) -> bool {
        if !self.is_idle(slot, packet) {
            self.table.slots.count(slot, &mut self.slots, packet);
            return true;
        }
        if self.table.end(slot, FlowEnd::Idle) {
            self.idle.push(slot);
        }
        false
    }

    fn create(&self, slot: u32, hash: Hash, key: &FlowWords, packet: &Sample) -> Created {
        let table = &*self.table;
        let locked = table.index.lock(hash);
        if table.index.find(hash, key, &table.slots).is_some() {
            return Created::IsThere;
        }
        // The entry is reserved first: after the claim, a thread that visits all slots can end the flow.
        let Some(place) = locked.place() else { return Created::NoPlace };
        table.slots.claim_with_key(slot, key, &self.slots, packet);
        locked.fill(place, slot);
        Created::Yes
    }

    /// Evicts the flow with the oldest last packet from two full buckets.
    fn make_place(&mut self, hash: Hash) {
        let table = &*self.table;
        let locked = table.index.lock(hash);
        let oldest = locked.slots().min_by_key(|slot| table.slots.last_ns(*slot));
        drop(locked);
        if let Some(slot) = oldest
            && table.end(slot, FlowEnd::Evicted)
        {
            let state = &mut *lock(&table.state);
            state.counts.evicted += 1;
            state.ended(slot);
        } else {
            // The flow has already ended, and the thread that ended it is about to remove it.
            yield_now();
        }
    }

    /// Requests slots for `count` flows that are new at `now_ns`, as far as there is room. Older flows are evicted
    /// if necessary.
    #[cold]
    fn reserve_slots(&mut self, count: u32, now_ns: u64) {
        let table = &*self.table;
        let state = &mut *lock(&table.state);
        for _ in 0..count {
            let mut slot = state.slot_if_below_limit();
            if slot.is_none() && state.free_slots.len() > 0 && state.evict_one(table, now_ns) {
                slot = state.slot_if_below_limit();
            }
            let Some(slot) = slot else { break };
            self.reserved.push(slot);
        }
    }

    /// Records created flows, idle flows and unused slots in the table state.
    #[cold]
    fn note(&mut self) {
        let table = &*self.table;
        let mut state = lock(&table.state);
        for slot in self.created.drain(..) {
            state.created(slot, table.slots.state(slot).1 == LIVE);
        }
        state.unused(self.reserved.drain(..));
        drop(state);
        table.note_ended(&mut self.idle, FlowEnd::Idle);
    }
}

/// The result of creating a flow.
enum Created {
    Yes,
    /// Another CPU, or an earlier packet of the list, has already created the flow.
    IsThere,
    /// Both buckets of the flow are full.
    NoPlace,
}

impl Drop for FlowWriter {
    fn drop(&mut self) {
        self.note();
        // The reader is inside a section only if code of this crate panicked.
        if self.reader.is_in() {
            self.reader.leave();
        }
        self.slots.release(&self.table.slots);
        lock(&self.table.registered).retain(|registered_reader| registered_reader.cpu != self.cpu);
    }
}
