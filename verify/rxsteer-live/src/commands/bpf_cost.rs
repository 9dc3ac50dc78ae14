//! The cost of the BPF programs: nanoseconds per frame compared with a program that only redirects to a fixed CPU, and
//! how much the verifier had to examine.
//!
//! The kernel itself measures the times (`kernel.bpf_stats_enabled`) while live frames pass, so the path of the frames
//! is not included. The kernel's two reads of the clock are part of each figure, and cancel out in the difference.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_bench::Quartiles;
use rxsteer_core::matching::PacketRule;
use rxsteer_core::{CpuSet, Policy};
use rxsteer_lab::{
    EmptySwitch, Fixed, FixedRoute, Link, LinkOptions, LiveFrames, Namespace, Testbed, Traffic,
};
use rxsteer_xdp::{Mode, Path, Settings, Setup};
use serde_json::{Value, json};

/// The default number of slots of the flow table, as `rxsteer run` uses it for one RX queue.
pub(super) const FLOW_CNT: u32 = 32768;

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Measures the nanoseconds that each program takes for a frame beyond those of a fixed redirect; prints verifier and
/// stack figures.
///
/// Live frames are sent on CPU 0, and dropped where they arrive; the figures are quartiles of the differences within
/// rounds. For context switches, the difference is to a program that does nothing. Most of these switches are between
/// other processes of the machine, and concern no ring's thread.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab bpf-cost --flows 10000 --train 8")]
pub(crate) struct Options {
    /// Number of flows
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flows: u32,
    /// Frames of one flow in a row
    #[arg(long, value_name = "N", default_value_t = 1)]
    train: u32,
    /// Flows in random order
    #[arg(long)]
    random: bool,
    /// How often each policy is measured
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Frames sent in one turn
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    frames: u64,
    /// Slots of the flow table
    #[arg(long, value_name = "N", default_value_t = FLOW_CNT)]
    flow_cnt: u32,
    /// CPUs that frames are steered to. With `1` all frames go to the CPU of the fixed program, so the difference is
    /// the cost of the decision. With `0-1` the receiving CPU also processes every other frame
    #[arg(long, value_name = "CPUS", default_value = "0-1")]
    cpus: CpuSet,
    /// Only these policies
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "none,rps,bound:0=1,sparse,rfs,rfs+sparse"
    )]
    policies: Vec<String>,
    /// Rules before the policy: a row for each of these numbers
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    rules: Vec<usize>,
    /// What these rules match; no frame matches any of them
    #[arg(long, value_name = "KIND", value_enum, default_value_t = RulesOf::Ports)]
    rules_of: RulesOf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RulesOf {
    /// An address, a protocol and a port that no frame has, so that no address is looked up
    Ports,
    /// An address alone, so that the address of each frame is looked up
    Address,
    /// The name of an interface
    Interface,
}

/// A configuration to compare.
struct Variant {
    name: String,
    source: LiveFrames,
    /// The program at the interface, the program where frames arrive, and the program at context switches, if there is
    /// one.
    programs: [u32; 3],
    _path: Option<Path>,
}

/// The programs that are timed in a turn, and the empty one that runs at the same context switches.
const TIMED: usize = 4;
/// The most ticks until frames are unguarded.
const TICKS: u32 = 50;

pub(crate) fn run(options: &Options) -> Result<Value> {
    timed(|| measure(options))
}

/// Measures while the kernel times programs.
pub(super) fn timed(measure: impl FnOnce() -> Result<Value>) -> Result<Value> {
    let before = fs::read_to_string(STATS).with_context(|| format!("can't read {STATS}"))?;
    fs::write(STATS, "1").with_context(|| format!("can't write {STATS}"))?;
    let report = measure();
    fs::write(STATS, before)?;
    report
}

