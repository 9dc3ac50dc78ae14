//! How many packets per second an application receives from a live interface.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rxsteer_core::Policy;
use rxsteer_io::packet::FanoutBy;
use rxsteer_lab::{
    DoneByThread, Gate, LinkOptions, LiveFrames, Pass, Receiving, Testbed, Traffic, online_cpus,
};
use serde_json::{Value, json};

use super::rounds::{Plan, Variant, measure};
use super::{bridge_cost, receive_cost};

/// Sends live frames from CPU 0 into an application: compares rxsteer with loops without steering, and with fanout.
///
/// "empty": the handler does nothing. Compares a simple loop over the ring's blocks, rxsteer with one worker, and
/// recvmmsg, all on CPU 1. "many_flows" and "two_flows": two threads work for each packet; compares fanout by hash, CPU
/// and rollover with rxsteer. Fanout by hash puts both flows of "two_flows" on the thread of CPU 1. The sender takes as
/// much of CPU 0 as it gets, so the two threads share about one and a half CPUs. "many_flows_in_ring" and
/// "two_flows_in_ring": the same packets, but all of them wait in the ring before anything is read, and the sender
/// takes no CPU time. The figures are packets per second as quartiles, and their ratio within a round.
#[derive(Args)]
#[command(after_help = "Examples:\n  rxsteer-lab live-sources --rounds 5\n  \
                  rxsteer-lab live-sources --rounds 5 --write docs/results/live.md")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// The policy of rxsteer where handlers work.
    #[arg(long, default_value = "sparse")]
    policy: Policy,
    /// Time to process a packet there, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 1000)]
    work_ns: u64,
    /// Also measure receive-cost and bridge-cost, and write tables of all of them to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let _pass = Pass::attach(testbed.receiver(), &testbed.link().far)?;
    let work = Duration::from_nanos(options.work_ns);
    let gate = Gate::default();
    let bench = Receiving { testbed: &testbed, frames: options.plan.frames, work, gate: &gate };
    let many = Traffic { flows: 1000, length: 64, ..Traffic::default() };
    let two = bench.two_flows_on_one_thread()?;
    let compare = |traffic: &Traffic, waits_in_ring: bool| -> Result<Value> {
        let source = &LiveFrames::new(testbed.link(), traffic)?;
        let fanout = |name, by| Variant {
            name,
            turn: Box::new(move || {
                let receive = |seen: &Arc<DoneByThread>, end: &Arc<_>| bench.fanout(by, seen, end);
                Ok(if waits_in_ring {
                    bench.drained(source, receive)?.0
                } else {
                    bench.working(source, receive)?.0
                })
            }),
        };
        let rxsteer = || -> Result<f64> {
            let receive = |seen: &Arc<DoneByThread>, end: &Arc<_>| {
                bench.rxsteer(&options.policy, "0-1", work, seen, end)
            };
            Ok(if waits_in_ring {
                bench.drained(source, receive)?.0
            } else {
                bench.working(source, receive)?.0
            })
        };
        let mut variants = [
            fanout("fanout_hash", FanoutBy::Hash),
            fanout("fanout_cpu", FanoutBy::Cpu),
            fanout("fanout_rollover", FanoutBy::Rollover),
            Variant { name: "rxsteer", turn: Box::new(rxsteer) },
        ];
        Ok(measure(&mut variants, &options.plan)?.report("fanout_hash"))
    };
    let source = &LiveFrames::new(testbed.link(), &many)?;
    let mut empty = [
        Variant {
            name: "bare",
            turn: Box::new(|| Ok(bench.empty(source, |seen, end| bench.bare(seen, end))?)),
        },
        Variant {
            name: "rxsteer",
            turn: Box::new(|| {
                Ok(bench.empty(source, |seen, end| {
                    bench.rxsteer(&Policy::Rps, "1-1", Duration::ZERO, seen, end)
                })?)
            }),
        },
        Variant {
            name: "recvmmsg",
            turn: Box::new(|| Ok(bench.empty(source, |seen, end| bench.recvmmsg(seen, end))?)),
        },
    ];
    let mut report = json!({
        "empty": measure(&mut empty, &options.plan)?.report("bare"),
        "many_flows": compare(&many, false)?,
        "many_flows_in_ring": compare(&many, true)?,
        "two_flows": compare(&two, false)?,
        "two_flows_in_ring": compare(&two, true)?,
    });
    if let Some(path) = &options.write {
        let bridge =
            |work_ns| bridge_cost::run(&bridge_cost::Options::of(options.plan.clone(), work_ns));
        report["receive_cost"] =
            receive_cost::run(&receive_cost::Options::of(options.plan.clone()))?;
        report["bridge"] = bridge(0)?;
        report["bridge_work"] = bridge(BRIDGE_WORK_NS)?;
        write(path, &report, options)?;
    }
    Ok(report)
}

