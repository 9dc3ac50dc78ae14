//! Sparse flows in a router: two flows that the kernel's RPS puts on one CPU, and two flows that it spreads.
//!
//! ```text
//!   host ──► in0 ─► [which CPU?] ─► NAT, route ─► out1 ──► host that drops
//!   CPU 0                          CPU 0 or 1
//! ```
//!
//! The following ensures that the experiment measures steering, and nothing else:
//!
//! - The work per packet is that of a real router: address translation by nftables with connection tracking, and
//!   routing. It must be more expensive than making the packet; otherwise the sender is measured.
//! - Packets are not merged, neither on arrival nor on departure. With GRO, some thirty packets became one, and nothing
//!   was left to spread.
//! - The sender is on CPU 0, so colliding flows collide on CPU 1. On CPU 0, RPS would also be slowed down by the
//!   sender.
//! - The threads of the CPUMAP have priority over the sender (class FIFO, the default), like the soft interrupts in
//!   which RPS and an unsteered router work. With `--threads other` they share CPU 0 with the sender.
//! - Without steering, and with the kernel's RPS, the interface has no XDP program, but it has GRO, which merges no
//!   UDP. Without either, a veth has no queue of its own for live frames. The same two methods with a program that
//!   passes everything are measured as well.
//! - Packets count if they were forwarded before the last one was sent, so a longer queue does not look like higher
//!   speed.

use anyhow::{Context, Result, ensure};
use clap::Args;
use rxsteer_lab::{
    LinkOptions, LiveFrames, Namespace, OrderCheck, Pass, Steering, Testbed, Traffic, missing,
};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::rounds::{Plan, Variant, measure};

/// A network after the last host, which drops the packets sent to it.
const FAR_NETWORK: &str = "203.0.113.0/24";
const TARGET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Candidate flows, of which two share a CPU and two do not.
const CANDIDATES: u32 = 64;
/// The CPU that sends and receives, and the other CPU.
const SENDER: usize = 0;
const OTHER: u64 = 1;

/// Sends two flows at full speed through a router that translates addresses. Prints the packets per second that are
/// forwarded with the kernel's RPS, with `rxsteer run --policy sparse`, and unsteered.
///
/// The kernel's hash has a new key at each boot, so the experiment first searches for flows: two that the hash puts
/// on CPU 1 together, while CPU 0 sends, and two that it puts on both.
#[derive(Args)]
#[command(after_help = "Examples:\n  rxsteer-lab router --rounds 15\n  \
    rxsteer-lab router --threads other --policy rps")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// The policy of rxsteer.
    #[arg(long, default_value = "sparse")]
    policy: String,
    /// Scheduling class of the threads of the CPUMAP; in class `other` they share CPU 0 with the sender.
    #[arg(long, value_name = "CLASS", default_value = "fifo:1")]
    threads: String,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    if let Some(reason) = missing(&["nft"]) {
        anyhow::bail!("cannot run: {reason} (Debian: nftables)");
    }
    let (colliding, split) = pairs().context("cannot look for flows that collide")?;
    let colliding = forwarded(options, colliding)?;
    let split = forwarded(options, split)?;
    let late = [&colliding, &split].map(|report| report["late"].as_u64().unwrap_or(0));
    Ok(json!({
        "colliding": colliding,
        "split": split,
        "late": late.iter().sum::<u64>(),
    }))
}

/// A router with a route to the network after it, which masquerades its senders. `mask` is the CPU mask of the kernel's
/// RPS, or 0.
fn router(mask: &str) -> Result<Testbed> {
    let testbed = Testbed::router(LinkOptions::default())?;
    let (router, last) = (testbed.receiver(), testbed.links[1].far.ipv4);
    router.ip(&format!("route add {FAR_NETWORK} via {last}"))?;
    // The mask 0 turns RPS off, which is the default.
    router.write_sys("/sys/class/net/in0/queues/rx-0/rps_cpus", mask)?;
    testbed.masquerade("out1")?;
    Ok(testbed)
}

/// How a router receives frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RxPath {
    /// An XDP program, without GRO.
    Program,
    /// A veth's own queue, with GRO.
    Queue,
}

/// Turns off what a veth turns on when it gets an XDP program, and what the testbed turns on where frames end.
///
/// In the last namespace, GRO stays on, though there is nothing left to merge: with GRO, a veth is polled from its own
/// queue. Without it, forwarded packets would go through the backlog of their CPU, which is the queue that RPS fills,
/// and would be dropped there. For the same reason GRO stays on where frames arrive without a program.
fn no_merging(testbed: &Testbed, rx_path: RxPath) -> Result<()> {
    let gro = if rx_path == RxPath::Queue { "on" } else { "off" };
    testbed.receiver().run(&format!("ethtool -K in0 gro {gro} rx-gro-list off"))?;
    testbed.namespaces[2].run("ethtool -K in1 rx-gro-list off")?;
    Ok(())
}

