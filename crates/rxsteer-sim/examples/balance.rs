//! Compares `rps+balance` with other rules on simulated machines, and writes docs/results/balance.md. `cargo xtask
//! balance` runs this program.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talks to whoever typed it")]

use clap::Parser;
use rxsteer_core::{CpuId, CpuSet, Policy};
use rxsteer_sim::compare::{holm, paired};
use rxsteer_sim::rebalance::{Lpt, Naive, Own, Rebalancer, RssPlusPlus, Traced};
use rxsteer_sim::scenario::*;
use rxsteer_sim::{Scenario, engine};
use std::fmt::Write;
use std::process::ExitCode;

/// What a packet costs on a CPU of speed 1.
const PACKET_NS: f64 = 50_000.0;
/// Packets a second that a CPU of speed 1 can process.
const CAPACITY: f64 = 1e9 / PACKET_NS;
/// Small flows for each CPU: more than a backlog has packets, so that each empties now and then.
const MICE: u32 = 1500;
/// Intervals after which the times of packets are measured.
const WARM_UP_INTERVALS: u64 = 20;
const MS: u64 = 1_000_000;
/// The length of an interval.
const INTERVAL_NS: u64 = 100 * MS;
/// The time of a flash crowd's beginning, and of a CPU's loss of speed.
const EVENT_NS: u64 = 300 * MS;
/// The time in which the load of a day rises.
const RISE_NS: u64 = 1000 * MS;

/// Compares rules that move buckets on simulated machines.
#[derive(Parser)]
struct Cli {
    /// Seeds of each run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=1000))]
    seeds: u64,
    /// CPUs that packets are steered to; 64 takes most of the time
    #[arg(long, value_delimiter = ',', default_value = "4,16,64")]
    cpus: Vec<u16>,
    /// Writes the table into this file
    #[arg(long, value_name = "FILE")]
    write: Option<std::path::PathBuf>,
}

/// A kind of traffic.
struct Case {
    name: &'static str,
    /// Its traffic on that many CPUs.
    traffic: fn(u16) -> Vec<Traffic>,
    events: fn() -> Vec<Event>,
    /// When the load became what is balanced.
    since_ns: u64,
}

const CASES: [Case; 8] = [
    Case { name: "1 elephant", traffic: |cpus| elephants(cpus, 1), events: Vec::new, since_ns: 0 },
    Case { name: "4 elephants", traffic: |cpus| elephants(cpus, 4), events: Vec::new, since_ns: 0 },
    Case { name: "Zipf 1.0", traffic: |cpus| zipf(cpus, 1.0), events: Vec::new, since_ns: 0 },
    Case { name: "Zipf 1.2", traffic: |cpus| zipf(cpus, 1.2), events: Vec::new, since_ns: 0 },
    Case { name: "Zipf 1.4", traffic: |cpus| zipf(cpus, 1.4), events: Vec::new, since_ns: 0 },
    Case { name: "flash crowd", traffic: crowd, events: Vec::new, since_ns: EVENT_NS },
    Case { name: "daily swing", traffic: swing, events: Vec::new, since_ns: EVENT_NS + RISE_NS },
    Case {
        name: "slow CPU",
        traffic: |cpus| vec![mice(cpus, 0.7)],
        events: slow,
        since_ns: EVENT_NS,
    },
];

const RULES: [&str; 6] = ["rps", "sparse", "balance", "naive", "RSS++", "LPT"];

fn traffic(name: &str, flows: u32, cpus_of_load: f64, share: Share) -> Traffic {
    let constant = Constant {
        rate: cpus_of_load * CAPACITY,
        frame_bytes: 100,
        share,
        poisson: true,
        application: 0.0,
    };
    Traffic {
        name: name.to_owned(),
        nic: 0,
        out: None,
        translated: false,
        headers: Headers::default(),
        flows,
        start_ns: 0,
        ramp_ns: 0,
        load: Load::Constant(constant),
    }
}

/// Flows of one size, [`MICE`] for each CPU, that take a share of all CPUs.
fn mice(cpus: u16, share: f64) -> Traffic {
    traffic("mice", u32::from(cpus) * MICE, f64::from(cpus) * share, Share::Equal)
}

