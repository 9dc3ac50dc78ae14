//! `rxsteer demo`: what steering does, on built-in traffic, in one table.

use crate::Outcome;
use crate::cli::DemoArgs;
use crate::output::{self, json, table};
use crate::work::Work;
use rxsteer_user::core::{CpuSet, Policy};
use rxsteer_user::packet::{Hasher, SymmetricHash};
use rxsteer_user::source::Source;
use rxsteer_user::source::synthetic::{SyntheticSource, SyntheticSpec};
use rxsteer_user::{OnFull, PipelineConfig, Report, Speed};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The traffic: few elephants, many mice, as on a router's uplink.
const TRAFFIC: &str = "packets=200000,flows=2000,share=zipf:1.05,size=imix,ip=mixed,\
                       protocol=mixed,seed=1";
/// RX queues of the pretended NIC: fewer than CPUs, the case steering is for.
const RX_QUEUES: u16 = 2;
const CPUS: u16 = 4;

/// The policies and what each of them stands for.
const RUNS: [(&str, &str); 3] = [
    ("none", "every packet on the CPU that received it"),
    ("bound:0=1,1=2", "each of the 2 RX queues on a CPU of its own"),
    ("rps", "by flow hash over all 4 CPUs"),
];

/// The command.
pub(crate) fn command(args: &DemoArgs) -> anyhow::Result<Outcome> {
    let mut runs = Vec::new();
    for (policy, meaning) in RUNS {
        runs.push((policy, meaning, run(policy)?));
    }
    let fine = runs.iter().all(|(_, _, report)| {
        report.reordered == 0 && report.packets == report.delivered + report.drops.total()
    });
    output::print(&if args.json { as_json(&runs) } else { as_text(&runs) })?;
    Ok(if fine { Outcome::Fine } else { Outcome::FoundWrong })
}

type DemoRun = (&'static str, &'static str, Report<Work>);

fn run(policy: &str) -> anyhow::Result<Report<Work>> {
    let policy: Policy = policy.parse()?;
    let cpus = CpuSet::first(CPUS).ok_or_else(|| anyhow::anyhow!("no CPUs"))?;
    let mut config = PipelineConfig::new(policy, cpus);
    config.rx_queues = RX_QUEUES;
    config.hasher = Hasher::Symmetric(SymmetricHash::new([1; 16]));
    config.on_full = OnFull::Wait;
    config.check_order = true;
    // The table shows the spread, which is the same on any host, not the speed of this one.
    config.pin = false;
    let spec: SyntheticSpec = TRAFFIC.parse()?;
    let mut sources: Vec<Box<dyn Source>> =
        vec![Box::new(SyntheticSource::new(spec, RX_QUEUES, (0, 1)))];
    let stop = Arc::new(AtomicBool::new(false));
    let work = Work { per_packet: Duration::ZERO, stop: stop.clone(), apps: None };
    Ok(rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, |_| work.clone(), |_, _| {})?)
}

fn as_text(runs: &[DemoRun]) -> String {
    let mut table = table::new(
        &[
            "policy",
            "CPU 0",
            "CPU 1",
            "CPU 2",
            "CPU 3",
            "busiest",
            "room to grow",
            "reordered",
            "lost",
        ],
        &[0],
    );
    for (policy, _, report) in runs {
        let busiest = report.per_cpu.iter().map(|cpu| cpu.packets).max().unwrap_or(0);
        let mut row = vec![(*policy).to_owned()];
        row.extend(report.per_cpu.iter().map(|cpu| table::percent(cpu.packets, report.delivered)));
        row.push(table::percent(busiest, report.delivered));
        row.push(format!("{:.1} x", report.delivered as f64 / busiest.max(1) as f64));
        row.push(report.reordered.to_string());
        row.push(report.drops.total().to_string());
        table.add_row(row);
    }
    let mut text = format!(
        "A NIC with {RX_QUEUES} RX queues, both received on CPU 0 of {CPUS}; 200 000 packets of \
         2 000 flows, few of them large.\nWhich CPU processes how much of it:\n\n{table}\n\n"
    );
    for (policy, meaning, _) in runs {
        text += &format!("  {policy:<15}{meaning}\n");
    }
    text += "\nRoom to grow: how much more traffic fits before the busiest CPU is full, if \
             processing is what costs.\nreordered: packets processed before or beside an earlier \
             one of their flow; it must be 0.\n\nNow with your own traffic:  rxsteer replay \
             CAPTURE --cpus 4\n";
    text
}

fn as_json(runs: &[DemoRun]) -> String {
    let runs: Vec<_> = runs
        .iter()
        .map(|(policy, meaning, report)| {
            let packets: Vec<u64> = report.per_cpu.iter().map(|cpu| cpu.packets).collect();
            json!({
                "policy": policy,
                "meaning": meaning,
                "packets": report.packets,
                "delivered": report.delivered,
                "dropped": json::drops(&report.drops),
                "reordered": report.reordered,
                "imbalance": report.imbalance(),
                "packets_per_cpu": packets,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "traffic": TRAFFIC, "rx_queues": RX_QUEUES, "runs": runs }))
}