fn traffic(first_port: u16, flows: u32) -> Traffic {
    let elsewhere = Some(IpAddr::V4(TARGET));
    Traffic { flows, elsewhere, source_port: first_port, length: 64, ..Traffic::default() }
}

/// Source ports: that of the first of two flows that the kernel puts on the other CPU, and that of the first of two
/// flows that it puts on both CPUs.
fn pairs() -> Result<(u16, u16)> {
    let testbed = router("3")?;
    no_merging(&testbed, RxPath::Queue)?;
    let first = Traffic::default().source_port;
    let paced = Traffic { pace: Duration::from_micros(20), ..traffic(first, CANDIDATES) };
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, CANDIDATES)?;
    let source = LiveFrames::new(testbed.link(), &paced)?;
    source.send(testbed.sender(), SENDER, u64::from(CANDIDATES) * 8)?;
    check.drained()?;
    let cpus: Vec<_> = check.flows()?.iter().map(|seen| seen.cpu).collect();
    let find = |fits: fn(&[Option<u64>]) -> bool, what| {
        let index = cpus.windows(2).position(fits).and_then(|index| u16::try_from(index).ok());
        let missing = || format!("no two of {CANDIDATES} flows are on {what}; are there two CPUs?");
        index.map(|index| first + index).with_context(missing)
    };
    let collide = |pair: &[Option<u64>]| pair == [Some(OTHER); 2];
    let split = |pair: &[Option<u64>]| pair == [Some(SENDER as u64), Some(OTHER)];
    Ok((find(collide, "CPU 1 together")?, find(split, "both CPUs")?))
}

/// A path through a router: the source of frames, and the check of those that came out.
struct Way {
    source: LiveFrames,
    arriving: OrderCheck,
}

impl Way {
    fn new(testbed: &Testbed, port: u16, rx_path: RxPath) -> Result<Way> {
        no_merging(testbed, rx_path)?;
        Ok(Way {
            source: LiveFrames::new(testbed.link(), &traffic(port, 2))?,
            arriving: OrderCheck::new(&testbed.namespaces[2], &testbed.links[1].far, 2)?,
        })
    }

    /// Packets per second that were forwarded while frames were sent.
    fn turn(&self, from: &Namespace, frames: u64) -> Result<f64> {
        let before = self.arriving.total()?.frames;
        let took = self.source.send(from, SENDER, frames)?;
        let forwarded = self.arriving.total()?.frames - before;
        // Lets the queues drain before the next turn.
        self.arriving.drained()?;
        Ok(forwarded as f64 / took.as_secs_f64())
    }
}

/// Sends the flows from `port` and the next port through each kind of router.
fn forwarded(options: &Options, port: u16) -> Result<Value> {
    let [none, rps, passed, rps_passed] = [router("0")?, router("3")?, router("0")?, router("3")?];
    let steered = router("0")?;
    let passes = [&passed, &rps_passed].map(|at| Pass::attach(at.receiver(), &at.link().far));
    let [_of_passed, _of_rps_passed] = passes;
    let (_of_passed, _of_rps_passed) = (_of_passed?, _of_rps_passed?);
    let arguments =
        ["in0", "--policy", &options.policy, "--cpus", "0-1", "--threads", &options.threads];
    let steering = Steering::start(steered.receiver(), &arguments)?;
    let ways = [
        Way::new(&none, port, RxPath::Queue)?,
        Way::new(&rps, port, RxPath::Queue)?,
        Way::new(&passed, port, RxPath::Program)?,
        Way::new(&rps_passed, port, RxPath::Program)?,
        Way::new(&steered, port, RxPath::Program)?,
    ];
    let [by_none, by_rps, by_passed, by_rps_passed, by_rxsteer] = &ways;
    let frames = options.plan.frames;
    let turn = |way: &Way, testbed: &Testbed| way.turn(testbed.sender(), frames);
    let mut variants = [
        Variant { name: "unsteered", turn: Box::new(|| turn(by_none, &none)) },
        Variant { name: "kernel_rps", turn: Box::new(|| turn(by_rps, &rps)) },
        Variant { name: "unsteered_with_program", turn: Box::new(|| turn(by_passed, &passed)) },
        Variant {
            name: "kernel_rps_with_program",
            turn: Box::new(|| turn(by_rps_passed, &rps_passed)),
        },
        Variant { name: "rxsteer", turn: Box::new(|| turn(by_rxsteer, &steered)) },
    ];
    let figures = measure(&mut variants, &options.plan)?;
    drop(variants);
    for way in &ways {
        let seen = way.arriving.total()?;
        ensure!(seen.merged == 0, "packets were merged, so this shows nothing: {seen:?}");
    }
    let mut report = figures.report("kernel_rps");
    report["late"] = json!(by_rxsteer.arriving.total()?.late);
    let totals = steering.totals()?;
    let unaccounted = totals.unaccounted();
    report["drops"] = totals.drops.into();
    report["unaccounted"] = json!(i64::try_from(unaccounted).unwrap_or(i64::MAX));
    Ok(report)
}