/// Flows of 0.6 CPUs each, and mice: together 80 %.
fn elephants(cpus: u16, count: u32) -> Vec<Traffic> {
    let load = 0.6 * f64::from(count);
    let rest = (f64::from(cpus) * 0.8 - load) / f64::from(cpus);
    vec![mice(cpus, rest), traffic("elephants", count, load, Share::Equal)]
}

/// 10 000 flows: 80 %, or as much as leaves the largest flow 0.6 of a CPU.
fn zipf(cpus: u16, exponent: f64) -> Vec<Traffic> {
    let flows = 10_000;
    let largest = 1.0 / (1..=flows).map(|rank| f64::from(rank).powf(-exponent)).sum::<f64>();
    let load = (f64::from(cpus) * 0.8).min(0.6 / largest);
    vec![traffic("Zipf", flows, load, Share::Zipf(exponent))]
}

/// Half of the load from the beginning; then flows of 0.6 CPUs, as many as half of the CPUs, that come at once.
fn crowd(cpus: u16) -> Vec<Traffic> {
    let count = u32::from(cpus) / 2;
    let crowd = traffic("crowd", count, f64::from(count) * 0.6, Share::Equal);
    vec![mice(cpus, 0.5), Traffic { start_ns: EVENT_NS, ..crowd }]
}

/// 30 % from the beginning; then as much again as makes 80 %, by flows of different sizes that begin one after the other.
fn swing(cpus: u16) -> Vec<Traffic> {
    let load = f64::from(cpus) * 0.5;
    let day = traffic("day", u32::from(cpus) * 500, load, Share::Zipf(0.8));
    vec![mice(cpus, 0.3), Traffic { start_ns: EVENT_NS, ramp_ns: RISE_NS, ..day }]
}

/// The first CPU that packets are steered to loses half of its speed.
fn slow() -> Vec<Event> {
    let cpu = CpuId::new(1).expect("a CPU");
    vec![Event { at_ns: EVENT_NS, what: EventKind::Speed(cpu, 0.5) }]
}

/// A machine with a fast CPU that receives, and `cpus` others.
fn scenario(case: &Case, cpus: u16, policy: Policy) -> Scenario {
    let steered = CpuSet::new((1..=cpus).filter_map(CpuId::new)).expect("there are CPUs");
    let from_ns = case.since_ns + WARM_UP_INTERVALS * INTERVAL_NS;
    let mut steering = Steering::new(policy, steered.clone());
    steering.flow_cnt = Some(1 << 19);
    Scenario {
        title: case.name.to_owned(),
        duration_ns: from_ns + 500 * MS,
        warm_up_ns: from_ns,
        cpus: (0..=cpus)
            .map(|core| Cpu { speed: if core == 0 { 1000.0 } else { 1.0 }, core, cache: 0 })
            .collect(),
        smt_speed: 1.0,
        pauses: vec![],
        nics: vec![Nic {
            name: "eth0".to_owned(),
            rate: 1e11,
            irq_cpus: CpuId::new(0).into_iter().collect(),
            interrupts: Interrupts::Fixed,
            ring: 4096,
            moderation_ns: 0,
        }],
        costs: Costs { receive: 100.0, protocol: PACKET_NS, ..Costs::default() },
        wire_ns: 1000,
        steering,
        scheduler: Scheduler {
            cpus: steered,
            placement: Placement::Sticky,
            slice_ns: 3 * MS,
            softirq_ns: 2 * MS,
            balance_ns: 0,
            newidle: false,
        },
        traffic: (case.traffic)(cpus),
        events: (case.events)(),
    }
}

/// One run.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// The busiest CPU over the ideal one, three intervals after the load became what it is.
    busiest: f64,
    p99_us: f64,
    moves_per_s: f64,
    lost: f64,
    reordered: u64,
}

fn rebalancer(rule: &str, policy: &Policy, cpus: u16) -> Option<Box<dyn Rebalancer>> {
    match (rule, policy.balance()) {
        ("balance", Some(balance)) => Some(Box::new(Own::new(balance, usize::from(cpus) + 1))),
        ("naive", _) => Some(Box::<Naive>::default()),
        ("RSS++", _) => Some(Box::<RssPlusPlus>::default()),
        ("LPT", _) => Some(Box::<Lpt>::default()),
        _ => None,
    }
}

