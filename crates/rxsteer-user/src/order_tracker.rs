//! Order is measured, not assumed. The RX thread numbers every packet within its flow. The worker that processes the
//! packet checks that the numbers of a flow only rise.
//!
//! ```text
//!  OrderTracker (one per RX thread)                OrderCheck (one per worker)
//!  frame ─► flow, number ─────── block ──────────► begun:     number > every one begun before?
//!                └► distinct flows, moves          completed: number > every one completed before?
//!                              OrderProgress: highest numbers per flow, shared
//! ```
//!
//! A flow here is the unit of the order guarantee: one steering key on one RX queue. With a symmetric hash both
//! directions are one flow; with Toeplitz each direction is a flow. Drops leave gaps, so numbers must rise, but
//! need not be consecutive.

use crate::block::{Block, FlowNumber};
use crate::handler::PacketList;
use hashbrown::HashMap;
use rxsteer_core::{CpuId, FlowKey, Verdict};
use rxsteer_packet::{DissectOptions, dissect};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// The largest number of flows tracked per RX thread (about 850 MB at worst, by the sizes of the tables' entries).
/// Packets of further flows are processed, but neither numbered nor counted as flows; reports show their number.
pub const MAX_TRACKED_FLOWS: u32 = 1 << 22;

const CHUNK: usize = 1 << 16;

/// For each flow, the highest number that a worker has begun and the highest one completed.
#[derive(Debug)]
pub(crate) struct OrderProgress {
    chunks: Box<[OnceLock<Box<[Progress]>>]>,
}

#[derive(Debug, Default)]
struct Progress {
    begun: AtomicU32,
    completed: AtomicU32,
}

impl OrderProgress {
    fn new() -> OrderProgress {
        let chunks = MAX_TRACKED_FLOWS as usize / CHUNK;
        OrderProgress { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    fn flow(&self, flow: u32) -> &Progress {
        let chunk = self.chunks[flow as usize / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| Progress::default()).collect());
        &chunk[flow as usize % CHUNK]
    }
}

#[derive(Clone, Copy, Debug)]
struct FlowRecord {
    flow: u32,
    number: u32,
}

/// Distinct transport flows seen, by their outermost addresses, ports and protocol.
#[derive(Clone, Debug, Default)]
pub struct DistinctFlows {
    /// For each pair of endpoints, the directions seen: 1, 2 or both.
    directions: HashMap<FlowKey, u8, foldhash::fast::RandomState>,
}

impl DistinctFlows {
    /// Counts a packet's flow, if there is memory for it.
    fn see(&mut self, flow: FlowKey) {
        let canonical = flow.canonical();
        let direction = if canonical == flow { 1 } else { 2 };
        let has_room = self.directions.len() < MAX_TRACKED_FLOWS as usize;
        if has_room
            && (self.directions.len() < self.directions.capacity()
                || self.directions.try_reserve(1).is_ok())
        {
            *self.directions.entry(canonical).or_default() |= direction;
        } else if let Some(seen) = self.directions.get_mut(&canonical) {
            *seen |= direction;
        }
    }

    /// Adds the flows that `other` saw.
    pub fn merge(&mut self, other: DistinctFlows) {
        if self.directions.is_empty() {
            *self = other;
            return;
        }
        for (flow, directions) in other.directions {
            *self.directions.entry(flow).or_default() |= directions;
        }
    }

    /// The number of flows, with both directions counted as one.
    #[must_use]
    pub fn bidirectional(&self) -> u64 {
        self.directions.len() as u64
    }

