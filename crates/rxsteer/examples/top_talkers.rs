//! Top talkers per CPU: the flows that send most, counted on the CPU that processes them.
//!
//! Each CPU has a handler with a separate table. Since a flow stays on its CPU and in order, the tables need no locks,
//! and their sum is exact.
//!
//! ```text
//! cargo run --release -p rxsteer --example top_talkers              # made-up traffic
//! cargo run --release -p rxsteer --example top_talkers -- FILE.pcap 8
//! ```
#![allow(dead_code, reason = "a test calls it without main")]

use rxsteer::source::{CaptureOptions, CaptureSource, Source, SyntheticSource};
use rxsteer::{CpuSet, FlowKey, Handler, OnFull, PacketList, PipelineBuilder, Policy};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "Which flows send most, on each CPU.

Usage: top_talkers [CAPTURE [CPUS]]

CAPTURE is a pcap or pcapng file; without one traffic is made up. CPUS is how many CPUs to steer to, 4 by default.";

/// One CPU's table: bytes per flow, both directions together.
#[derive(Default)]
struct Talkers {
    bytes: HashMap<FlowKey, u64>,
}

impl Handler for Talkers {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            let dissection = packet.dissect();
            // Packets without ports count by addresses; frames that are not IP as one "flow".
            let flow = dissection.outer_flow().unwrap_or(dissection.key).canonical();
            *self.bytes.entry(flow).or_default() += u64::from(packet.meta().wire_len);
        }
    }
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Prints the error's message; returning it from main would print its debug form.
            let _ = writeln!(io::stderr(), "top_talkers: {error}");
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
    let (capture, cpus) = match arguments[..] {
        ["-h" | "--help", ..] => return Ok(writeln!(out, "{USAGE}")?),
        [] => (None, "4"),
        [capture] => (Some(capture), "4"),
        [capture, cpus] => (Some(capture), cpus),
        _ => return Err(format!("too many arguments\n\n{USAGE}").into()),
    };
    let mut source: Box<dyn Source> = match capture {
        Some(file) => Box::new(CaptureSource::open(&[file.into()], CaptureOptions::default())?),
        None => {
            let traffic = "packets=100000,flows=500,share=zipf:1.2,ip=mixed,size=imix";
            Box::new(SyntheticSource::new(traffic.parse()?, 1, (0, 1)))
        }
    };
    let cpus = cpus
        .parse()
        .ok()
        .and_then(CpuSet::first)
        .ok_or_else(|| format!("'{cpus}' is not a count of CPUs, such as 4"))?;

    let report = PipelineBuilder::new(Policy::Rps, cpus)
        .on_full(OnFull::Wait)
        .run(&mut source, |_| Talkers::default())?;

    for issue in source.take_issues() {
        writeln!(out, "{issue}")?;
    }
    for (cpu, talkers) in report.handlers {
        writeln!(out, "CPU {cpu}: {} flows", talkers.bytes.len())?;
        let mut flows: Vec<_> = talkers.bytes.iter().collect();
        flows.sort_by_key(|(flow, bytes)| (std::cmp::Reverse(**bytes), **flow));
        for (flow, bytes) in flows.iter().take(3) {
            writeln!(out, "  {bytes:>10} bytes  {flow}")?;
        }
    }
    Ok(())
}