fn one(case: &Case, cpus: u16, rule: &str, seed: u64) -> Result<Figures, String> {
    let text = match rule {
        "sparse" => "sparse",
        "rps" => "rps",
        _ => "rps+balance",
    };
    let policy: Policy = text.parse().map_err(|error| format!("{error}"))?;
    let scenario = scenario(case, cpus, policy.clone());
    let mut busiest = f64::NAN;
    let mut moves = 0;
    let result = match rebalancer(rule, &policy, cpus) {
        Some(rule) => {
            let mut traced = Traced::new(rule);
            let result = engine::run_with(&scenario, seed, &mut traced);
            let at_ns = case.since_ns + 3 * INTERVAL_NS;
            busiest = traced.trace.iter().find(|(now, ..)| *now >= at_ns).map_or(f64::NAN, |t| t.1);
            moves = traced.trace.iter().map(|(_, _, moves)| moves).sum();
            result
        }
        None => engine::run(&scenario, seed),
    };
    let result = result.map_err(|error| error.to_string())?;
    if !result.account.adds_up() {
        return Err(format!("{} under {rule}, seed {seed}: packets do not add up", case.name));
    }
    let all: u64 = result.traffic.iter().map(|traffic| traffic.packets + traffic.lost).sum();
    let lost: u64 = result.traffic.iter().map(|traffic| traffic.lost).sum();
    Ok(Figures {
        busiest,
        p99_us: result.traffic[0].latency.p99 as f64 / 1e3,
        moves_per_s: moves as f64 / (scenario.duration_ns as f64 / 1e9),
        lost: lost as f64 / all.max(1) as f64,
        reordered: result.reordered,
    })
}

/// The mean of a figure.
fn mean(figures: &[Figures], of: fn(&Figures) -> f64) -> f64 {
    figures.iter().map(of).sum::<f64>() / figures.len().max(1) as f64
}

fn table(cli: &Cli) -> Result<String, String> {
    let mut rows: Vec<(String, Vec<Vec<Figures>>)> = Vec::new();
    for &cpus in &cli.cpus {
        for case in &CASES {
            let mut by_rule = Vec::new();
            for rule in RULES {
                let runs = (0..cli.seeds).map(|seed| one(case, cpus, rule, seed));
                by_rule.push(runs.collect::<Result<Vec<Figures>, String>>()?);
            }
            eprintln!("{cpus} CPUs, {}", case.name);
            rows.push((format!("{} | {cpus}", case.name), by_rule));
        }
    }
    Ok(text(&rows, cli.seeds))
}

fn text(rows: &[(String, Vec<Vec<Figures>>)], seeds: u64) -> String {
    let mut text = format!("{HEAD}Seeds of each run: {seeds}.\n\n");
    let heads = "| traffic | CPUs | rule | busiest CPU over ideal | p99 of mice, µs | lost | moves/s | reordered |\n\
                 |---|---:|---|---:|---:|---:|---:|---:|\n";
    text += heads;
    let p99 = |figures: &[Figures]| figures.iter().map(|f| f.p99_us).collect::<Vec<f64>>();
    let mut tests = Vec::new();
    for (name, by_rule) in rows {
        for (rule, figures) in RULES.iter().zip(by_rule) {
            let busiest = mean(figures, |f| f.busiest);
            let busiest = if busiest.is_nan() { "–".to_owned() } else { format!("{busiest:.3}") };
            let _ = writeln!(
                text,
                "| {name} | {rule} | {busiest} | {:.0} | {:.2} % | {:.0} | {} |",
                mean(figures, |f| f.p99_us),
                mean(figures, |f| f.lost) * 100.0,
                mean(figures, |f| f.moves_per_s),
                figures.iter().map(|f| f.reordered).sum::<u64>()
            );
        }
        let pairs: Vec<(f64, f64)> = p99(&by_rule[0]).into_iter().zip(p99(&by_rule[2])).collect();
        let ratio = pairs.iter().map(|(rps, own)| own / rps).sum::<f64>() / pairs.len() as f64;
        tests.push((name.clone(), ratio, paired(&pairs).map_or(1.0, |test| test.p)));
    }
    text += "\n## Against rps\n\nThe p99 of `rps+balance` over that of `rps`, paired by seed; probabilities of a paired t-test, \
             corrected by Holm's method.\n\n| traffic | CPUs | ratio of p99 | p |\n|---|---:|---:|---:|\n";
    let corrected = holm(&tests.iter().map(|(_, _, p)| *p).collect::<Vec<f64>>());
    for ((name, ratio, _), p) in tests.iter().zip(corrected) {
        let _ = writeln!(text, "| {name} | {ratio:.2} | {p:.3} |");
    }
    text + &goals(rows)
}