fn measure(options: &Options) -> Result<Value> {
    let mut testbed = Testbed::hosts(LinkOptions::default())?;
    let cases: Vec<Case<'_>> =
        options.policies.iter().flat_map(|policy| Case::all(policy, &options.rules)).collect();
    for _ in &cases {
        testbed.another_link(LinkOptions::default())?;
    }
    let (sender, receiver) = (testbed.sender(), testbed.receiver());
    let traffic = Traffic {
        flows: options.flows,
        train: options.train,
        random: options.random,
        length: 64,
        ..Traffic::default()
    };
    let route = FixedRoute { cpu: 1, other: 1, every: 0, drop: true, queue_size: 2048 };
    let fixed = Fixed::attach(receiver, &testbed.links[0].far, route)?;
    let [entry, arrival] = fixed.program_ids()?;
    let mut variants = vec![Variant {
        name: "fixed".to_owned(),
        source: LiveFrames::new(&testbed.links[0], &traffic)?,
        programs: [entry, arrival, 0],
        _path: None,
    }];
    for (case, link) in cases.iter().zip(&testbed.links[1..]) {
        variants.push(steered(receiver, link, case, options, &traffic)?);
    }
    // The empty program is attached last, when the others have already fetched the data it needs. This can only make
    // the others look more expensive.
    let empty_switch = EmptySwitch::attach()?;
    let empty = empty_switch.program_id()?;
    let mut rows: BTreeMap<usize, Vec<[Option<f64>; TIMED]>> = BTreeMap::new();
    let mut order: Vec<usize> = (0..variants.len()).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..=options.rounds {
        order.shuffle(&mut rng);
        for &index in &order {
            let cost = turn(&variants[index], empty, sender, options.frames)?;
            // The first turn of each variant includes first-time costs, and is discarded.
            if round > 0 {
                rows.entry(index).or_default().push(cost);
            }
        }
    }
    Ok(report(options, &variants, &rows, verifier()?))
}

/// The verifier's statistics of each program; all policies are the same program.
fn verifier() -> Result<Vec<Value>> {
    let programs = rxsteer_xdp::testing::verify(&setup(true, FLOW_CNT)?)?;
    let row = |program: &rxsteer_xdp::testing::Verified| {
        json!({
            "program": program.program,
            "instructions": program.instructions,
            "stack": program.stack,
        })
    };
    Ok(programs.iter().map(row).collect())
}

/// The setup that is measured.
pub(super) fn setup(flow_stats: bool, flow_cnt: u32) -> Result<Setup> {
    Ok(Setup {
        mode: Mode::Native,
        possible: "0-1".parse()?,
        flow_cnt,
        tables: 1,
        interfaces: 1,
        sock_flow_entries: 32768,
        rfs_namespace: None,
        secret: *b"a cost's secret.",
        inner: false,
        key_tunnels: Default::default(),
        flow_stats,
        hz: None,
        drop_on_arrival: true,
        flow_records: false,
        as_with_short_ticks: false,
    })
}

/// One way to run a policy.
struct Case<'a> {
    policy: &'a str,
    flow_stats: bool,
    /// Whether the programs look for partial checksums, as on a veth or virtio_net. On a NIC they do not.
    partial: bool,
    /// The number of rules before the policy.
    rules: usize,
}

impl Case<'_> {
    /// Without rules, also with flow statistics and on a virtual interface.
    fn all<'a>(policy: &'a str, rules: &[usize]) -> Vec<Case<'a>> {
        let case = |flow_stats, partial, rules| Case { policy, flow_stats, partial, rules };
        let of_number = |rules: &usize| match rules {
            0 => vec![case(false, false, 0), case(true, false, 0), case(false, true, 0)],
            rules => vec![case(false, false, *rules)],
        };
        rules.iter().flat_map(of_number).collect()
    }

    /// Rules that no frame matches.
    fn packet_rules(&self, of: RulesOf) -> Result<Vec<PacketRule>> {
        let rule = |index| {
            let (net, port) = (index % 64, 1000 + index);
            let rule = match of {
                RulesOf::Ports => format!("src 172.16.{net}.0/24 tcp dst-port {port} -> 1"),
                RulesOf::Address => format!("src 172.{}.{net}.0/24 -> 1", 16 + index / 64),
                RulesOf::Interface => format!("interface none{index} -> 1"),
            };
            Ok(rule.parse()?)
        };
        (0..self.rules).map(rule).collect()
    }

    fn name(&self) -> String {
        let stats = if self.flow_stats { " + flow statistics" } else { "" };
        let partial = if self.partial { ", virtual interface" } else { "" };
        let rules = match self.rules {
            0 => String::new(),
            rules => format!(", rules: {rules}"),
        };
        format!("{}{stats}{partial}{rules}", self.policy)
    }
}

