//! Flow statistics on the workers: each flow's record is the sum of its packets, whatever moved the flow.

use crate::common::*;
use rxsteer_user::core::{CpuId, FlowKey};
use rxsteer_user::flows::{FlowRecord, FlowTable, FlowTableConfig, FlowTotals};
use rxsteer_user::{FlowStats, Handler, PacketList, PipelineConfig, SteerChange, When, WhenFull};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flow and the TCP flags of a synthetic frame, parsed directly.
fn parsed(frame: &[u8]) -> (FlowKey, u8) {
    let mut key = FlowKey::default();
    let at = if frame[12..14] == [8, 0] {
        key.src[..4].copy_from_slice(&frame[26..30]);
        key.dst[..4].copy_from_slice(&frame[30..34]);
        (key.protocol, key.ip_version) = (frame[23], 4);
        34
    } else {
        key.src.copy_from_slice(&frame[22..38]);
        key.dst.copy_from_slice(&frame[38..54]);
        (key.protocol, key.ip_version) = (frame[20], 6);
        54
    };
    key.src_port = u16::from_be_bytes([frame[at], frame[at + 1]]);
    key.dst_port = u16::from_be_bytes([frame[at + 2], frame[at + 3]]);
    (key, if key.protocol == 6 { frame[at + 13] } else { 0 })
}

/// The expected sums by flow, computed frame by frame.
fn expected(config: &PipelineConfig, spec: &str) -> BTreeMap<FlowKey, FlowTotals> {
    let mut one = config.clone();
    one.rx_cpus = vec![cpu(0)];
    let mut source = synthetic(&one, spec).remove(0);
    let mut sums: BTreeMap<FlowKey, FlowTotals> = BTreeMap::new();
    let mut fill = rxsteer_user::source::Fill::More;
    while fill == rxsteer_user::source::Fill::More {
        let mut block = rxsteer_user::Block::new();
        fill = source.fill(&mut block);
        for frame in block.frames() {
            let (key, tcp_flags) = parsed(block.bytes_of(frame));
            let (first_ns, rx_queue) = (frame.timestamp_ns, frame.rx_queue);
            let new = FlowTotals { first_ns, rx_queue, ..FlowTotals::default() };
            let sum = sums.entry(key).or_insert(new);
            sum.packets += 1;
            sum.bytes += u64::from(frame.wire_len);
            sum.tcp_flags |= tcp_flags;
            sum.first_ns = sum.first_ns.min(frame.timestamp_ns);
            sum.last_ns = sum.last_ns.max(frame.timestamp_ns);
        }
    }
    sums
}

/// Counts packets, and records a new desired CPU for every flow all the time.
struct Counting {
    stats: FlowStats,
    cpus: Vec<CpuId>,
    lists: usize,
}

impl Handler for Counting {
    fn handle(&mut self, list: &PacketList<'_>) {
        self.stats.record(list);
        self.lists += 1;
        for packet in list.iter() {
            let at = (packet.hash().get() as usize + self.lists / 16) % self.cpus.len();
            list.record(packet.hash(), self.cpus[at]);
        }
    }
}

fn handlers<'a>(
    table: &'a Arc<FlowTable>,
    config: &PipelineConfig,
    when_full: WhenFull,
) -> impl FnMut(CpuId) -> Counting + use<'a> {
    let cpus: Vec<CpuId> = config.cpus.iter().collect();
    move |cpu| {
        let writer = table.writer(cpu).unwrap();
        let stats = FlowStats::new(writer, when_full);
        Counting { stats, cpus: cpus.clone(), lists: 0 }
    }
}

fn final_records(table: &FlowTable) -> Vec<FlowRecord> {
    table.finish();
    let mut records = Vec::new();
    assert_eq!(table.collect(|record| records.push(record.clone())), 0, "no writer is left");
    records
}

