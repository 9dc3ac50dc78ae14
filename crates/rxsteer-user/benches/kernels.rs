//! The measured cases: frames in memory are parsed, hashed, decided on and handed off to one worker whose handler
//! does nothing. The baseline is the same work with one `crossbeam-channel` send per packet.

use hashbrown::HashMap;
use rxsteer_bench::{Case, leave_out};
use rxsteer_user::core::{
    Arrival, CpuId, FlowWords, Idle, Policy, Slots, SteerConfig, Steering, Verdict,
};
use rxsteer_user::flows::{FlowTable, FlowTableConfig};
use rxsteer_user::packet::{DissectOptions, Hasher, LinkType, SymmetricHash};
use rxsteer_user::source::memory::MemorySource;
use rxsteer_user::source::synthetic::SyntheticSource;
use rxsteer_user::source::{Fill, Source};
use rxsteer_user::{
    Block, FlowStats, Handler, OnFull, PacketList, PipelineConfig, Speed, WhenFull, run, sys,
};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Packets that a call receives. A call takes tens of milliseconds; starting threads takes little beside that.
const PACKETS: u64 = 2_048_000;
/// 64-byte frames, one after the other. Every call has the same 20 480 frames of 10 000 flows.
const FRAMES: &str = "packets=20480,flows=10000,size=64,seed=1";
const ROUNDS: u64 = PACKETS / 20_480;
const FLOOD: &str = "whole path under a flood, rfs+sparse";
const ALONE: &str = "packets=20480,flows=100,size=64,seed=1";
const FLOODED: &str = "packets=20480,flows=100,size=64,seed=1,flood=spoofed:0.99";
const STATS_10_000: &str = "time in the handler, 10 000 flows";
const STATS_100_000: &str = "time in the handler, 100 000 flows";
const EMPTY: &str = "nothing but two looks at the clock per list";
const DISSECT: &str = "each packet's flow and flags, read from its headers";
const STATS: &str = "flow statistics";
const MAP: &str = "a hash map per worker, locked once per list";
const IN_LARGE: &str = "flow statistics in a table for a million";
const MANY_FRAMES: &str = "packets=204800,flows=100000,size=64,seed=1";
const MANY_ROUNDS: u64 = PACKETS / 204_800;
const GROUP: &str = "whole path, 10 000 flows, empty handler";

/// All cases of this crate.
pub fn all() -> Vec<Case> {
    let case = |name, baseline, run| Case { group: GROUP, name, baseline, per_iter: PACKETS, run };
    vec![
        case("one crossbeam-channel send per packet", true, Box::new(with_channel())),
        case("rxsteer", false, Box::new(with_lists(true, |_| {}))),
        case("rxsteer, each frame copied in", false, Box::new(with_lists(false, |_| {}))),
        case("rxsteer, rps+balance", false, Box::new(with_lists(true, balance))),
        case("rxsteer, rps+balance, load measured", false, Box::new(with_lists(true, measured))),
        case("rxsteer, ticks", false, Box::new(with_lists(true, ticks))),
        case("rxsteer, rfs+sparse", false, Box::new(with_everything(false, FRAMES))),
        case(
            "rxsteer, rfs+sparse, flow limit, recording",
            false,
            Box::new(with_everything(true, FRAMES)),
        ),
        Case {
            group: FLOOD,
            name: "100 flows alone",
            baseline: true,
            per_iter: PACKETS,
            run: Box::new(with_everything(false, ALONE)),
        },
        Case {
            group: FLOOD,
            name: "99 spoofed packets to each of theirs",
            baseline: false,
            per_iter: PACKETS,
            run: Box::new(with_everything(false, FLOODED)),
        },
        on_the_worker(STATS_10_000, EMPTY, FRAMES, Handling::Nothing),
        on_the_worker(STATS_10_000, DISSECT, FRAMES, Handling::Dissect),
        on_the_worker(STATS_10_000, STATS, FRAMES, Handling::Count(16_384)),
        on_the_worker(STATS_10_000, MAP, FRAMES, Handling::Map(16_384)),
        on_the_worker(STATS_10_000, IN_LARGE, FRAMES, Handling::Count(1 << 20)),
        on_the_worker(STATS_100_000, EMPTY, MANY_FRAMES, Handling::Nothing),
        on_the_worker(STATS_100_000, DISSECT, MANY_FRAMES, Handling::Dissect),
        on_the_worker(STATS_100_000, STATS, MANY_FRAMES, Handling::Count(131_072)),
        on_the_worker(STATS_100_000, MAP, MANY_FRAMES, Handling::Map(131_072)),
        on_the_worker(STATS_100_000, IN_LARGE, MANY_FRAMES, Handling::Count(1 << 20)),
    ]
}

