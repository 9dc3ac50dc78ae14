//! The stub of an inline filter: a verdict for each packet, pass or drop, on the CPU that processes it.
//!
//! Frames come from a capture, and the filter counts; where a real one sits between two interfaces, its frames come from
//! a source of its own (AF_XDP, say), and [`Filter::pass`] sends them on. Since a flow's packets reach one handler in
//! order, what passes leaves in order, and the state that a rule keeps for a flow needs no lock. Here that is the
//! first verdict, which a flow keeps.
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

/// Flows that a CPU remembers; beyond that, each packet is judged by itself.
const MAX_FLOWS: usize = 1 << 20;

/// What becomes of a packet.
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
    /// Shared by all CPUs, and only read.
    closed_ports: Arc<HashSet<u16>>,
    /// Of each flow, both directions together, the verdict on its first packet.
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
        // ARP and the like, and what can't be read: that is for others to judge.
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

    /// A filter between two interfaces sends `packet.bytes()` out of the other one here.
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

/// Does what `arguments` ask for, and prints to `out`.
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
        // A live filter takes the default instead: a full backlog drops, and is counted.
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
