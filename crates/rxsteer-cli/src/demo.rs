//! `rxsteer demo`: shows what steering does, with built-in traffic, in three small tables.

use crate::Outcome;
use crate::output::lines::{lines, paragraphs};
use crate::output::{self, table};
use crate::replay::speed_of_keeping_up;
use crate::work::{Apps, Work, at_home};
use clap::Args;
use rxsteer_status::figures::percent;
use rxsteer_user::core::{CpuSet, Policy};
use rxsteer_user::packet::{Hasher, SymmetricHash};
use rxsteer_user::source::Source;
use rxsteer_user::source::synthetic::{SyntheticSource, SyntheticSpec};
use rxsteer_user::{CpuReport, OnFull, PipelineConfig, Report};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  rxsteer demo --json | jq '.runs[].imbalance'")]
pub(crate) struct DemoArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// RX queues of the simulated NIC: fewer than CPUs, which is the case for steering.
const RX_QUEUES: u16 = 2;
const CPUS: u16 = 4;

/// Traffic, and policies to compare with it.
struct Scene {
    name: &'static str,
    title: &'static str,
    traffic: &'static str,
    /// Whether applications on all CPUs consume it.
    apps: bool,
    /// Policies, and the description of each.
    runs: &'static [(&'static str, &'static str)],
}

const SCENES: [Scene; 3] = [
    Scene {
        name: "many flows",
        title: "200 000 packets of 2 000 flows, few of them large.",
        traffic: "packets=200000,flows=2000,share=zipf:1.05,size=imix,ip=mixed,protocol=mixed,seed=1",
        apps: false,
        runs: &[
            ("none", "every packet on the CPU that received it"),
            ("bound:0=1,1=2", "each of the 2 RX queues on a CPU of its own"),
            ("rps", "by flow hash over all 4 CPUs"),
        ],
    },
    Scene {
        name: "few large flows",
        title: "The same NIC with 4 large flows, as through a VPN gateway.",
        traffic: "packets=200000,flows=4,protocol=udp,seed=1",
        apps: false,
        runs: &[
            ("rps", "by flow hash: flows may share a CPU while another idles"),
            ("sparse", "the first flows get a CPU each, in turn"),
        ],
    },
    Scene {
        name: "applications",
        title: "500 flows; applications on all 4 CPUs consume their data.",
        traffic: "packets=200000,flows=500,seed=1",
        apps: true,
        runs: &[
            ("rps", "by flow hash, wherever the application runs"),
            ("rfs", "where the application runs, so that the data is in its cache"),
        ],
    },
];

type DemoRun = (&'static str, &'static str, Report<Work>);

/// The command.
pub(crate) fn command(args: &DemoArgs) -> anyhow::Result<Outcome> {
    let mut scenes = Vec::new();
    for scene in &SCENES {
        let mut runs = Vec::new();
        for (policy, meaning) in scene.runs {
            runs.push((*policy, *meaning, run(scene, policy)?));
        }
        scenes.push((scene, runs));
    }
    let fine = scenes.iter().flat_map(|(_, runs)| runs).all(|(_, _, report)| {
        report.reordered == 0 && report.packets == report.delivered + report.drops.total()
    });
    output::print(&if args.json { as_json(&scenes) } else { as_text(&scenes) })?;
    Ok(if fine { Outcome::Success } else { Outcome::Findings })
}