/// The goals, and whether they are met.
fn goals(rows: &[(String, Vec<Vec<Figures>>)]) -> String {
    let mut text = "\n## Goals\n\n| goal | met in | missed in |\n|---|---:|---|\n".to_owned();
    type Goal = (&'static str, fn(&str, &[Vec<Figures>]) -> Option<bool>);
    let goals: [Goal; 4] = [
        ("busiest CPU within 10 % of the ideal after three intervals", |_, by_rule| {
            Some(mean(&by_rule[2], |f| f.busiest) <= 1.1)
        }),
        ("p99 at most half of that of `rps`, 80 % load with one elephant", |name, by_rule| {
            let p99 = |rule: usize| mean(&by_rule[rule], |f| f.p99_us);
            name.starts_with("1 elephant").then(|| p99(2) <= p99(0) / 2.0)
        }),
        ("at most a fifth of the moves of the naive rule", |_, by_rule| {
            let moves = |rule: usize| mean(&by_rule[rule], |f| f.moves_per_s);
            Some(moves(2) <= moves(3) / 5.0)
        }),
        ("no packet reordered", |_, by_rule| {
            Some(by_rule.iter().flatten().all(|figures| figures.reordered == 0))
        }),
    ];
    for (goal, is_met) in goals {
        let judged: Vec<(&String, bool)> = rows
            .iter()
            .filter_map(|(name, by_rule)| Some((name, is_met(name, by_rule)?)))
            .collect();
        let missed: Vec<String> = judged
            .iter()
            .filter(|(_, is_met)| !is_met)
            .map(|(name, _)| format!("{} CPUs", name.replace(" | ", ", ")))
            .collect();
        let met = judged.len() - missed.len();
        let missed = if missed.is_empty() { "–".to_owned() } else { missed.join("; ") };
        let _ = writeln!(text, "| {goal} | {met} of {} | {missed} |", judged.len());
    }
    text
}

const HEAD: &str = "\
# Buckets that move by load, simulated

Made by `cargo xtask balance -- --write docs/results/balance.md`: `rps+balance` with its defaults on simulated machines, beside other
rules. The rules other than `rps` and `sparse` move the same 1024 buckets every 100 ms, behind the same order guard.

- *naive* moves the largest bucket that lowers the busiest CPU, again and again; *RSS++* is the published rule, written anew
  (`crates/rxsteer-sim/src/rebalance.rs`); *LPT* knows the true rates and places all buckets anew when they change.
- *busiest CPU over ideal*: by the true rates of flows, three intervals after the load became what it is; ideal is LPT over single flows.
- A CPU takes 50 µs for a packet, and packets are Poisson: at 80 % a CPU has 1600 packets in an interval, give or take 40. Elephants
  are 0.6 of a CPU each. Zipf is 10 000 flows at 80 %, or at less where the largest would be more than 0.6 of a CPU. A flash crowd: half
  of the CPUs get a flow of 0.6 of a CPU at once. A daily swing: the load rises from 30 % to 80 % within a second, by flows of Zipf 0.8 that
  begin one after the other. A slow CPU: one loses half of its speed at 70 %.
- There are 1500 mice for each CPU. With fewer flows than a backlog has packets (1000), a CPU that is overloaded without a pause keeps all of its
  flows: none ever has nothing under way, and order comes first. Then no rule helps.
- p99 is the time from the NIC to the end of processing of mice (of all flows under Zipf), and *lost* the share of packets, from the 20th interval
  on.

";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match table(&cli) {
        Ok(text) => {
            print!("{text}");
            if let Some(file) = &cli.write
                && let Err(error) = std::fs::write(file, &text)
            {
                eprintln!("{} can't be written: {error}", file.display());
                return ExitCode::from(2);
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
