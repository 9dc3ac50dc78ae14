//! A filter between two live interfaces: it drops packets of one UDP port and sends on all others, each flow in order. It
//! requires CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and the feature `xdp`.
//!
//! ```text
//! cargo build --release -p rxsteer --features xdp --example bridge_filter
//! sudo target/release/examples/bridge_filter eth0 eth1 5353 60
//! ```

use rxsteer::forward::{Action, Bridge, ForwardCounts, Forwarder, Inspector};
use rxsteer::source::{LiveIo, LiveOptions, interfaces, open_live};
use rxsteer::{CpuSet, Packet, PipelineBuilder, Policy, allowed_cpus};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

const USAGE: &str = "Joins two interfaces, and drops one UDP port.

Usage: bridge_filter IFACE IFACE PORT [SECONDS]

It ends after SECONDS, 10 by default. Nothing else on this host receives what comes in meanwhile.";

/// The protocol number of UDP.
const UDP: u8 = 17;

/// Packets to or from this port are dropped.
struct Filter {
    port: u16,
    bridge: Bridge,
}

impl Inspector for Filter {
    fn inspect(&mut self, packet: &Packet<'_>) -> Action {
        let is_unwanted = packet.key().is_some_and(|key| {
            key.protocol == UDP && [key.src_port, key.dst_port].contains(&self.port)
        });
        if is_unwanted { Action::Drop } else { self.bridge.inspect(packet) }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bridge_filter: {error}");
            ExitCode::from(2)
        }
    }
}

/// The number of RX queues of an interface. AF_XDP takes the frames of each queue.
fn rx_queues(name: &str) -> Result<u32, Box<dyn Error>> {
    let folder = format!("/sys/class/net/{name}/queues");
    let queues = std::fs::read_dir(&folder)
        .map_err(|error| format!("can't use '{name}': {folder}: {error}"))?
        .flatten()
        .filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"));
    Ok(u32::try_from(queues.count())?)
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (names, unwanted, seconds) = match arguments[..] {
        ["-h" | "--help", ..] => return Ok(writeln!(io::stdout(), "{USAGE}")?),
        [one, other, port] => ([one, other], port, "10"),
        [one, other, port, seconds] => ([one, other], port, seconds),
        _ => return Err(format!("two interfaces and a port have to be named\n\n{USAGE}").into()),
    };
    let (unwanted, seconds): (u16, u64) = (unwanted.parse()?, seconds.parse()?);
    let mut named = Vec::new();
    for name in names {
        named.push((name, rx_queues(name)?));
    }
    let interfaces = interfaces(named)?;
    let mut options = LiveOptions::default();
    options.io = LiveIo::Xdp;
    options.forwards = true;
    let mut live = open_live(&interfaces, &options)?;

    let cpus = allowed_cpus().or_else(|| CpuSet::first(1)).ok_or("there is no CPU")?;
    let builder =
        PipelineBuilder::new(Policy::Rps, cpus.clone()).interfaces(&interfaces, cpus.iter());
    let filter = || Filter { port: unwanted, bridge: Bridge::between(&live.ports) };
    let mut forwarders = (0..builder.workers().len())
        .map(|_| Forwarder::new(filter(), &live.ports))
        .collect::<Result<Vec<_>, _>>()?;
    let end = options.stop;
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        end.store(true, Ordering::Relaxed);
    });
    let report = builder.run_all(&mut live.sources, |_cpu| {
        forwarders.pop().expect("there is one for each worker")
    })?;

    let mut counts = ForwardCounts::default();
    report.handlers.iter().for_each(|(_, forwarder)| counts.merge(&forwarder.counts()));
    writeln!(
        io::stdout(),
        "{} packets: {} sent on, {} dropped by the filter, {} without room to send",
        report.packets,
        counts.sent,
        counts.refused,
        counts.unsent
    )?;
    Ok(())
}