/// The CPUs of the RX thread and the worker: two different ones if possible.
fn cpus() -> (CpuId, CpuId) {
    let host = sys::allowed_cpus();
    let mut cpus = host.iter().flat_map(|cpus| cpus.iter());
    let first = cpus.next().or(CpuId::new(0)).expect("CPU 0 is an id");
    (first, cpus.next().unwrap_or(first))
}

fn hasher() -> Hasher {
    Hasher::Symmetric(SymmetricHash::new([7; 16]))
}

fn frames(spec: &str, rounds: u64) -> MemorySource {
    let spec = spec.parse().expect("the specification is right");
    MemorySource::load(&mut SyntheticSource::new(spec, 1, (0, 1)), 1000, rounds)
}

/// Hides that the frames are already in blocks, so that each frame is copied into a block.
struct Copied(MemorySource);

impl Source for Copied {
    fn fill(&mut self, block: &mut Block) -> Fill {
        self.0.fill(block)
    }
}

fn balance(config: &mut PipelineConfig) {
    config.policy = "rps+balance".parse().expect("a policy");
}

fn measured(config: &mut PipelineConfig) {
    balance(config);
    config.measure_load = true;
}

fn ticks(config: &mut PipelineConfig) {
    config.tick = Some(Duration::from_millis(1));
}

fn with_lists(in_place: bool, change: impl Fn(&mut PipelineConfig)) -> impl FnMut() -> u64 {
    let (rx_cpu, cpu) = cpus();
    let mut config = PipelineConfig::new(Policy::Rps, CpuSetOf(cpu).set());
    config.rx_cpus = vec![rx_cpu];
    config.hasher = hasher();
    config.on_full = OnFull::Wait;
    change(&mut config);
    let frames = frames(FRAMES, ROUNDS);
    move || {
        let source: Box<dyn Source> =
            if in_place { Box::new(frames.clone()) } else { Box::new(Copied(frames.clone())) };
        let handler = |_| |_: &PacketList<'_>| {};
        let stop = AtomicBool::new(false);
        let report = run(&config, &mut [source], Speed::Max, &stop, handler, |_, _| {})
            .expect("the configuration is right");
        assert_eq!(report.delivered, PACKETS, "nothing is lost");
        report.bytes
    }
}

/// The policy that uses all mechanisms. With `all`, there is also the flow limit, and a handler that records for
/// each packet where its application runs.
fn with_everything(all: bool, spec: &'static str) -> impl FnMut() -> u64 {
    let (rx_cpu, cpu) = cpus();
    let mut config = PipelineConfig::new(Policy::RfsSparse(Slots::of(4)), CpuSetOf(cpu).set());
    config.rx_cpus = vec![rx_cpu];
    config.hasher = hasher();
    config.on_full = OnFull::Wait;
    config.flow_limit = all.then_some(4096);
    let frames = frames(spec, ROUNDS);
    move || {
        let source: Box<dyn Source> = Box::new(frames.clone());
        let handler = |cpu| {
            move |list: &PacketList<'_>| {
                if all {
                    for packet in list.iter() {
                        list.record(packet.hash(), cpu);
                    }
                }
            }
        };
        let stop = AtomicBool::new(false);
        let report = run(&config, &mut [source], Speed::Max, &stop, handler, |_, _| {})
            .expect("the configuration is right");
        assert_eq!(report.delivered, PACKETS, "nothing is lost");
        report.bytes
    }
}

