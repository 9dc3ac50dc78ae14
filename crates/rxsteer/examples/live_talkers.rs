//! Top talkers of a live interface, per CPU. It requires CAP_NET_RAW.
//!
//! ```text
//! cargo build --release -p rxsteer --example live_talkers
//! sudo target/release/examples/live_talkers eth0 10
//! ```
#![allow(dead_code, reason = "a test calls it without main")]

use rxsteer::source::{PacketSource, Source};
use rxsteer::{CpuSet, FlowKey, Handler, PacketList, PipelineBuilder, Policy, allowed_cpus};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

const USAGE: &str = "Which flows of a live interface send most, on each CPU.

Usage: live_talkers IFACE [SECONDS]

It receives for SECONDS, 10 by default, and takes CAP_NET_RAW.";

/// One CPU's table: bytes per flow, both directions together.
#[derive(Default)]
struct Talkers(HashMap<FlowKey, u64>);

impl Handler for Talkers {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            if let Some(key) = packet.key() {
                *self.0.entry(key.canonical()).or_default() += u64::from(packet.meta().wire_len);
            }
        }
    }
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Prints the error's message; returning it from main would print its debug form.
            let _ = writeln!(io::stderr(), "live_talkers: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the example with `arguments`, and prints to `out`.
pub(crate) fn run(
    arguments: impl IntoIterator<Item = String>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (interface, seconds) = match arguments[..] {
        ["-h" | "--help", ..] => return Ok(writeln!(out, "{USAGE}")?),
        [interface] => (interface, "10"),
        [interface, seconds] => (interface, seconds),
        _ => return Err(format!("an interface has to be named\n\n{USAGE}").into()),
    };
    let seconds: u64 = seconds
        .parse()
        .map_err(|_| format!("'{seconds}' is not a count of seconds, such as 10"))?;
    let mut source = PacketSource::open(interface)?;
    // Setting this flag ends the run.
    let end = source.stop_waiting().ok_or("a live source waits")?;
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        end.store(true, Ordering::Relaxed);
    });
    let cpus = allowed_cpus().or_else(|| CpuSet::first(1)).ok_or("there is no CPU")?;

    let report =
        PipelineBuilder::new(Policy::Rps, cpus).run(&mut source, |_cpu| Talkers::default())?;

    for issue in source.take_issues() {
        writeln!(out, "{issue}")?;
    }
    writeln!(
        out,
        "{} packets, {} dropped, {} by the kernel",
        report.packets,
        report.drops.total(),
        report.kernel_drops
    )?;
    for (cpu, talkers) in report.handlers {
        writeln!(out, "CPU {cpu}: {} flows", talkers.0.len())?;
        let mut flows: Vec<_> = talkers.0.iter().collect();
        flows.sort_by_key(|(flow, bytes)| (std::cmp::Reverse(**bytes), **flow));
        for (flow, bytes) in flows.iter().take(3) {
            writeln!(out, "  {bytes:>10} bytes  {flow}")?;
        }
    }
    Ok(())
}