fn run(scene: &Scene, policy: &str) -> anyhow::Result<Report<Work>> {
    let policy: Policy = policy.parse()?;
    let cpus = CpuSet::first(CPUS).ok_or_else(|| anyhow::anyhow!("no CPUs"))?;
    let apps = scene.apps.then(|| Apps::on(&cpus, None));
    let mut config = PipelineConfig::new(policy, cpus);
    config.rx_queues = RX_QUEUES;
    config.hasher = Hasher::Symmetric(SymmetricHash::new([1; 16]));
    config.on_full = OnFull::Wait;
    config.check_order = true;
    // The tables show the spread, which is the same on any host, not the speed of this host.
    config.pin = false;
    let spec: SyntheticSpec = scene.traffic.parse()?;
    let mut sources: Vec<Box<dyn Source>> =
        vec![Box::new(SyntheticSource::new(spec, RX_QUEUES, (0, 1)))];
    let stop = Arc::new(AtomicBool::new(false));
    let work = |_| Work {
        per_packet: Duration::ZERO,
        stop: stop.clone(),
        apps: apps.clone(),
        flows: None,
        next: None,
        out: None,
    };
    let speed = speed_of_keeping_up(std::slice::from_ref(&config.policy));
    Ok(rxsteer_user::run(&config, &mut sources, speed, &stop, work, |_, _| {})?)
}

/// How much of the traffic fits before the busiest CPU is full, as a multiple of what fits on one CPU.
fn fits(report: &Report<Work>) -> f64 {
    let busiest = report.per_cpu.iter().map(|cpu| cpu.packets).max().unwrap_or(0);
    report.delivered as f64 / busiest.max(1) as f64
}

fn as_text(scenes: &[(&Scene, Vec<DemoRun>)]) -> String {
    let mut text = format!(
        "A NIC with {RX_QUEUES} RX queues, both received on CPU 0 of {CPUS}. Which CPU processes how \
         much of it:\n\n"
    );
    for (scene, runs) in scenes {
        let mut header = vec!["policy", "CPU 0", "CPU 1", "CPU 2", "CPU 3", "fits"];
        header.extend(["reordered", "lost"]);
        if scene.apps {
            header.push("app's CPU");
        }
        let mut table = table::new(&header, &[0]);
        for (policy, _, report) in runs {
            let mut row = vec![(*policy).to_owned()];
            let share = |packets| percent(packets, report.delivered);
            row.extend(report.per_cpu.iter().map(|cpu| share(cpu.packets)));
            row.push(format!("{:.1} x", fits(report)));
            row.push(report.reordered.to_string());
            row.push(report.drops.total().to_string());
            if scene.apps {
                let (home, data) = at_home(report).unwrap_or_default();
                row.push(percent(home, data));
            }
            table.add_row(row);
        }
        text += &format!("{}\n\n{}", scene.title, lines(&table));
        for (policy, meaning, _) in runs {
            text += &format!("   {policy:<15}{meaning}\n");
        }
        text.push('\n');
    }
    text += "fits: how much of this traffic fits before the busiest CPU is full, if the cost is processing.\n\
             reordered: packets processed before an earlier one of their flow, or at the same time; must be 0.\n\
             app's CPU: packets processed on the CPU where their application runs.\n\n\
             Now with your own traffic:  rxsteer compare CAPTURE --cpus 4\n";
    paragraphs(&text)
}

fn as_json(scenes: &[(&Scene, Vec<DemoRun>)]) -> String {
    let runs: Vec<Value> = scenes
        .iter()
        .flat_map(|(scene, runs)| runs.iter().map(move |run| (scene, run)))
        .map(|(scene, (policy, meaning, report))| {
            let on = |cpu: &CpuReport| json!({ "cpu": cpu.cpu.get(), "delivered": cpu.packets });
            let at_home = at_home(report).filter(|_| scene.apps);
            json!({
                "scene": scene.name,
                "traffic": scene.traffic,
                "policy": policy,
                "meaning": meaning,
                "packets": report.packets,
                "delivered": report.delivered,
                "dropped": rxsteer_user::drops_to_json(&report.drops),
                "reordered": report.reordered,
                "imbalance": report.imbalance(),
                "fits": fits(report),
                "app_packets": at_home.map(|(_, data)| data),
                "app_packets_at_home": at_home.map(|(home, _)| home),
                "cpus": report.per_cpu.iter().map(on).collect::<Vec<_>>(),
            })
        })
        .collect();
    format!(
        "{:#}\n",
        json!({ "version": env!("CARGO_PKG_VERSION"), "settings": { "rx_queues": RX_QUEUES }, "runs": runs })
    )
}