/// rxsteer on its own interface.
fn steered(
    receiver: &Namespace,
    link: &Link,
    case: &Case<'_>,
    options: &Options,
    traffic: &Traffic,
) -> Result<Variant> {
    let rule: Policy = case.policy.parse()?;
    let setup = setup(case.flow_stats, options.flow_cnt)?;
    let packet_rules = case.packet_rules(options.rules_of)?;
    let settings = Settings { packet_rules, ..Settings::new(rule, options.cpus.clone()) };
    let mut path = Path::load(&setup, &settings)?;
    receiver
        .inside(|| Ok(path.attach(link.far.index, &link.far.name, 1, case.partial)))?
        .context("can't attach")?;
    tick_until_steady(&mut path)?;
    let ids: BTreeMap<_, _> = path.programs().into_iter().collect();
    Ok(Variant {
        name: case.name(),
        source: LiveFrames::new(link, traffic)?,
        programs: [ids["steer_entry"], ids["steer_cpumap"], ids["steer_switch"]],
        _path: Some(path),
    })
}

/// Runs the ticks after attaching, until all frames are steered and, under policies that allow it, unguarded.
pub(super) fn tick_until_steady(path: &mut Path) -> Result<()> {
    path.tick_until_done()?;
    for _ in 0..TICKS {
        path.tick()?;
        if path.is_unguarded() {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Nanoseconds per run of each program in one turn; `None` if a program did not run, like the one at context switches
/// while no policy needs it.
fn turn(
    variant: &Variant,
    empty: u32,
    sender: &Namespace,
    frames: u64,
) -> Result<[Option<f64>; TIMED]> {
    let [entry, arrival, switch] = variant.programs;
    let timed = [entry, arrival, switch, empty];
    let before = times(timed);
    variant.source.send(sender, 0, frames)?;
    sleep(Duration::from_millis(20));
    let after = times(timed);
    let cost = |index: usize| {
        let (ns, count) = (after[index].0 - before[index].0, after[index].1 - before[index].1);
        (count > 0).then(|| ns as f64 / count as f64)
    };
    Ok(std::array::from_fn(cost))
}

/// Nanoseconds and runs so far.
pub(super) fn times(programs: [u32; TIMED]) -> [(u64, u64); TIMED] {
    let all: BTreeMap<u32, (u64, u64)> = libbpf_rs::query::ProgInfoIter::default()
        .map(|info| (info.id, (info.run_time_ns, info.run_cnt)))
        .collect();
    programs.map(|id| all.get(&id).copied().unwrap_or_default())
}

fn report(
    options: &Options,
    variants: &[Variant],
    rows: &BTreeMap<usize, Vec<[Option<f64>; TIMED]>>,
    verifier: Vec<Value>,
) -> Value {
    let shown = |quartiles: Option<Quartiles>| {
        let round = |figure: f64| (figure * 10.0).round() / 10.0;
        quartiles.map(|q| json!([round(q.q1), round(q.median), round(q.q3)]))
    };
    let column = |index: usize, program: usize| -> Vec<Option<f64>> {
        rows.get(&index).into_iter().flatten().map(|cost| cost[program]).collect()
    };
    let over = |index: usize, program: usize| {
        let (ours, theirs) = (column(index, program), column(0, program));
        shown(Quartiles::of_pairs(&ours, &theirs, |ours, theirs| ours - theirs))
    };
    // Both ran at the same context switches in the same turn.
    let switch = |index: usize| {
        Quartiles::of_pairs(&column(index, 2), &column(index, 3), |ours, empty| ours - empty)
    };
    let figures = variants.iter().enumerate().map(|(index, variant)| {
        let absolute = |program| {
            let figures: Vec<f64> = column(index, program).into_iter().flatten().collect();
            shown(Quartiles::of(&figures))
        };
        json!({
            "policy": variant.name,
            "entry_ns": absolute(0),
            "entry_over_fixed_ns": over(index, 0),
            "arrival_ns": absolute(1),
            "arrival_over_fixed_ns": over(index, 1),
            "switch_over_empty_ns": shown(switch(index)),
        })
    });
    let figures: Vec<Value> = figures.collect();
    json!({
        "flows": options.flows,
        "train": options.train,
        "random": options.random,
        "flow_cnt": options.flow_cnt,
        "cpus": options.cpus.to_string(),
        "rounds": options.rounds,
        "frames_a_turn": options.frames,
        "figures": figures,
        "verifier": verifier,
    })
}
