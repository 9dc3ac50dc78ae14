//! Top talkers per CPU: which flows send most, counted on the CPU that processes them.
//!
//! Each CPU has a handler with a table of its own. Since a flow stays on its CPU and in order, the
//! tables need no locks, and their sum is exact.
//!
//! ```text
//! cargo run --release -p rxsteer-user --example top_talkers              # made-up traffic
//! cargo run --release -p rxsteer-user --example top_talkers -- FILE.pcap 8
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]

use rxsteer_user::core::{CpuId, CpuSet, FlowKey, Policy};
use rxsteer_user::packet::{DissectOptions, dissect};
use rxsteer_user::source::Source;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::synthetic::SyntheticSource;
use rxsteer_user::{Handler, OnFull, PacketList, PipelineConfig, Speed, run};
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// One CPU's table: bytes per flow, both directions together.
#[derive(Default)]
struct Talkers {
    bytes: HashMap<FlowKey, u64>,
}

impl Handler for Talkers {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            let dissection = dissect(packet.meta().link, packet.bytes(), DissectOptions::default());
            // Packets without ports count by addresses; frames that are not IP as one "flow".
            let flow = dissection.outer_flow().unwrap_or(dissection.key).canonical();
            *self.bytes.entry(flow).or_default() += u64::from(packet.meta().wire_len);
        }
    }
}

fn main() -> ExitCode {
    match top_talkers() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The error's own words; returning it from main would print its inside.
            println!("top_talkers: {error}");
            ExitCode::from(2)
        }
    }
}

fn top_talkers() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let source: Box<dyn Source> = match arguments.next() {
        Some(file) => Box::new(CaptureSource::open(&[file.into()], CaptureOptions::default())?),
        None => {
            let traffic = "packets=100000,flows=500,share=zipf:1.2,ip=mixed,size=imix";
            Box::new(SyntheticSource::new(traffic.parse()?, 1, (0, 1)))
        }
    };
    let cpus = arguments.next().unwrap_or("4".to_owned());
    let cpus = cpus
        .parse()
        .ok()
        .and_then(CpuSet::first)
        .ok_or("the second argument is a count of CPUs, such as 4")?;

    let mut config = PipelineConfig::new(Policy::Rps, cpus);
    config.on_full = OnFull::Wait;
    let mut sources = [source];
    let stop = AtomicBool::new(false);
    let report = run(&config, &mut sources, Speed::Max, &stop, |_| Talkers::default(), |_, _| {})?;

    for issue in sources[0].take_issues() {
        println!("{issue}");
    }
    for (cpu, talkers) in report.handlers {
        print_top(cpu, &talkers);
    }
    Ok(())
}

fn print_top(cpu: CpuId, talkers: &Talkers) {
    println!("CPU {cpu}: {} flows", talkers.bytes.len());
    let mut flows: Vec<_> = talkers.bytes.iter().collect();
    flows.sort_by_key(|(flow, bytes)| (std::cmp::Reverse(**bytes), **flow));
    for (flow, bytes) in flows.iter().take(3) {
        println!("  {bytes:>10} bytes  {flow}");
    }
}