/// The work for each packet in the second table of bridges.
const BRIDGE_WORK_NS: u64 = 200;

/// Each experiment's name in the report, and its heading.
const TABLES: [(&str, &str); 8] = [
    ("empty", "Packet sockets (TPACKET_V3), empty handler, all on CPU 1"),
    ("many_flows", "Two threads that work, 1000 flows, beside the sender"),
    ("many_flows_in_ring", "Two threads that work, 1000 flows that wait in the ring"),
    (
        "two_flows",
        "Two threads that work, two flows of one thread of fanout hash, beside the sender",
    ),
    ("two_flows_in_ring", "Two threads that work, the same two flows, which wait in the ring"),
    ("receive_cost", "AF_XDP in copy mode, empty handler"),
    ("bridge", "Bridge by AF_XDP, no work"),
    ("bridge_work", "Bridge by AF_XDP, 200 ns of work for each packet"),
];

fn write(path: &Path, report: &Value, options: &Options) -> Result<()> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let Plan { rounds, frames, gate_ns, others } = options.plan;
    let mut text = String::new();
    writeln!(text, "# Packets of live interfaces into applications\n")?;
    writeln!(
        text,
        "Made by `cargo xtask live-sources -- --rounds {rounds} --frames {frames} --others {others} --gate-ns {gate_ns} \
         --write docs/results/live.md`. Linux {}, \
         {} CPUs, veth, frames of 64 bytes that CPU 0 sends; variants in turns, in random order. Packets a second, in \
         millions, and their ratio to the first line in the same round: median (quartiles). Where handlers work, a packet takes \
         {} ns, and rxsteer's policy is `{}`.\n\nThe sender takes all of CPU 0 that it gets, so with two \
         CPUs a thread there competes with it. Packets that wait in the ring are read when the sender is done: these tables compare \
         two threads that have a CPU each. There rxsteer waits where a backlog is full; elsewhere it drops, as `live` does.\n",
        kernel.trim(),
        online_cpus(),
        options.work_ns,
        options.policy
    )?;
    for (name, heading) in TABLES {
        let of = report[name].as_object().context("a table")?;
        let thrown_away = &of["turns_thrown_away"];
        writeln!(
            text,
            "## {heading}\n\n| variant | packets/s | ratio | rounds |\n|---|---|---|---|"
        )?;
        let base = of["ratio_to"].as_str().unwrap_or_default();
        let (first, others): (Vec<_>, Vec<_>) = of
            .iter()
            .filter(|(_, row)| row["rounds"].is_u64())
            .partition(|(name, _)| *name == base);
        for (name, row) in first.into_iter().chain(others) {
            let shown = |figures: &Value, unit: f64| {
                let figure = |at: usize| figures[at].as_f64().map(|figure| figure / unit);
                let [low, middle, high] = [figure(0)?, figure(1)?, figure(2)?];
                Some(format!("{middle:.2} ({low:.2} to {high:.2})"))
            };
            let cell = |key: &str, unit| shown(&row[key], unit).unwrap_or_else(|| "-".to_owned());
            let (rate, ratio) = (cell("packets_per_second", 1e6), cell("ratio", 1.0));
            writeln!(
                text,
                "| {} | {rate} | {ratio} | {} |",
                name.replace('_', " "),
                row["rounds"]
            )?;
        }
        writeln!(
            text,
            "\nTurns that did not count: {} for other processes, {} for a slow machine.\n",
            thrown_away["other_processes"], thrown_away["slow_cache_line"]
        )?;
    }
    std::fs::write(path, text.trim_end().to_owned() + "\n")
        .with_context(|| format!("can't write {}", path.display()))
}
