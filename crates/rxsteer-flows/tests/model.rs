//! The flow table, compared with a plain map: after any list of operations each flow has the counts of its
//! packets, each CPU its own, and each flow that ended is collected once.
//!
//! If no flow has to be evicted, all records must be exact. If flows are evicted, it is not specified which of a
//! list's packets came before an eviction; then no packet may be lost or counted twice, and no limit may be
//! exceeded. `victims.rs` tests which flow is evicted.

use crate::reference::{CPUS, Flow, Flows, key, packet};
use proptest::prelude::*;
use rxsteer_core::CpuId;
use rxsteer_flows::{
    CpuTotals, FlowEnd, FlowPacket, FlowRecord, FlowTable, FlowTableConfig, FlowWriter,
};
use std::sync::Arc;

/// More than the flows of a case can take, and more than the `Vec<Op>` of a case can use up.
const PLENTY: u32 = 20_000;

#[derive(Clone, Debug)]
struct Setup {
    max_flows: u32,
    max_blocks: u32,
    idle_timeout_ns: Option<u64>,
}

#[derive(Clone, Debug)]
enum Op {
    /// By the CPU with this index, at these times from now, of these flows.
    Update(usize, Vec<(i64, u8, u32, u8)>),
    Read(u8),
    ReadAll,
    Clear(u8),
    ClearAll,
    /// At this time from now.
    Expire(i64),
    Finish,
    Collect,
    Later(u64),
    /// A writer is dropped and created again.
    Recreate(usize),
}

fn cpu(at: usize) -> CpuId {
    CpuId::new(CPUS[at]).unwrap()
}

fn op(flows: u8) -> impl Strategy<Value = Op> {
    let packet = (-150..150i64, 0..flows, 0..2000u32, any::<u8>());
    let few = prop::collection::vec(packet.clone(), 1..6);
    let many = prop::collection::vec(packet, 60..140);
    let at = 0..CPUS.len();
    prop_oneof![
        12 => (at.clone(), prop_oneof![6 => few, 1 => many]).prop_map(|(cpu, list)| Op::Update(cpu, list)),
        3 => (0..flows).prop_map(Op::Read),
        1 => Just(Op::ReadAll),
        2 => (0..flows).prop_map(Op::Clear),
        1 => Just(Op::ClearAll),
        2 => (-50..200i64).prop_map(Op::Expire),
        1 => prop_oneof![4 => Just(Op::Collect), 1 => Just(Op::Finish)],
        3 => (0..120u64).prop_map(Op::Later),
        1 => at.prop_map(Op::Recreate),
    ]
}

/// The table, its writers, and the expected content.
struct Pair {
    setup: Setup,
    table: Arc<FlowTable>,
    writers: Vec<Option<FlowWriter>>,
    flows: Flows,
    now: u64,
    latest: u64,
    refused: u64,
}

impl Pair {
    fn new(setup: &Setup) -> Pair {
        let mut config = FlowTableConfig::new(setup.max_flows);
        config.max_blocks = setup.max_blocks;
        config.idle_timeout_ns = setup.idle_timeout_ns;
        let table = FlowTable::new(&config).unwrap();
        let writers = (0..CPUS.len()).map(|at| Some(table.writer(cpu(at)).unwrap())).collect();
        let flows = Flows::new(setup.idle_timeout_ns);
        Pair { setup: setup.clone(), table, writers, flows, now: 1000, latest: 0, refused: 0 }
    }

    /// Without blocks for all CPUs, it depends on the table where a CPU counts, and so does the age of a flow
    /// before a clear. The results are then defined only if times never run back.
    fn time(&mut self, from_now: i64) -> u64 {
        let time = self.now.saturating_add_signed(from_now);
        self.latest = self.latest.max(time);
        let forward = self.setup.max_blocks < PLENTY && self.setup.idle_timeout_ns.is_some();
        if forward { self.latest } else { time }
    }

    /// Passes packets to a writer and discards refused ones. Calls `taken` with the others.
    fn update(
        &mut self,
        at: usize,
        packets: &[FlowPacket],
        mut taken: impl FnMut(&mut Flows, &FlowPacket),
    ) {
        let writer = self.writers[at].as_mut().unwrap();
        let mut rest = packets;
        while !rest.is_empty() {
            let done = writer.update(rest);
            rest[..done].iter().for_each(|packet| taken(&mut self.flows, packet));
            rest = &rest[done..];
            if !rest.is_empty() {
                writer.refuse(1);
                self.refused += 1;
                rest = &rest[1..];
            }
        }
    }