    /// The number of flows, with each direction counted separately.
    #[must_use]
    pub fn unidirectional(&self) -> u64 {
        self.directions.values().map(|seen| u64::from(seen.count_ones())).sum()
    }
}

/// The results of an order tracker.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderTrackerReport {
    /// Distinct transport flows.
    pub(crate) distinct_flows: DistinctFlows,
    /// Distinct (RX queue, steering key) pairs; frames without a key count as one flow per queue.
    pub(crate) steered_flows: u64,
    /// Packets of the largest of these flows. Order binds a flow to one CPU at a time. So under a fixed hash, and
    /// if no packet is dropped, the busiest CPU has at least this many packets.
    pub(crate) largest_flow: u64,
    /// How often a packet of a flow went to a CPU other than that of the previous packet.
    pub(crate) moves: u64,
    /// Packets not numbered because of [`MAX_TRACKED_FLOWS`], or because their flow already had 2³² packets.
    pub(crate) untracked_packets: u64,
}

/// The RX thread's part: numbers packets, counts flows and moves.
pub(crate) struct OrderTracker {
    id: usize,
    options: DissectOptions,
    /// Whether both directions have the same hash, and so are one flow.
    symmetric: bool,
    flows: HashMap<(u16, FlowKey), FlowRecord, foldhash::fast::RandomState>,
    /// For each flow, the CPU of its last packet.
    cpus: Vec<CpuId>,
    /// Whether there was no memory for a flow.
    pub(crate) is_short: bool,
    report: OrderTrackerReport,
}

impl OrderTracker {
    pub(crate) fn new(id: usize, options: DissectOptions, symmetric: bool) -> OrderTracker {
        OrderTracker {
            id,
            options,
            symmetric,
            flows: HashMap::default(),
            cpus: Vec::new(),
            is_short: false,
            report: OrderTrackerReport::default(),
        }
    }

    /// Numbers those frames of `block` that are not numbered yet.
    pub(crate) fn number(&mut self, block: &mut Block) {
        block.numbered_by = self.id;
        for index in block.numbers.len()..block.frames.len() {
            let frame = block.frames[index];
            let dissection = dissect(frame.link, block.bytes_of(&frame), self.options);
            if let Some(flow) = dissection.outer_flow() {
                self.report.distinct_flows.see(flow);
            }
            let key = dissection.key;
            let key = if self.symmetric { key.canonical() } else { key };
            let number = self.next_number(frame.rx_queue, key);
            block.numbers.push(number);
        }
    }

    /// Whether there is memory for another flow.
    fn has_memory(&mut self) -> bool {
        if self.flows.len() < self.flows.capacity() && self.cpus.len() < self.cpus.capacity() {
            return true;
        }
        let has_memory = self.flows.try_reserve(1).is_ok() && self.cpus.try_reserve(1).is_ok();
        self.is_short |= !has_memory;
        has_memory
    }

    fn next_number(&mut self, rx_queue: u16, key: FlowKey) -> FlowNumber {
        let known = self.flows.len() as u32;
        if (known >= MAX_TRACKED_FLOWS || !self.has_memory())
            && !self.flows.contains_key(&(rx_queue, key))
        {
            self.report.untracked_packets += 1;
            return FlowNumber { flow: FlowNumber::UNTRACKED, number: 0 };
        }
        let record = self.flows.entry((rx_queue, key)).or_insert_with(|| {
            self.cpus.push(CpuId::NONE);
            FlowRecord { flow: known, number: 0 }
        });
        if record.number == u32::MAX {
            // The flow already had 2³² packets: the remaining ones are not checked.
            self.report.untracked_packets += 1;
            return FlowNumber { flow: FlowNumber::UNTRACKED, number: 0 };
        }
        record.number += 1;
        FlowNumber { flow: record.flow, number: record.number }
    }

    /// Records the CPUs of numbered packets; dropped packets are ignored.
    pub(crate) fn decided(&mut self, numbers: &[FlowNumber], verdicts: &[Verdict]) {
        for (number, verdict) in numbers.iter().zip(verdicts) {
            let cpu = verdict.cpu();
            if !verdict.is_drop()
                && let Some(last) = self.cpus.get_mut(number.flow as usize)
            {
                self.report.moves += u64::from(*last != cpu && *last != CpuId::NONE);
                *last = cpu;
            }
        }
    }

    /// How often a flow moved so far.
    pub(crate) fn moves(&self) -> u64 {
        self.report.moves
    }