/// The frames of another source, each a microsecond after the previous one, across rounds. So time advances, and
/// every packet is the latest of its flow.
struct Later {
    source: MemorySource,
    now_ns: u64,
}

impl Source for Later {
    fn fill(&mut self, block: &mut Block) -> Fill {
        let mut filled = Block::new();
        let fill = self.source.fill(&mut filled);
        for frame in filled.frames() {
            self.now_ns += 1000;
            assert!(block.push(filled.bytes_of(frame), frame.info().at(self.now_ns)));
        }
        fill
    }
}

/// A handler that measures its own time.
struct Clocked {
    handle: Box<dyn FnMut(&PacketList<'_>) + Send>,
    took: Duration,
}

/// The work of such a handler.
#[derive(Clone, Copy)]
enum Handling {
    Nothing,
    /// Reads the properties of each packet that statistics use.
    Dissect,
    /// Statistics in a table for this many flows.
    Count(u32),
    /// Minimal statistics: a map with room for this many flows, behind a lock for the thread that collects it. It
    /// has no limit, no eviction, and only one CPU.
    Map(usize),
}

/// The entry of a flow in the map.
#[derive(Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    #[expect(dead_code, reason = "a record has it, so it takes its place")]
    first_ns: u64,
    last_ns: u64,
    tcp_flags: u8,
}

/// Counts the packets of a list in a map.
fn count_in(
    map: &mut HashMap<FlowWords, Counts, foldhash::fast::RandomState>,
    list: &PacketList<'_>,
) {
    for packet in list.iter() {
        let meta = packet.meta();
        let Some(of) = packet.flow() else { continue };
        let counts = map
            .entry(of.flow)
            .or_insert_with(|| Counts { first_ns: meta.timestamp_ns, ..Counts::default() });
        counts.packets += 1;
        counts.bytes += u64::from(meta.wire_len);
        counts.last_ns = counts.last_ns.max(meta.timestamp_ns);
        counts.tcp_flags |= of.tcp_flags;
    }
}

/// Adds up the flows' ports, so that the compiler cannot remove the reads.
fn dissect_all(list: &PacketList<'_>) {
    let mut ports = 0;
    for packet in list.iter() {
        ports += packet
            .flow()
            .map_or(0, |of| of.flow.0[4] ^ of.flow.0[0] ^ of.flow.0[2] ^ u64::from(of.tcp_flags));
    }
    std::hint::black_box(ports);
}

impl Handler for Clocked {
    fn handle(&mut self, list: &PacketList<'_>) {
        let start = Instant::now();
        (self.handle)(list);
        self.took += start.elapsed();
    }
}