    fn packets(&mut self, list: Vec<(i64, u8, u32, u8)>) -> Vec<FlowPacket> {
        let mut one =
            |(from_now, flow, bytes, flags)| packet(flow, self.time(from_now), bytes, flags);
        list.into_iter().map(&mut one).collect()
    }

    fn recreate(&mut self, at: usize) {
        self.writers[at] = None;
        self.writers[at] = Some(self.table.writer(cpu(at)).unwrap());
    }

    fn collect(&self) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        assert_eq!(self.table.collect(|record| records.push(record.clone())), 0, "no reader is in");
        records
    }

    fn all(&self) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        self.table.for_each(|record| records.push(record.clone()));
        records.sort_by_key(|record| record.key.src_port);
        records
    }
}

/// Checks that a record matches its packets.
fn check(
    record: &FlowRecord,
    flow: &Flow,
    end: Option<FlowEnd>,
    exact: bool,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(record.totals, flow.totals());
    prop_assert_eq!(record.end, end);
    let (packets, bytes) = record
        .per_cpu
        .iter()
        .fold((0, 0), |(packets, bytes), of| (packets + of.packets, bytes + of.bytes));
    let whole = (packets + record.shared.packets, bytes + record.shared.bytes);
    prop_assert_eq!(whole, (flow.totals().packets, flow.totals().bytes));
    let own: Vec<CpuTotals> = flow.per_cpu();
    if exact {
        prop_assert_eq!(&record.per_cpu, &own);
        return Ok(());
    }
    for of in &record.per_cpu {
        let most = own.iter().find(|own| own.cpu == of.cpu).expect("a CPU that was there");
        prop_assert!(of.packets <= most.packets && of.bytes <= most.bytes);
    }
    Ok(())
}

/// Collects after each long list, since the number of flows that ended and were not collected is limited too.
/// `victims.rs` tests what happens beyond that limit.
fn collecting(ops: Vec<Op>) -> impl Iterator<Item = Op> {
    ops.into_iter().flat_map(|op| {
        let is_long = matches!(&op, Op::Update(_, list) if list.len() > 10);
        [Some(op), is_long.then_some(Op::Collect)].into_iter().flatten()
    })
}

fn run_exact(setup: &Setup, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(setup);
    let exact = setup.max_blocks == PLENTY;
    let mut expired = 0;
    let mut records = 0;
    for op in collecting(ops).chain([Op::Collect, Op::ReadAll, Op::Finish, Op::Collect]) {
        match op {
            Op::Update(at, list) => {
                let packets = pair.packets(list);
                pair.update(at, &packets, |flows, packet| flows.update(CPUS[at], packet));
            }
            Op::Read(flow) => match (pair.table.get(&key(flow)), pair.flows.live.get(&flow)) {
                (Some(record), Some(flow)) => check(&record, flow, None, exact)?,
                (got, flow) => {
                    prop_assert!(got.is_none() && flow.is_none(), "{:?} {:?}", got, flow)
                }
            },
            Op::ReadAll => {
                let all = pair.all();
                prop_assert_eq!(all.len(), pair.flows.live.len());
                for (record, (number, flow)) in all.iter().zip(&pair.flows.live) {
                    prop_assert_eq!(record.key, key(*number));
                    check(record, flow, None, exact)?;
                }
            }
            Op::Clear(flow) => {
                let there = pair.flows.clear(flow);
                prop_assert_eq!(pair.table.clear(&key(flow)), there);
            }
            Op::ClearAll => {
                pair.table.clear_all();
                pair.flows.live.values_mut().for_each(Flow::clear);
            }
            Op::Expire(from_now) => {
                let at = pair.now.saturating_add_signed(from_now);
                pair.table.expire(at);
                pair.flows.end_where(FlowEnd::Idle, |flow| flow.is_idle(at, setup.idle_timeout_ns));
            }
            Op::Finish => {
                pair.table.finish();
                let latest = pair.flows.live.values().map(Flow::latest).max().unwrap_or(0);
                let timeout = setup.idle_timeout_ns;
                pair.flows.end_where(FlowEnd::Idle, |flow| flow.is_idle(latest, timeout));
                pair.flows.end_where(FlowEnd::Finished, |_| true);
            }
            Op::Later(time) => pair.now += time,
            Op::Recreate(at) => pair.recreate(at),
            Op::Collect => {
                let mut got = pair.collect();
                got.sort_by_key(|record| record.key.src_port);
                let mut ended = std::mem::take(&mut pair.flows.ended);
                ended.sort_by_key(|(number, ..)| *number);
                prop_assert_eq!(got.len(), ended.len());
                for (record, (number, flow, end)) in got.iter().zip(&ended) {
                    prop_assert_eq!(record.key, key(*number));
                    check(record, flow, Some(*end), exact)?;
                    expired += u64::from(*end == FlowEnd::Idle);
                }
                records += got.len() as u64;
            }
        }
        let counts = pair.table.counts();
        prop_assert_eq!(counts.live, pair.flows.live.len() as u64);
        prop_assert_eq!(counts.created, pair.flows.created);
        prop_assert_eq!((counts.evicted, counts.refused), (0, 0), "there is room for all");
    }
    prop_assert_eq!(pair.table.counts().expired, expired);
    prop_assert_eq!(pair.table.counts().created, records);
    drop(pair.writers);
    prop_assert_eq!(pair.table.free_blocks(), setup.max_blocks as usize, "all were given back");
    Ok(())
}