fn sums(records: &[FlowRecord]) -> BTreeMap<FlowKey, FlowTotals> {
    let mut sums: BTreeMap<FlowKey, FlowTotals> = BTreeMap::new();
    for record in records {
        let of = record.totals;
        let new = FlowTotals { packets: 0, bytes: 0, ..of };
        let sum = sums.entry(record.key).or_insert(new);
        sum.packets += of.packets;
        sum.bytes += of.bytes;
        sum.tcp_flags |= of.tcp_flags;
        sum.first_ns = sum.first_ns.min(of.first_ns);
        sum.last_ns = sum.last_ns.max(of.last_ns);
    }
    sums
}

/// Reports the first flow that differs, which is clearer than all flows.
fn assert_same(
    found: &BTreeMap<FlowKey, FlowTotals>,
    expected: &BTreeMap<FlowKey, FlowTotals>,
    case: &str,
) {
    for (key, totals) in expected {
        assert_eq!(found.get(key), Some(totals), "{case}: {key}");
    }
    assert_eq!(found.len(), expected.len(), "{case}");
}

#[test]
fn records_are_the_sums_of_their_packets_whatever_the_policy_and_the_moves() {
    let spec = "packets=30000,flows=400,share=zipf:1.1,size=60-1514,protocol=mixed,ip=mixed";
    for (policy, cpus, rx_threads) in [
        ("none", "0", 1),
        ("rps", "0-3", 2),
        ("bound:0=3,1=4095", "0,3,4095", 1),
        ("sparse:loops=1", "0-7", 2),
        ("rfs", "0,3,8191", 1),
        ("rfs+sparse", "0-4", 2),
    ] {
        let mut config = config(policy, cpus);
        config.rx_queues = 4;
        config.rx_cpus = config.cpus.iter().take(rx_threads).collect();
        if policy == "rfs" {
            let change = SteerChange { policy: Some("rps".parse().unwrap()), ..Default::default() };
            config.changes = vec![(When::Packets(15_000), change)];
        }
        let table = FlowTable::new(&FlowTableConfig::new(1000)).unwrap();
        let report = run_with(&config, spec, handlers(&table, &config, WhenFull::Refuse));
        assert_eq!((report.delivered, report.reordered), (30_000, 0), "{policy}");
        assert!(report.handlers.iter().all(|(_, handler)| handler.stats.without_flow() == 0));
        drop(report);
        let records = final_records(&table);
        assert_same(&sums(&records), &expected(&config, spec), policy);
        assert_eq!(table.counts().created, records.len() as u64);
        for record in &records {
            let parts = record.per_cpu.iter().map(|part| part.packets).sum::<u64>();
            assert_eq!(parts + record.shared.packets, record.totals.packets);
            assert!(record.per_cpu.iter().all(|part| config.workers().contains(part.cpu)));
        }
        if policy.starts_with("rfs") {
            let moved = records.iter().filter(|record| record.per_cpu.len() > 1).count();
            assert!(moved > 20, "{policy}: {moved} flows ran on several CPUs");
        }
    }
}

#[test]
fn with_too_many_flows_all_packets_are_in_records_or_refused() {
    let spec = "packets=40000,flows=8000";
    for when_full in [WhenFull::Wait, WhenFull::Refuse] {
        let config = config("rps", "0-2");
        let table = FlowTable::new(&FlowTableConfig::new(300)).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let collector = {
            let (table, done) = (table.clone(), done.clone());
            std::thread::spawn(move || {
                let mut records = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    table.collect(|record| records.push(record.clone()));
                    std::thread::yield_now();
                }
                records
            })
        };
        let report = run_with(&config, spec, handlers(&table, &config, when_full));
        done.store(true, Ordering::Relaxed);
        let mut records = collector.join().unwrap();
        assert_eq!(report.delivered, 40_000);
        drop(report);
        records.extend(final_records(&table));
        let counts = table.counts();
        let packets: u64 = records.iter().map(|record| record.totals.packets).sum();
        assert_eq!(packets + counts.refused, 40_000, "{counts:?}");
        assert_eq!(counts.created, records.len() as u64);
        // How many are refused depends on how often the collector runs.
        assert!(counts.evicted > 0, "{counts:?}");
        if when_full == WhenFull::Wait {
            assert!(counts.evicted > 5000, "{counts:?}");
            assert_eq!(counts.refused, 0);
            assert_same(&sums(&records), &expected(&config, spec), "wait");
        }
    }
}
