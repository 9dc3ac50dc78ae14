//! The flow table with real threads. The tests depend on numbers of packets, not on time or on which thread is
//! faster. ThreadSanitizer runs them too (`cargo xtask tsan`).

use rxsteer_core::{CpuId, FlowKey};
use rxsteer_flows::{
    FlowEnd, FlowPacket, FlowRecord, FlowTable, FlowTableConfig, FlowTotals, FlowWriter,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn key(flow: u32) -> FlowKey {
    let mut key = FlowKey { ip_version: 4, protocol: 17, ..FlowKey::default() };
    key.src[..4].copy_from_slice(&flow.to_be_bytes());
    key
}

/// All properties of a packet follow from its flow and its round, so that totals can be checked against each
/// other: a flow's packets all have the same size and the same flag, and times that only this flow has.
fn packet(flow: u32, round: u64) -> FlowPacket {
    FlowPacket {
        flow: key(flow).into(),
        time_ns: u64::from(flow) << 32 | round,
        bytes: size(flow),
        tcp_flags: flag(flow),
        ..FlowPacket::default()
    }
}

fn size(flow: u32) -> u32 {
    40 + flow % 1000
}

fn flag(flow: u32) -> u8 {
    1 << (flow % 8)
}

/// Checks that the totals are those of whole packets of this flow.
fn check(totals: &FlowTotals, flow: u32) {
    assert_eq!(totals.bytes, totals.packets * u64::from(size(flow)), "torn: {totals:?}");
    if totals.packets > 0 {
        assert_eq!(totals.tcp_flags, flag(flow), "{totals:?}");
        let times = [totals.first_ns, totals.last_ns];
        assert_eq!(times.map(|time| time >> 32), [flow.into(); 2], "{totals:?}");
        assert!(totals.first_ns <= totals.last_ns, "{totals:?}");
    } else {
        assert_eq!(*totals, FlowTotals::default());
    }
}

fn flow_of(record: &FlowRecord) -> u32 {
    u32::from_be_bytes(record.key.src[..4].try_into().unwrap())
}

fn check_record(record: &FlowRecord) {
    check(&record.totals, flow_of(record));
    let own: u64 = record.per_cpu.iter().map(|of| of.packets).sum();
    assert_eq!(own + record.shared.packets, record.totals.packets);
    let mut cpus: Vec<_> = record.per_cpu.iter().map(|of| of.cpu).collect();
    cpus.sort();
    cpus.dedup();
    assert_eq!(cpus.len(), record.per_cpu.len(), "each CPU once");
}

/// Packets by flow and by CPU.
#[derive(Default)]
struct Sums {
    flows: HashMap<u32, u64>,
    cpus: HashMap<CpuId, u64>,
    records: u64,
}

impl Sums {
    fn add(&mut self, record: &FlowRecord) {
        check_record(record);
        assert!(record.end.is_some());
        assert_ne!(record.totals.packets, 0);
        *self.flows.entry(flow_of(record)).or_default() += record.totals.packets;
        for of in &record.per_cpu {
            *self.cpus.entry(of.cpu).or_default() += of.packets;
        }
        self.records += 1;
    }
}

/// Counts all packets, and waits for the collector when there is no room.
fn count_all(writer: &mut FlowWriter, packets: &[FlowPacket]) {
    let mut rest = packets;
    while !rest.is_empty() {
        rest = &rest[writer.update(rest)..];
        if !rest.is_empty() {
            thread::yield_now();
        }
    }
}

/// Signals the end of a writer, also after a panic. Otherwise a thread that waits for the writer would never
/// notice a failure.
struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

const WRITERS: [u16; 4] = [0, 3, 4095, 8191];
const ROUNDS: u64 = 2_000;

/// The flows of a writer's round: two that all writers share, some of its own, and a new one.
fn flows_of(at: usize, round: u64) -> [u32; 6] {
    let own = 100 * (at as u32 + 1);
    let new = 10_000 + 4 * round as u32 + at as u32;
    [0, 1, own, own + 1 + round as u32 % 5, 0, new]
}

/// Runs the writers, with `during` on this thread while they write. Returns what was collected.
fn run(config: &FlowTableConfig, mut during: impl FnMut(&FlowTable)) -> (Arc<FlowTable>, Sums) {
    let table = FlowTable::new(config).unwrap();
    let over = AtomicUsize::new(0);
    let mut records = Vec::new();
    thread::scope(|scope| {
        let writers = WRITERS.iter().enumerate().map(|(at, id)| {
            let mut writer = table.writer(cpu(*id)).unwrap();
            let over = Over(&over);
            scope.spawn(move || {
                let _over = over;
                for round in 0..ROUNDS {
                    count_all(&mut writer, &flows_of(at, round).map(|flow| packet(flow, round)));
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        // The collector must not panic, since the writers wait for it.
        let collector = scope.spawn(|| {
            let mut records = Vec::new();
            while over.load(Ordering::Relaxed) < WRITERS.len() {
                table.collect(|record| records.push(record.clone()));
                thread::yield_now();
            }
            records
        });
        while !writers.iter().all(|writer| writer.is_finished()) {
            during(&table);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        records = collector.join().unwrap();
    });
    let mut sums = Sums::default();
    records.iter().for_each(|record| sums.add(record));
    table.finish();
    assert_eq!(table.collect(|record| sums.add(record)), 0, "no reader is in");
    let counts = table.counts();
    assert_eq!((counts.live, counts.created), (0, sums.records));
    assert_eq!(table.free_blocks(), config.max_blocks as usize);
    (table, sums)
}

/// Checks that the records contain all packets, by flow.
fn check_flows(sums: &Sums) {
    let mut given = HashMap::<u32, u64>::new();
    for at in 0..WRITERS.len() {
        for flow in (0..ROUNDS).flat_map(|round| flows_of(at, round)) {
            *given.entry(flow).or_default() += 1;
        }
    }
    assert_eq!(sums.flows, given);
}

fn check_cpus(sums: &Sums) {
    let given = WRITERS.map(|id| (cpu(id), ROUNDS * flows_of(0, 0).len() as u64));
    assert_eq!(sums.cpus, HashMap::from(given));
}

fn config(max_flows: u32, max_blocks: u32) -> FlowTableConfig {
    let mut config = FlowTableConfig::new(max_flows);
    config.max_blocks = max_blocks;
    config
}

/// Four CPUs count in shared flows and in their own. No flow is evicted, and a reader reads meanwhile.
#[test]
fn totals_grow_while_cpus_count() {
    let mut before = HashMap::<u32, u64>::new();
    let mut reads = 0;
    let (_, sums) = run(&config(10_000, 10_000), |table| {
        for flow in [0, 1, 100, 200, 300, 400] {
            let Some(record) = table.get(&key(flow)) else { continue };
            check_record(&record);
            let before = before.entry(flow).or_default();
            assert!(record.totals.packets >= *before, "back from {before}: {record:?}");
            *before = record.totals.packets;
        }
        reads += 1;
        if reads % 16 == 0 {
            table.for_each(check_record);
        }
    });
    check_flows(&sums);
    check_cpus(&sums);
}

/// The same when flows are evicted all the time, blocks for further CPUs are few, and flows are ended meanwhile.
#[test]
fn nothing_is_lost_while_flows_go() {
    for max_blocks in [0, 3, 40] {
        let (table, sums) = run(&config(9, max_blocks), |table| {
            table.for_each(check_record);
            assert!(table.counts().live <= 9);
            table.finish();
        });
        check_flows(&sums);
        assert!(table.counts().created > 4 * ROUNDS, "far more than nine at a time");
    }
}

/// When no block is left, the shared block takes the packets of all but the first CPU, and its totals never tear.
#[test]
fn shared_block_takes_what_has_no_other() {
    let (_, sums) = run(&config(10_000, 0), |table| table.for_each(check_record));
    check_flows(&sums);
}

/// Flows are idle again and again, and the next packet starts another record.
#[test]
fn nothing_is_lost_while_flows_expire() {
    let mut config = config(10_000, 10_000);
    config.idle_timeout_ns = Some(3);
    let (table, sums) = run(&config, |table| table.expire(200 << 32 | 100));
    check_flows(&sums);
    check_cpus(&sums);
    // A writer comes back to its own five flows after five rounds.
    assert!(table.counts().expired > 4 * (ROUNDS - 5));
}

/// Clears during counting: each read is of whole packets, and no count exceeds the packets given.
#[test]
fn clears_leave_whole_packets() {
    for max_blocks in [0, 10_000] {
        let table = FlowTable::new(&config(1_000, max_blocks)).unwrap();
        thread::scope(|scope| {
            let writers = WRITERS.map(|id| {
                let mut writer = table.writer(cpu(id)).unwrap();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        count_all(
                            &mut writer,
                            &[0, 1, u32::from(id), 0].map(|flow| packet(flow, round)),
                        );
                    }
                })
            });
            while !writers.iter().all(|writer| writer.is_finished()) {
                table.clear(&key(0));
                table.for_each(check_record);
                table.clear_all();
            }
        });
        table.clear_all();
        table.for_each(|record| assert_eq!(record.totals, FlowTotals::default()));
        // Each CPU then starts over by itself.
        for id in WRITERS {
            let mut writer = table.writer(cpu(id)).unwrap();
            assert_eq!(writer.update(&[packet(0, u64::from(id))]), 1);
        }
        let record = table.get(&key(0)).unwrap();
        check_record(&record);
        assert_eq!(record.totals.packets, 4);
    }
}

#[test]
fn one_cpu_takes_no_block() {
    let table = FlowTable::new(&config(10, 0)).unwrap();
    let mut writer = table.writer(cpu(0)).unwrap();
    count_all(&mut writer, &[packet(7, 1), packet(7, 2), packet(8, 1)]);
    let record = table.get(&key(7)).unwrap();
    assert_eq!((record.per_cpu.len(), record.shared.packets), (1, 0));
    assert_eq!(record.totals.packets, 2);
}

/// Every possible CPU uses one flow, one after the other, each with its own number of packets.
#[test]
fn all_possible_cpus_use_one_flow() {
    // Each writer has up to 16 blocks in reserve.
    const BLOCKS: u32 = 150_000;
    let cpus = usize::from(CpuId::MAX.get()) + 1;
    let table = FlowTable::new(&config(1, BLOCKS)).unwrap();
    let mut writers: Vec<_> = (0..cpus).map(|id| table.writer(cpu(id as u16)).unwrap()).collect();
    let packets = |id: u16| u64::from(id % 3 + 1);
    for writer in writers.iter_mut().rev() {
        let count = packets(writer.cpu().get());
        (0..count).for_each(|round| count_all(writer, &[packet(5, round)]));
    }
    let record = table.get(&key(5)).unwrap();
    check_record(&record);
    assert_eq!(record.per_cpu.len(), cpus);
    assert!(record.per_cpu.iter().all(|of| of.packets == packets(of.cpu.get())));
    let order = record.per_cpu.iter().map(|of| of.cpu.index());
    assert!(order.eq((0..cpus).rev()), "in the order in which they came");

    assert!(table.clear(&key(5)));
    assert_eq!(table.get(&key(5)).unwrap().totals, FlowTotals::default(), "no CPU is left out");
    count_all(&mut writers[4095], &[packet(5, 9)]);
    table.finish();
    let mut records = Vec::new();
    assert_eq!(table.collect(|record| records.push(record.clone())), 0);
    assert_eq!((records.len(), records[0].totals.packets), (1, 1));
    drop(writers);
    assert_eq!(table.free_blocks(), BLOCKS as usize, "every line was given back");
}

/// A flood of new flows goes through a table that is a few hundred times too small for it. Earlier flows that have
/// a packet from time to time stay.
#[test]
fn flood_leaves_established_flows_alone() {
    const ESTABLISHED: u32 = 200;
    const FLOOD: u32 = 1_000_000;
    const BETWEEN: u32 = 5_000;
    for packets_each in [1, 2] {
        let table = FlowTable::new(&config(4_000, 0)).unwrap();
        let mut writer = table.writer(cpu(0)).unwrap();
        let established: Vec<_> = (0..ESTABLISHED)
            .flat_map(|flow| (0..4).map(move |round| packet(flow, round)))
            .collect();
        count_all(&mut writer, &established);
        let flood = FLOOD / packets_each;
        let mut evicted = 0;
        for first in (0..flood).step_by(60) {
            let list: Vec<_> = (first..flood.min(first + 60))
                .flat_map(|flow| (0..packets_each).map(move |_| packet(1_000 + flow, 0)))
                .collect();
            count_all(&mut writer, &list);
            if first % BETWEEN < 60 {
                let flow = first / BETWEEN % ESTABLISHED;
                count_all(&mut writer, &[packet(flow, 4 + u64::from(first))]);
            }
            table.collect(|record| {
                assert!(flow_of(record) >= 1_000, "established: {record:?}");
                assert_eq!(record.end, Some(FlowEnd::Evicted));
                assert_eq!(record.totals.packets, packets_each.into());
                evicted += 1;
            });
        }
        assert_eq!((table.counts().live, table.counts().refused), (4_000, 0));
        assert_eq!(evicted, flood + ESTABLISHED - 4_000);
        assert!((0..ESTABLISHED).all(|flow| table.get(&key(flow)).is_some()));
    }
}