fn run_evicting(setup: &Setup, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(setup);
    // For each key, the sums of all accepted packets and of all records.
    let (mut given, mut got) = (Flows::new(None), Flows::new(None));
    let (mut ends, mut finished) = ([0; 3], 0);
    for op in collecting(ops).chain([Op::Finish, Op::Collect]) {
        match op {
            Op::Update(at, list) => {
                let packets = pair.packets(list);
                pair.update(at, &packets, |_, packet| given.update(CPUS[at], packet));
            }
            Op::Read(flow) => {
                let record = pair.table.get(&key(flow));
                prop_assert!(record.is_none_or(|record| record.end.is_none()));
            }
            Op::Expire(from_now) => pair.table.expire(pair.now.saturating_add_signed(from_now)),
            Op::Finish => {
                let before = pair.table.counts();
                pair.table.finish();
                let after = pair.table.counts();
                prop_assert_eq!(after.live, 0);
                finished += before.live - (after.expired - before.expired);
            }
            Op::Later(time) => pair.now += time,
            Op::Recreate(at) => pair.recreate(at),
            Op::ReadAll => {
                let all = pair.all();
                prop_assert_eq!(all.len() as u64, pair.table.counts().live);
                prop_assert!(all.windows(2).all(|two| two[0].key != two[1].key), "twice");
            }
            Op::Collect => {
                for record in pair.collect() {
                    ends[record.end.expect("it ended") as usize] += 1;
                    prop_assert_ne!(record.totals.packets, 0);
                    got.add(&record);
                }
            }
            // Cleared packets are in no record.
            Op::Clear(_) | Op::ClearAll => {}
        }
        let counts = pair.table.counts();
        prop_assert!(counts.live <= u64::from(setup.max_flows));
        prop_assert_eq!(counts.refused, pair.refused);
        prop_assert_eq!(counts.refused, 0, "an old flow can always go");
        prop_assert_eq!(counts.live, counts.created - counts.expired - counts.evicted - finished);
    }
    let counts = pair.table.counts();
    prop_assert_eq!(ends, [counts.expired, counts.evicted, finished]);
    prop_assert_eq!(given.live.len(), got.live.len());
    for ((number, given), (_, got)) in given.live.iter().zip(&got.live) {
        prop_assert_eq!(given.totals(), got.totals(), "of flow {}", number);
        if setup.max_blocks == PLENTY {
            let sorted = |flow: &Flow| {
                let mut of = flow.per_cpu();
                of.sort_by_key(|of| of.cpu);
                of
            };
            prop_assert_eq!(sorted(given), sorted(got), "of flow {}", number);
        }
    }
    drop(pair.writers);
    prop_assert_eq!(pair.table.free_blocks(), setup.max_blocks as usize, "all were given back");
    Ok(())
}

fn setup(max_flows: impl Strategy<Value = u32>) -> impl Strategy<Value = Setup> {
    let blocks = prop::sample::select(vec![0, 1, 2, 5, 40, PLENTY, PLENTY, PLENTY]);
    (max_flows, blocks, prop::option::of(Just(100))).prop_map(
        |(max_flows, max_blocks, idle_timeout_ns)| Setup { max_flows, max_blocks, idle_timeout_ns },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// At most as many flows as the table may hold.
    #[test]
    fn every_count_is_the_models(
        setup in setup(Just(6)),
        ops in prop::collection::vec(op(6), 1..80),
    ) {
        run_exact(&setup, ops)?;
    }

    #[test]
    fn nothing_is_lost_where_flows_make_room(
        setup in setup(1..10u32),
        ops in prop::collection::vec(op(40), 1..60),
    ) {
        run_evicting(&setup, ops)?;
    }
}