/// The time that a worker spends in its handler, on packets that another CPU received. The handler counts flows in
/// a table of a given size, or does one of the other kinds of work.
fn on_the_worker(
    group: &'static str,
    name: &'static str,
    spec: &'static str,
    handling: Handling,
) -> Case {
    let (rx_cpu, cpu) = cpus();
    let mut config = PipelineConfig::new(Policy::Rps, CpuSetOf(cpu).set());
    config.rx_cpus = vec![rx_cpu];
    config.hasher = hasher();
    config.on_full = OnFull::Wait;
    let rounds = if spec == FRAMES { ROUNDS } else { MANY_ROUNDS };
    let source = frames(spec, rounds);
    let table = match handling {
        Handling::Count(flows) => FlowTable::new(&FlowTableConfig::new(flows)).map(Some),
        _ => Ok(None),
    };
    let table = table.expect("there is the memory");
    let room = if let Handling::Map(flows) = handling { flows } else { 0 };
    let map = Arc::new(Mutex::new(HashMap::with_capacity_and_hasher(room, Default::default())));
    let mut now_ns = 0;
    let run = move || {
        let all = Instant::now();
        let handler = |cpu| {
            let handle: Box<dyn FnMut(&PacketList<'_>) + Send> = match (handling, &table) {
                (Handling::Dissect, _) => Box::new(dissect_all),
                (Handling::Map(_), _) => {
                    let map = Arc::clone(&map);
                    Box::new(move |list| {
                        count_in(&mut map.lock().expect("no thread panics"), list);
                    })
                }
                (Handling::Count(_), Some(table)) => {
                    let writer = table.writer(cpu).expect("the only one");
                    let mut stats = FlowStats::new(writer, WhenFull::Refuse);
                    Box::new(move |list| stats.record(list))
                }
                _ => Box::new(|_| {}),
            };
            Clocked { handle, took: Duration::ZERO }
        };
        let stop = AtomicBool::new(false);
        let mut source: [Box<dyn Source>; 1] = [Box::new(Later { source: source.clone(), now_ns })];
        now_ns += PACKETS * 1000;
        let report = run(&config, &mut source, Speed::Max, &stop, handler, |_, _| {})
            .expect("the configuration is right");
        assert_eq!(report.delivered, PACKETS, "nothing is lost");
        let took: Duration = report.handlers.iter().map(|(_, handler)| handler.took).sum();
        let counts = table.as_ref().map(|table| table.counts()).unwrap_or_default();
        assert_eq!(counts.refused, 0);
        leave_out(all.elapsed().saturating_sub(took));
        report.bytes
    };
    Case { group, name, baseline: false, per_iter: PACKETS, run: Box::new(run) }
}

struct CpuSetOf(CpuId);

impl CpuSetOf {
    fn set(&self) -> rxsteer_user::core::CpuSet {
        rxsteer_user::core::CpuSet::new([self.0]).expect("one CPU")
    }
}

/// The same parse, hash and decision, followed by a send of the descriptor over a channel.
fn with_channel() -> impl FnMut() -> u64 {
    let (rx_cpu, cpu) = cpus();
    let mut source = frames(FRAMES, 1);
    let mut blocks = Vec::new();
    while let Some((block, fill)) = source.shared_block() {
        blocks.push(block);
        if fill == Fill::End {
            break;
        }
    }
    let hasher = hasher();
    let config = SteerConfig::new(Policy::Rps, CpuSetOf(cpu).set(), vec![rx_cpu]);
    move || {
        let (sender, receiver) = crossbeam_channel::bounded::<(u32, u32, u32, u32)>(1024);
        let mut steering = Steering::new(&config).expect("the configuration is right");
        std::thread::scope(|threads| {
            let worker = threads.spawn(move || {
                sys::pin_to(cpu);
                let (mut packets, mut bytes) = (0, 0);
                for (_frame, _hash, wire_len, _at) in receiver {
                    packets += 1;
                    bytes += u64::from(wire_len);
                }
                assert_eq!(packets, PACKETS, "nothing is lost");
                bytes
            });
            let (blocks, hasher) = (&blocks, &hasher);
            threads.spawn(move || {
                sys::pin_to(rx_cpu);
                let (mut idle, mut verdict) = (Idle::default(), [Verdict::default()]);
                for _ in 0..ROUNDS {
                    for block in blocks {
                        for (index, frame) in (0..).zip(block.frames()) {
                            let bytes = block.bytes_of(frame);
                            let options = DissectOptions::default();
                            let hash = hasher.flow_hash(LinkType::Ethernet, bytes, options).hash;
                            let arrival = Arrival { hash, ..Arrival::default() };
                            steering.decide(&[arrival], &mut idle, &mut verdict);
                            if verdict[0].drop_reason().is_none() {
                                let packet = (index, hash.get(), frame.wire_len, 0);
                                sender.send(packet).expect("the worker runs");
                            }
                        }
                    }
                }
            });
            worker.join().expect("the worker ends")
        })
    }
}
