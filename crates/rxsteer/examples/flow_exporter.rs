//! Exports flow records as CSV or JSON lines: the counts of each CPU for each flow and direction.
//!
//! All CPUs share the table. Each CPU has its own writer and counts in separate memory. Records are collected while
//! packets flow, so memory stays bounded for any number of flows.
//!
//! ```text
//! cargo run --release -p rxsteer --example flow_exporter -- csv FILE.pcap
//! ```
#![allow(dead_code, reason = "a test calls it without main")]

use rxsteer::flows::{FlowRecord, FlowStats, FlowTable, FlowTableConfig, WhenFull};
use rxsteer::source::{CaptureOptions, CaptureSource, Source};
use rxsteer::{Handler, OnFull, PacketList, PipelineBuilder, Policy, allowed_cpus};
use serde::Serialize;
use std::error::Error;
use std::io::{self, Write};
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const USAGE: &str = "Flow records of a capture, one line for each flow, direction and CPU.

Usage: flow_exporter csv|jsonl CAPTURE

CAPTURE is a pcap or pcapng file, - for standard input.";

/// The largest number of flows in the table. Beyond it, a flow of few packets is evicted, and its record is written.
const MAX_FLOWS: u32 = 100_000;
/// A flow without a packet for this long has ended, by the times of the capture.
const IDLE_TIMEOUT_NS: u64 = 60_000_000_000;
/// The pause between two checks for flows that ended.
const PAUSE: Duration = Duration::from_millis(1);

/// The part of one CPU: it counts in the shared table.
struct Exporter {
    stats: FlowStats,
}

impl Handler for Exporter {
    fn handle(&mut self, list: &PacketList<'_>) {
        self.stats.record(list);
    }
}

/// One line.
#[derive(Serialize)]
struct Row {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    src_port: u16,
    dst_port: u16,
    protocol: u8,
    first_ns: u64,
    last_ns: u64,
    tcp_flags: u8,
    end: &'static str,
    /// Empty for the common counts of CPUs that got no memory for separate counts.
    cpu: Option<u16>,
    packets: u64,
    bytes: u64,
}

/// The lines of a record: one for each CPU that counted.
fn rows(record: &FlowRecord) -> impl Iterator<Item = Row> {
    let (key, totals) = (record.key, record.totals);
    let end = record.end.map_or("", |end| end.name());
    let row = move |cpu, packets, bytes| Row {
        src: key.src_addr(),
        dst: key.dst_addr(),
        src_port: key.src_port,
        dst_port: key.dst_port,
        protocol: key.protocol,
        first_ns: totals.first_ns,
        last_ns: totals.last_ns,
        tcp_flags: totals.tcp_flags,
        end,
        cpu,
        packets,
        bytes,
    };
    let shared = record.shared;
    let per_cpu = record.per_cpu.iter().map(|of| (Some(of.cpu.get()), of.packets, of.bytes));
    let all = per_cpu.chain([(None, shared.packets, shared.bytes)]);
    all.filter(|(_, packets, _)| *packets > 0)
        .map(move |(cpu, packets, bytes)| row(cpu, packets, bytes))
}

/// The destination of lines.
enum Sink<W: Write> {
    Csv(Box<csv::Writer<W>>),
    JsonLines(W),
}

impl<W: Write> Sink<W> {
    fn write(&mut self, record: &FlowRecord) -> Result<(), Box<dyn Error>> {
        for row in rows(record) {
            match self {
                Sink::Csv(csv) => csv.serialize(row)?,
                Sink::JsonLines(out) => {
                    serde_json::to_writer(&mut *out, &row)?;
                    out.write_all(b"\n")?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Csv(csv) => csv.flush(),
            Sink::JsonLines(out) => out.flush(),
        }
    }
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "flow_exporter: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the example with `arguments`. It prints records to `out` and everything else to standard error.
pub(crate) fn run(
    arguments: impl IntoIterator<Item = String>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut sink, capture) = match arguments[..] {
        ["-h" | "--help", ..] => return Ok(writeln!(out, "{USAGE}")?),
        ["csv", capture] => (Sink::Csv(Box::new(csv::Writer::from_writer(out))), capture),
        ["jsonl", capture] => (Sink::JsonLines(out), capture),
        _ => return Err(format!("a form and a capture have to be named\n\n{USAGE}").into()),
    };
    let mut source = CaptureSource::open(&[capture.into()], CaptureOptions::default())?;
    let without_flow = export(&mut source, &mut sink)?;
    for issue in source.take_issues() {
        writeln!(io::stderr(), "flow_exporter: {issue}")?;
    }
    if without_flow > 0 {
        let kind = "frames carry no IP packet that can be read, and are in no record";
        writeln!(io::stderr(), "flow_exporter: {without_flow} {kind}")?;
    }
    Ok(())
}

/// Counts all flows of `source`, and writes their records as they end. Returns how many frames belong to no flow.
fn export(source: &mut CaptureSource, sink: &mut Sink<impl Write>) -> Result<u64, Box<dyn Error>> {
    let mut config = FlowTableConfig::new(MAX_FLOWS);
    config.idle_timeout_ns = Some(IDLE_TIMEOUT_NS);
    let table = FlowTable::new(&config)?;
    let cpus = allowed_cpus().ok_or("the host does not say which CPUs this process may use")?;
    let builder = PipelineBuilder::new(Policy::Rps, cpus).on_full(OnFull::Wait);

    let mut written = Ok(());
    // Records are collected even if they can't be written any more: workers may wait for room.
    let mut take = |record: &FlowRecord| {
        if written.is_ok() {
            written = sink.write(record);
        }
    };
    let report = thread::scope(|scope| {
        let running = scope.spawn(|| {
            builder.run(source, |cpu| {
                let writer = table.writer(cpu).expect("a CPU has one worker");
                Exporter { stats: FlowStats::new(writer, WhenFull::Wait) }
            })
        });
        while !running.is_finished() {
            table.collect(&mut take);
            thread::sleep(PAUSE);
        }
        running.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    let without_flow = report.handlers.iter().map(|(_, of)| of.stats.without_flow()).sum();
    // The writers are dropped with the handlers. After that, all remaining records are collected.
    drop(report);
    table.finish();
    table.collect(&mut take);
    written?;
    sink.flush()?;
    Ok(without_flow)
}
