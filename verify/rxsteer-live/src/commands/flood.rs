//! Sends numbered live frames through `rxsteer run`, or without it.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use rxsteer_lab::{
    Family, LinkOptions, LiveFrames, OrderCheck, Pass, Protocol, Steering, Testbed, Traffic,
};
use serde_json::{Value, json};

/// Sends numbered frames over a veth pair, and reports how many arrived, how fast, and in which order.
///
/// Exit status: 0 all frames were in order, 1 some were late, 2 it could not run.
#[derive(Args)]
#[command(after_help = "Examples:\n  rxsteer-lab flood --frames 5000000\n  \
                  rxsteer-lab flood --flows 4 --tcp --gro -- --policy rps --cpus 0-1")]
pub(crate) struct Options {
    /// Frames sent.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    frames: u64,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: u32,
    /// Packets of one flow in a row.
    #[arg(long, value_name = "N", default_value_t = 1)]
    train: u32,
    /// Takes flows in random order.
    #[arg(long)]
    random: bool,
    /// Shortest time between two frames, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pace: u64,
    /// Sends IPv6.
    #[arg(long)]
    ipv6: bool,
    /// Sends TCP segments.
    #[arg(long)]
    tcp: bool,
    /// Lets the receiver merge packets.
    #[arg(long)]
    gro: bool,
    /// The CPU that sends and, with veth, also receives.
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    cpu: usize,
    /// Arguments of `rxsteer run` after the interface; without any, frames are received unsteered.
    #[arg(last = true, value_name = "ARGUMENTS")]
    steer: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions { gro: options.gro, ..LinkOptions::default() })?;
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let traffic = Traffic {
        flows: options.flows,
        train: options.train,
        random: options.random,
        pace: Duration::from_nanos(options.pace),
        family: if options.ipv6 { Family::V6 } else { Family::V4 },
        protocol: if options.tcp { Protocol::Tcp } else { Protocol::Udp },
        ..Traffic::default()
    };
    let mut arguments = vec![link.far.name.as_str()];
    arguments.extend(options.steer.iter().map(String::as_str));
    let steered = !options.steer.is_empty();
    let steering = steered.then(|| Steering::start(receiver, &arguments)).transpose()?;
    let pass = (!steered).then(|| Pass::attach(receiver, &link.far)).transpose()?;
    let check = OrderCheck::new(receiver, &link.far, options.flows)?;
    let frames = LiveFrames::new(link, &traffic)?;
    let started = Instant::now();
    frames.send(testbed.sender(), options.cpu, options.frames)?;
    let seconds = started.elapsed().as_secs_f64();
    let report = steering.map(Steering::stop).transpose()?;
    drop(pass);
    let seen = check.total()?;
    Ok(json!({
        "frames": options.frames,
        "seconds": seconds,
        "frames_per_second": options.frames as f64 / seconds,
        "seen": seen.frames,
        "buffers": seen.buffers,
        "merged": seen.merged,
        "moves": seen.moves,
        "late": seen.late,
        "furthest": seen.furthest,
        "by_cpu": check.by_cpu()?,
        "rxsteer": report.map(|(report, _)| report),
    }))
}
