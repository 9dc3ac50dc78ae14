//! How many packets per second one CPU can hand off to another.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rxsteer_core::{CpuSet, Policy};
use rxsteer_host::Load;
use rxsteer_lab::{
    Arrivals, Fixed, FixedRoute, Link, LinkOptions, LiveFrames, Namespace, Testbed, Traffic,
    missing,
};
use rxsteer_xdp::{Mode, Path, Settings, Setup};
use serde_json::Value;

use super::bpf_cost::tick_until_steady;
use super::rounds::{Plan, Variant, measure};

/// Sends live frames on CPU 0, which are dropped where they arrive on CPU 1. Compares rxsteer with a program that only
/// redirects to a fixed CPU, and with the kernel's RPS without any XDP program.
///
/// Prints packets per second as quartiles, and their ratio within a round.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab hand-off --policy rfs+sparse --rounds 15")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flows: u32,
    /// Packets of one flow in a row.
    #[arg(long, value_name = "N", default_value_t = 1)]
    train: u32,
    /// Frames that may wait for CPU 1.
    #[arg(long, value_name = "N", default_value_t = 2048)]
    queue_size: u32,
    /// The policy of rxsteer, with only CPU 1.
    #[arg(long, default_value = "rps")]
    policy: Policy,
    /// Turn off the statistics of flows.
    #[arg(long)]
    no_flow_stats: bool,
    /// Look for partial checksums, as `rxsteer run` does on a veth or virtio_net, but not on a NIC.
    #[arg(long)]
    partial: bool,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    if let Some(reason) = missing(&["nft"]) {
        anyhow::bail!("cannot run: {reason} (Debian: nftables)");
    }
    let mut testbed = Testbed::hosts(LinkOptions::default())?;
    testbed.another_link(LinkOptions::default())?;
    testbed.another_link(LinkOptions::default())?;
    let (sender, receiver) = (testbed.sender(), testbed.receiver());
    let [plain, steered, kernel] = [0, 1, 2].map(|number| &testbed.links[number]);
    let queue_size = options.queue_size;
    let route = FixedRoute { cpu: 1, other: 1, every: 0, drop: true, queue_size };
    let _fixed = Fixed::attach(receiver, &plain.far, route)?;
    let _path = steer(options, receiver, steered)?;
    let arrivals = Arrivals::new()?;
    let traffic =
        Traffic { flows: options.flows, train: options.train, length: 64, ..Traffic::default() };
    let over = |link: &Link| LiveFrames::new(link, &traffic);
    let [over_plain, over_steered, over_kernel] = [over(plain)?, over(steered)?, over(kernel)?];
    by_kernel_rps(receiver, kernel)?;
    let frames = options.plan.frames;
    let turn = |source: &LiveFrames| hand_off_rate(source, sender, &arrivals, frames);
    let mut variants = [
        Variant { name: "fixed", turn: Box::new(|| turn(&over_plain)) },
        Variant { name: "rxsteer", turn: Box::new(|| turn(&over_steered)) },
        Variant {
            name: "kernel_rps",
            turn: Box::new(|| taken_over(&over_kernel, sender, options.plan.frames)),
        },
    ];
    Ok(measure(&mut variants, &options.plan)?.report("fixed"))
}

/// Attaches rxsteer to the far end of a link; it sends everything to CPU 1, where frames are dropped.
fn steer(options: &Options, receiver: &Namespace, link: &Link) -> Result<Path> {
    let setup = Setup {
        mode: Mode::Native,
        possible: "0-1".parse()?,
        flow_cnt: 32768,
        tables: 1,
        interfaces: 1,
        sock_flow_entries: 32768,
        rfs_namespace: None,
        secret: *b"hand-off's secrt",
        inner: false,
        key_tunnels: Default::default(),
        flow_stats: !options.no_flow_stats,
        hz: None,
        drop_on_arrival: true,
        flow_records: false,
        as_with_short_ticks: false,
    };
    let only: CpuSet = "1-1".parse()?;
    let settings =
        Settings { queue_size: options.queue_size, ..Settings::new(options.policy.clone(), only) };
    let mut path = Path::load(&setup, &settings)?;
    receiver
        .inside(|| Ok(path.attach(link.far.index, &link.far.name, 1, options.partial)))?
        .context("can't attach")?;
    tick_until_steady(&mut path)?;
    Ok(path)
}

/// Turns on the kernel's RPS at the far end of a link; it sends everything to CPU 1, where frames are dropped before
/// the protocols. There is no XDP program: GRO, which merges none of these frames, gives the veth the queue that live
/// frames need.
fn by_kernel_rps(receiver: &Namespace, link: &Link) -> Result<()> {
    let name = &link.far.name;
    receiver.run(&format!("ethtool -K {name} gro on rx-gro-list off"))?;
    receiver.write_sys(&format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"), "2")?;
    receiver.run("nft add table netdev lab")?;
    receiver.run(&format!(
        "nft add chain netdev lab arrived {{ type filter hook ingress device {name} priority 0 ; policy drop ; }}"
    ))?;
    Ok(())
}

/// A turn without a CPUMAP: the frames that CPU 1 processed according to its own count, which includes other traffic.
fn taken_over(source: &LiveFrames, sender: &Namespace, frames: u64) -> Result<f64> {
    let on_cpu_1 = || {
        let load = Load::read().context("the kernel does not report what its CPUs received")?;
        let cpu = load.cpus.iter().find(|cpu| cpu.cpu == 1).context("CPU 1 is offline")?;
        Ok::<_, anyhow::Error>(cpu.processed)
    };
    let before = on_cpu_1()?;
    let took = source.send(sender, 0, frames)?;
    sleep(Duration::from_millis(20));
    Ok(f64::from(on_cpu_1()?.wrapping_sub(before)) / took.as_secs_f64())
}

/// One turn: frames that CPU 1 took, per second of sending by CPU 0.
fn hand_off_rate(
    source: &LiveFrames,
    sender: &Namespace,
    arrivals: &Arrivals,
    frames: u64,
) -> Result<f64> {
    let on_cpu_1 = || -> Result<u64> { Ok(arrivals.by_cpu()?.get(1).copied().unwrap_or(0)) };
    let before = on_cpu_1()?;
    let took = source.send(sender, 0, frames)?;
    // CPU 1 processes a full ring of 16384 frames in less time.
    sleep(Duration::from_millis(20));
    Ok((on_cpu_1()? - before) as f64 / took.as_secs_f64())
}
