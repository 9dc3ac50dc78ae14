//! The lab on the command line: it generates load on its own testbed, and prints the results.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talks to whoever typed it")]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{
    bpf_cost, bridge_cost, busy, flood, hand_off, kernel_rps, live_sources, receive_cost, router,
    socket_cost, status_cost, watch_cost,
};

/// Experiments in separate network namespaces; requires root.
#[derive(Parser)]
#[command(name = "rxsteer-lab", version, max_term_width = 100)]
#[command(after_help = "Example:\n  rxsteer-lab flood --flows 8 --gro -- --policy rps --cpus 0-1")]
struct Cli {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    BpfCost(bpf_cost::Options),
    BridgeCost(bridge_cost::Options),
    Busy(busy::Options),
    Flood(flood::Options),
    HandOff(hand_off::Options),
    KernelRps(kernel_rps::Options),
    LiveSources(live_sources::Options),
    ReceiveCost(receive_cost::Options),
    Router(router::Options),
    SocketCost(socket_cost::Options),
    StatusCost(status_cost::Options),
    WatchCost(watch_cost::Options),
}

fn main() -> ExitCode {
    let experiment = Cli::parse().experiment;
    if let Some(reason) = rxsteer_lab::missing(&["ip", "ethtool", "sysctl"]) {
        eprintln!("rxsteer-lab: cannot run: {reason}");
        return ExitCode::from(2);
    }
    let result = match &experiment {
        Experiment::BpfCost(options) => bpf_cost::run(options),
        Experiment::BridgeCost(options) => bridge_cost::run(options),
        Experiment::Busy(options) => busy::run(options),
        Experiment::Flood(options) => flood::run(options),
        Experiment::HandOff(options) => hand_off::run(options),
        Experiment::KernelRps(options) => kernel_rps::run(options),
        Experiment::LiveSources(options) => live_sources::run(options),
        Experiment::ReceiveCost(options) => receive_cost::run(options),
        Experiment::Router(options) => router::run(options),
        Experiment::SocketCost(options) => socket_cost::run(options),
        Experiment::StatusCost(options) => status_cost::run(options),
        Experiment::WatchCost(options) => watch_cost::run(options),
    };
    match result {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::from(u8::from(report["late"].as_u64().unwrap_or(0) > 0))
        }
        Err(why) => {
            eprintln!("rxsteer-lab: {why:#}");
            ExitCode::from(2)
        }
    }
}
