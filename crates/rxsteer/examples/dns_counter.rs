//! DNS queries by name, counted on the CPU that processes them.
//!
//! Each CPU's handler counts in a separate table, without a lock. The tables are added up when all packets are processed.
//! The `simple-dns` crate reads the messages, `etherparse` the UDP header, whose offset the receive path has found. DNS
//! over TCP is not read.
//!
//! ```text
//! cargo run --release -p rxsteer --example dns_counter -- FILE.pcap
//! ```
#![allow(dead_code, reason = "a test calls it without main")]

use etherparse::UdpSlice;
use rxsteer::source::{CaptureOptions, CaptureSource, Source};
use rxsteer::{Handler, OnFull, Packet, PacketList, PipelineBuilder, Policy, allowed_cpus};
use simple_dns::{Packet as Message, PacketFlag, RCODE};
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "DNS queries in a capture, by name.

Usage: dns_counter CAPTURE [NAMES]

CAPTURE is a pcap or pcapng file, - for standard input. NAMES is how many names to list, 10 by default.";

const UDP: u8 = 17;
const DNS: u16 = 53;

/// The counts of one CPU, or of all together.
#[derive(Debug, Default)]
struct Counts {
    queries: u64,
    /// Answers, and the number of them that report a name that does not exist.
    answers: u64,
    no_such_name: u64,
    /// Messages that are cut off or are not DNS.
    unreadable: u64,
    /// Queries by the requested name.
    names: HashMap<String, u64>,
}

impl Handler for Counts {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            if let Some(message) = dns_of(&packet) {
                self.count(message);
            }
        }
    }
}

/// The payload of a packet to or from port 53, as unchecked bytes.
fn dns_of<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    let dissection = packet.dissect();
    let is_dns = dissection.transport
        && dissection.key.protocol == UDP
        && [dissection.key.src_port, dissection.key.dst_port].contains(&DNS);
    if !is_dns {
        return None;
    }
    let udp = packet.bytes().get(dissection.l4_offset as usize..)?;
    // If the capture cut off a datagram, this returns no payload, and the packet counts as unreadable.
    Some(UdpSlice::from_slice(udp).map_or(&[], |udp| udp.payload()))
}

impl Counts {
    fn count(&mut self, message: &[u8]) {
        let Ok(message) = Message::parse(message) else {
            self.unreadable += 1;
            return;
        };
        if message.has_flags(PacketFlag::RESPONSE) {
            self.answers += 1;
            self.no_such_name += u64::from(message.rcode() == RCODE::NameError);
            return;
        }
        self.queries += 1;
        for question in &message.questions {
            // Names are compared without regard to case.
            let name = question.qname.to_string().to_ascii_lowercase();
            *self.names.entry(name).or_default() += 1;
        }
    }

    /// Adds the counts of another CPU.
    fn merge(&mut self, other: Counts) {
        self.queries += other.queries;
        self.answers += other.answers;
        self.no_such_name += other.no_such_name;
        self.unreadable += other.unreadable;
        for (name, queries) in other.names {
            *self.names.entry(name).or_default() += queries;
        }
    }
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "dns_counter: {error}");
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
    let (capture, most) = match arguments[..] {
        ["-h" | "--help", ..] => return Ok(writeln!(out, "{USAGE}")?),
        [capture] => (capture, "10"),
        [capture, most] => (capture, most),
        _ => return Err(format!("one capture has to be named\n\n{USAGE}").into()),
    };
    let most: usize = most.parse().map_err(|_| format!("'{most}' is not a count of names"))?;
    let mut source = CaptureSource::open(&[capture.into()], CaptureOptions::default())?;
    let cpus = allowed_cpus().ok_or("the host does not say which CPUs this process may use")?;

    let report = PipelineBuilder::new(Policy::Rps, cpus)
        // All packets of a capture are counted.
        .on_full(OnFull::Wait)
        .run(&mut source, |_cpu| Counts::default())?;

    for issue in source.take_issues() {
        writeln!(out, "{issue}")?;
    }
    let mut all = Counts::default();
    for (cpu, counts) in report.handlers {
        writeln!(out, "CPU {cpu}: {} queries, {} answers", counts.queries, counts.answers)?;
        all.merge(counts);
    }
    writeln!(
        out,
        "{} queries, {} answers ({} no such name), {} messages that can't be read",
        all.queries, all.answers, all.no_such_name, all.unreadable
    )?;
    let mut names: Vec<(String, u64)> = all.names.into_iter().collect();
    names.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then(a.cmp(b)));
    for (name, queries) in names.iter().take(most) {
        // A name can contain any byte. The printed text must not control a terminal.
        writeln!(out, "{queries:>8}  {}", rxsteer::printable(name))?;
    }
    Ok(())
}
