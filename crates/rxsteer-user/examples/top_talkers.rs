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
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One CPU's table: bytes per flow, both directions together.
#[derive(Default)]
struct Talkers {
    bytes: HashMap<FlowKey, u64>,
}

impl Handler for Talkers {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            let dissection = dissect(packet.meta().link, packet.bytes(), DissectOptions::default());
            if let Some(flow) = dissection.outer_flow() {
                *self.bytes.entry(flow.canonical()).or_default() +=
                    u64::from(packet.meta().wire_len);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let source: Box<dyn Source> = match arguments.next() {
        Some(file) => Box::new(CaptureSource::open(&[file.into()], CaptureOptions::default())?),
        None => {
            let traffic = "packets=100000,flows=500,share=zipf:1.2,ip=mixed,size=imix";
            Box::new(SyntheticSource::new(traffic.parse()?, 1, (0, 1)))
        }
    };
    let cpus = arguments.next().map_or(Ok(4), |count| count.parse())?;
    let cpus = CpuSet::first(cpus).ok_or("at least one CPU, please")?;

    let mut config = PipelineConfig::new(Policy::Rps, cpus);
    config.on_full = OnFull::Wait;
    let mut sources = [source];
    let stop = std::sync::Arc::default();
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
        let (src, dst) = (address(flow.ip_version, flow.src), address(flow.ip_version, flow.dst));
        println!(
            "  {bytes:>10} bytes  {src} port {}  <->  {dst} port {}",
            flow.src_port, flow.dst_port
        );
    }
}

fn address(ip_version: u8, bytes: [u8; 16]) -> IpAddr {
    match ip_version {
        4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        _ => Ipv6Addr::from(bytes).into(),
    }
}
