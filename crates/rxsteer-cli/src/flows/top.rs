//! Selects the largest of many records; only those that are shown use memory.

use clap::ValueEnum;
use rxsteer_records::collecting::Consumer;
use rxsteer_user::core::FlowKey;
use rxsteer_user::flows::{FlowRecord, FlowTotals};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What makes a flow large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// How many packets
    Packets,
    /// How many bytes on the wire
    Bytes,
}

impl Measure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Packets => "packets",
            Measure::Bytes => "bytes",
        }
    }

    pub(crate) fn of(self, totals: &FlowTotals) -> u64 {
        match self {
            Measure::Packets => totals.packets,
            Measure::Bytes => totals.bytes,
        }
    }
}

/// The order of records. The key comes last, so that two runs with equal figures show the same.
type Rank = (u64, u64, u64, Reverse<(FlowKey, u64)>);

/// The largest records, and the sums of all.
#[derive(Debug)]
pub(crate) struct Top {
    most: usize,
    pub(crate) by: Measure,
    /// The smallest first, since it is replaced by a larger one.
    heap: BinaryHeap<Reverse<Ranked>>,
    /// Records seen, with their packets and bytes.
    pub(crate) records: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct Ranked {
    rank: Rank,
    record: FlowRecord,
}

impl Top {
    /// Keeps the `most` largest records.
    pub(crate) fn new(most: usize, by: Measure) -> Top {
        Top { most, by, heap: BinaryHeap::new(), records: 0, packets: 0, bytes: 0 }
    }

    /// The largest records, in descending order.
    pub(crate) fn records(&self) -> Vec<&FlowRecord> {
        let mut ranked: Vec<&Ranked> = self.heap.iter().map(|Reverse(ranked)| ranked).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked.into_iter().map(|ranked| &ranked.record).collect()
    }

    fn rank(&self, record: &FlowRecord) -> Rank {
        let totals = &record.totals;
        let key = Reverse((record.key, totals.first_ns));
        (self.by.of(totals), totals.packets, totals.bytes, key)
    }
}

impl Consumer for Top {
    fn take(&mut self, record: &FlowRecord) {
        self.records += 1;
        self.packets += record.totals.packets;
        self.bytes += record.totals.bytes;
        let rank = self.rank(record);
        if self.heap.len() == self.most {
            // Most records are not among the largest, and are not copied.
            if self.heap.peek().is_some_and(|Reverse(smallest)| rank <= smallest.rank) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Reverse(Ranked { rank, record: record.clone() }));
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(port: u16, packets: u64, bytes: u64) -> FlowRecord {
        let mut record = FlowRecord::default();
        record.key = FlowKey { src_port: port, ip_version: 4, ..FlowKey::default() };
        record.totals = FlowTotals { packets, bytes, ..FlowTotals::default() };
        record
    }

    fn ports(by: Measure, records: &[FlowRecord]) -> Vec<u16> {
        let mut top = Top::new(3, by);
        for record in records {
            top.take(record);
        }
        assert_eq!(top.records, records.len() as u64);
        top.records().iter().map(|record| record.key.src_port).collect()
    }

    #[test]
    fn largest_are_kept_and_ties_go_by_the_key() {
        let mut records = [
            record(1, 9, 10),
            record(2, 1, 99),
            record(3, 5, 10),
            record(4, 5, 10),
            record(5, 5, 10),
        ];
        for _ in 0..records.len() {
            records.rotate_left(1);
            assert_eq!(ports(Measure::Bytes, &records), [2, 1, 3]);
            assert_eq!(ports(Measure::Packets, &records), [1, 3, 4]);
        }
        assert_eq!(ports(Measure::Bytes, &records[..1]).len(), 1, "fewer than asked for");
    }
}
