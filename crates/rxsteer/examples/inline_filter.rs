//! A skeleton of an inline filter: it gives each packet a verdict, pass or drop, on the CPU that processes the packet.
//!
//! Here the frames come from a capture, and the filter only counts. The frames of a real filter between two interfaces
//! come from a live source (such as AF_XDP), and [`Filter::pass`] sends them on. A flow's packets reach one handler in
//! order. So the packets that pass leave in order, and the state of a flow needs no lock. Here that state is the flow's
//! first verdict, which the flow keeps.
//!
//! ```text
//! cargo run --release -p rxsteer --example inline_filter -- FILE.pcap 23 445
//! ```
#![allow(dead_code, reason = "a test calls it without main")]

use rxsteer::source::{CaptureOptions, CaptureSource, Source};
use rxsteer::{
    FlowKey, Handler, OnFull, Packet, PacketList, PipelineBuilder, Policy, allowed_cpus,
};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "Passes or drops the packets of a capture, and counts them.

Usage: inline_filter CAPTURE [PORT]...

CAPTURE is a pcap or pcapng file, - for standard input. Flows to one of the PORTs are dropped, and so are the replies.";

/// The number of flows that a CPU remembers. Beyond it, each packet gets a separate verdict.
const MAX_FLOWS: usize = 1 << 20;

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Drop,
}

/// Packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// One CPU's filter.
struct Filter {
    /// All CPUs share it and only read it.
    closed_ports: Arc<HashSet<u16>>,
    /// For each flow, both directions together, the verdict on its first packet.
    verdicts: HashMap<FlowKey, Verdict>,
    passed: Count,
    dropped: Count,
}

impl Handler for Filter {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            match self.verdict(&packet) {
                Verdict::Pass => self.pass(&packet),
                Verdict::Drop => self.dropped.add(&packet),
            }
        }
    }
}

impl Filter {
    fn new(closed_ports: Arc<HashSet<u16>>) -> Filter {
        Filter {
            closed_ports,
            verdicts: HashMap::new(),
            passed: Count::default(),
            dropped: Count::default(),
        }
    }

    fn verdict(&mut self, packet: &Packet<'_>) -> Verdict {
        // ARP and similar protocols, and frames that can't be read: not for this filter to decide.
        let Some(key) = packet.key() else { return Verdict::Pass };
        if let Some(verdict) = self.verdicts.get(&key.canonical()) {
            return *verdict;
        }
        let verdict =
            if self.closed_ports.contains(&key.dst_port) { Verdict::Drop } else { Verdict::Pass };
        if self.verdicts.len() < MAX_FLOWS {
            self.verdicts.insert(key.canonical(), verdict);
        }
        verdict
    }

    /// A filter between two interfaces sends `packet.bytes()` out of the other interface here.
    fn pass(&mut self, packet: &Packet<'_>) {
        self.passed.add(packet);
    }
}

impl Count {
    fn add(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        self.bytes += u64::from(packet.meta().wire_len);
    }
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "inline_filter: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the example with `arguments`, and prints to `out`.
pub(crate) fn run(
    arguments: impl IntoIterator<Item = String>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut arguments = arguments.into_iter();
    let capture = match arguments.next() {
        None => return Err(format!("one capture has to be named\n\n{USAGE}").into()),
        Some(text) if text == "-h" || text == "--help" => return Ok(writeln!(out, "{USAGE}")?),
        Some(capture) => capture,
    };
    let port = |text: String| {
        text.parse().map_err(|_| format!("'{text}' is not a port; write a number up to 65535"))
    };
    let closed_ports: Arc<HashSet<u16>> = Arc::new(arguments.map(port).collect::<Result<_, _>>()?);
    let mut source = CaptureSource::open(&[capture.into()], CaptureOptions::default())?;
    let cpus = allowed_cpus().ok_or("the host does not say which CPUs this process may use")?;

    let report = PipelineBuilder::new(Policy::Rps, cpus)
        // A live filter uses the default instead: a full backlog drops packets and counts them.
        .on_full(OnFull::Wait)
        .run(&mut source, |_cpu| Filter::new(closed_ports.clone()))?;

    for issue in source.take_issues() {
        writeln!(out, "{issue}")?;
    }
    for (cpu, filter) in &report.handlers {
        let (passed, dropped) = (filter.passed, filter.dropped);
        writeln!(
            out,
            "CPU {cpu}: passed {} packets ({} bytes), dropped {} ({} bytes)",
            passed.packets, passed.bytes, dropped.packets, dropped.bytes
        )?;
    }
    Ok(())
}