    pub(crate) fn into_report(mut self) -> OrderTrackerReport {
        self.report.steered_flows = self.flows.len() as u64;
        let packets = self.flows.values().map(|record| u64::from(record.number));
        self.report.largest_flow = packets.max().unwrap_or(0);
        self.report
    }
}

/// The tables of all RX threads' order trackers.
pub(crate) fn progress_tables(rx_threads: usize) -> Arc<[OrderProgress]> {
    (0..rx_threads).map(|_| OrderProgress::new()).collect()
}

/// The worker's part: checks the numbers.
pub(crate) struct OrderCheck {
    progress_tables: Arc<[OrderProgress]>,
    /// For each table, a set of the flows seen on this worker.
    seen: Vec<Vec<u64>>,
    late: Vec<bool>,
    pub(crate) reordered: u64,
}

impl OrderCheck {
    pub(crate) fn new(progress_tables: Arc<[OrderProgress]>) -> OrderCheck {
        let seen = vec![Vec::new(); progress_tables.len()];
        OrderCheck { progress_tables, seen, late: Vec::new(), reordered: 0 }
    }

    /// Called before the handler.
    pub(crate) fn begin(&mut self, list: &PacketList<'_>) {
        self.late.clear();
        for packet in list.iter() {
            let Some(number) = packet.number().filter(|n| n.flow != FlowNumber::UNTRACKED) else {
                self.late.push(false);
                continue;
            };
            let table = packet.numbered_by();
            let words = &mut self.seen[table];
            let word = number.flow as usize / 64;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1 << (number.flow % 64);
            // ORDER: Relaxed; only the highest number matters, and all threads see the `fetch_max` operations on
            // one word in one order.
            let before = self.progress_tables[table]
                .flow(number.flow)
                .begun
                .fetch_max(number.number, Ordering::Relaxed);
            self.late.push(before >= number.number);
        }
    }

    /// Called after the handler, with the same list.
    pub(crate) fn complete(&mut self, list: &PacketList<'_>) {
        for (packet, begun_late) in list.iter().zip(&self.late) {
            let Some(number) = packet.number().filter(|n| n.flow != FlowNumber::UNTRACKED) else {
                continue;
            };
            let progress = self.progress_tables[packet.numbered_by()].flow(number.flow);
            // ORDER: Relaxed, as in `begin`.
            let before = progress.completed.fetch_max(number.number, Ordering::Relaxed);
            self.reordered += u64::from(*begun_late || before >= number.number);
        }
    }

    /// Distinct flows seen on this CPU.
    pub(crate) fn flows(&self) -> u64 {
        self.seen.iter().flatten().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::Descriptor;
    use crate::block::FrameInfo;
    use rxsteer_packet::LinkType;

    #[test]
    fn swapped_pair_is_found_and_order_is_not() {
        let mut block = Block::new();
        for _ in 0..3 {
            assert!(block.push(b"", FrameInfo::new(LinkType::Raw, 0, 0)));
        }
        OrderTracker::new(0, DissectOptions::default(), true).number(&mut block);
        let packets: Vec<Descriptor> = [0, 2, 1].map(Descriptor::of_frame).to_vec();
        let found = |order: &[usize]| {
            let mut check = OrderCheck::new(progress_tables(1));
            let packets: Vec<Descriptor> = order.iter().map(|&i| packets[i]).collect();
            let cpu = CpuId::new(0).unwrap();
            let socks = rxsteer_core::SockFlowTable::new(1, cpu);
            let options = DissectOptions::default();
            let list = PacketList { cpu, block: &block, packets: &packets, socks: &socks, options };
            check.begin(&list);
            check.complete(&list);
            assert_eq!(check.flows(), 1);
            check.reordered
        };
        assert_eq!(found(&[0, 2, 1]), 0);
        assert_eq!(found(&[0, 1, 2]), 1, "frame 2 before frame 1");
        assert_eq!(found(&[0, 1]), 0, "a gap is no disorder");
    }
}
