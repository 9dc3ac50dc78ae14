//! A filter between two live interfaces: it drops packets of one UDP port and sends on all others, each flow in order. It
//! requires CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and the feature `xdp`.
//!
//! ```text
//! cargo build --release -p rxsteer --features xdp --example bridge_filter
//! sudo target/release/examples/bridge_filter eth0 eth1 5353 60
//! ```

use rxsteer::forward::{Action, Bridge, ForwardCounts, Forwarder, Inspector};
use rxsteer::source::{Port, XdpOptions, XdpQueue, XdpSource, open_xdp};
use rxsteer::{CpuSet, Packet, PipelineBuilder, Policy, allowed_cpus};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// An interface, as the kernel describes it.
fn port(name: &str) -> Result<Port, Box<dyn Error>> {
    let folder = format!("/sys/class/net/{name}");
    let unusable = |error: io::Error| format!("can't use '{name}': {folder}: {error}");
    let number = |file: &str| -> Result<u32, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).map_err(unusable)?;
        Ok(text.trim().parse()?)
    };
    let queues = std::fs::read_dir(format!("{folder}/queues")).map_err(unusable)?.flatten();
    let queues = queues.filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"));
    Ok(Port {
        name: name.to_owned(),
        ifindex: number("ifindex")?,
        queues: u32::try_from(queues.count())?,
        mtu: number("mtu")?,
    })
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
    let ports = names.iter().map(|name| port(name)).collect::<Result<Vec<_>, _>>()?;
    let mut options = XdpOptions::default();
    options.forwards = true;
    let mut opened = open_xdp(&ports, &options)?;

    // One RX queue of the pipeline, and one RX thread, for each RX queue of the interfaces.
    let end = Arc::new(AtomicBool::new(false));
    let mut sources = Vec::new();
    for port in &mut opened {
        let interface = port.name.clone();
        for receiver in port.receivers.drain(..) {
            let rx_queue = u16::try_from(sources.len())?;
            let queue = XdpQueue { receiver, interface: interface.clone(), rx_queue };
            sources.push(XdpSource::new(vec![queue], end.clone()));
        }
    }
    let cpus = allowed_cpus().or_else(|| CpuSet::first(1)).ok_or("there is no CPU")?;
    let queues = u16::try_from(sources.len())?;
    let rx_cpus: Vec<_> = cpus.iter().collect();
    let builder = PipelineBuilder::new(Policy::Rps, cpus)
        .rx_queues(queues)
        .rx_cpus(rx_cpus.into_iter().cycle().take(sources.len()));
    let filter = || Filter { port: unwanted, bridge: Bridge::between(&opened) };
    let mut forwarders = (0..builder.workers().len())
        .map(|_| Forwarder::new(filter(), &opened))
        .collect::<Result<Vec<_>, _>>()?;
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        end.store(true, Ordering::Relaxed);
    });
    let report = builder
        .run_all(&mut sources, |_cpu| forwarders.pop().expect("there is one for each worker"))?;

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
