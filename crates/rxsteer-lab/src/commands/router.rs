//! Sparse flows in a router: two flows that the kernel's RPS puts on one CPU, and two that it
//! spreads.

use anyhow::{Context, Result};
use clap::Args;
use rxsteer_lab::{LinkOptions, LiveFrames, Namespace, OrderCheck, Steering, Testbed, Traffic};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::rounds::{Plan, Variant, measure};

/// A network behind the last host, which drops what is sent there.
const BEHIND: &str = "203.0.113.0/24";
const TARGET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Flows looked at for two that share a CPU and two that don't.
const CANDIDATES: u32 = 64;

/// Two flows at full speed through a router: packets a second forwarded by the kernel's RPS, by
/// `rxsteer run --policy sparse`, and unsteered.
///
/// The kernel's hash has a key of its own each boot, so the flows are looked for first.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab router --rounds 15")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// The policy of rxsteer.
    #[arg(long, default_value = "sparse")]
    policy: String,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let (colliding, split) = pairs().context("cannot look for flows that collide")?;
    Ok(json!({
        "colliding": forwarded(options, colliding)?,
        "split": forwarded(options, split)?,
    }))
}

/// A router with a way to the network behind; the kernel's RPS is on where `cpus` is a mask.
fn router(mask: &str) -> Result<Testbed> {
    let testbed = Testbed::router(LinkOptions { gro: true, ..LinkOptions::default() })?;
    let last = testbed.links[1].far.ipv4;
    testbed.receiver().ip(&format!("route add {BEHIND} via {last}"))?;
    // RPS off is 0, which is how it begins.
    testbed.receiver().write_sys("/sys/class/net/in0/queues/rx-0/rps_cpus", mask)?;
    Ok(testbed)
}

fn traffic(first_port: u16, flows: u32) -> Traffic {
    let elsewhere = Some(IpAddr::V4(TARGET));
    Traffic { flows, elsewhere, source_port: first_port, length: 64, ..Traffic::default() }
}

/// Source ports of the first of two flows that the kernel puts on one CPU, and of two it does not.
fn pairs() -> Result<(u16, u16)> {
    let testbed = router("3")?;
    let first = Traffic::default().source_port;
    let paced = Traffic { pace: Duration::from_micros(5), ..traffic(first, CANDIDATES) };
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, CANDIDATES)?;
    let source = LiveFrames::new(testbed.link(), &paced)?;
    source.send(testbed.sender(), 0, u64::from(CANDIDATES) * 8)?;
    check.settled()?;
    let cpus: Vec<_> = check.flows()?.iter().map(|seen| seen.cpu).collect();
    let find = |collide: bool| {
        let is_one = |pair: &[Option<u64>]| {
            pair[0].is_some() && pair[1].is_some() && (pair[0] == pair[1]) == collide
        };
        let index = cpus.windows(2).position(is_one).and_then(|index| u16::try_from(index).ok());
        index.map(|index| first + index).context("all flows are on one CPU; are there two?")
    };
    Ok((find(true)?, find(false)?))
}

/// The flows from `port` and the next one, through each kind of router.
fn forwarded(options: &Options, port: u16) -> Result<Value> {
    let [none, rps, steered] = [router("0")?, router("3")?, router("0")?];
    let arguments = ["in0", "--policy", &options.policy, "--cpus", "0-1"];
    let steering = Steering::start(steered.receiver(), &arguments)?;
    let prepared = |testbed: &Testbed| -> Result<(LiveFrames, OrderCheck)> {
        let source = LiveFrames::new(testbed.link(), &traffic(port, 2))?;
        Ok((source, OrderCheck::new(&testbed.namespaces[2], &testbed.links[1].far, 2)?))
    };
    let [of_none, of_rps, of_steered] = [prepared(&none)?, prepared(&rps)?, prepared(&steered)?];
    let frames = options.plan.frames;
    let turn = |from: &Namespace, (source, check): &(LiveFrames, OrderCheck)| -> Result<f64> {
        let before = check.total()?.frames;
        let took = source.send(from, 0, frames)?;
        Ok((check.settled()?.frames - before) as f64 / took.as_secs_f64())
    };
    let mut variants = [
        Variant { name: "unsteered", turn: Box::new(|| turn(none.sender(), &of_none)) },
        Variant { name: "kernel_rps", turn: Box::new(|| turn(rps.sender(), &of_rps)) },
        Variant { name: "rxsteer", turn: Box::new(|| turn(steered.sender(), &of_steered)) },
    ];
    let figures = measure(&mut variants, &options.plan)?;
    drop(variants);
    let late: u64 = of_steered.1.total()?.late;
    let mut report = figures.report("kernel_rps");
    report["late"] = json!(late);
    let totals = steering.totals()?;
    let unaccounted = totals.unaccounted();
    report["drops"] = totals.drops.into();
    report["unaccounted"] = json!(i64::try_from(unaccounted).unwrap_or(i64::MAX));
    Ok(report)
}
