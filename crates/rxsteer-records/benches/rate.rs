//! How many flow records per second each output accepts, and what happens if flows end faster than that.
//!
//! ```text
//! cargo bench -p rxsteer-records --bench rate
//! ```

use anyhow::Context;
use rxsteer_core::{CpuId, FlowKey};
use rxsteer_flows::{FlowCounts, FlowMask, FlowPacket, FlowRecord, FlowTableConfig};
use rxsteer_records::anonymize::Anonymize;
use rxsteer_records::collecting::{Collecting, Consumer};
use rxsteer_records::files::Rotation;
use rxsteer_records::ipfix::Ipfix;
use rxsteer_records::outputs::Outputs;
use rxsteer_records::{Target, View};
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long flows are sent to each output.
const SPAN: Duration = Duration::from_secs(2);
/// The flows of the table, and packets that are counted at once.
const FLOWS: u32 = 65_536;
const LIST: u32 = 64;

/// Writes records, and counts them.
struct Writing {
    outputs: Outputs,
    view: View,
    records: u64,
}

impl Consumer for Writing {
    fn take(&mut self, record: &FlowRecord) {
        self.records += 1;
        self.outputs.take(&self.view.row(record));
    }

    fn tick(&mut self) {
        self.outputs.tick();
    }
}

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut out = std::io::stdout();
    writeln!(out, "output   flows a second   records a second   packets refused, of all")?;
    let formats = ["none", "csv", "jsonl", "ipfix"];
    #[cfg(feature = "parquet")]
    let formats = [&formats[..], &["parquet"]].concat();
    for format in formats {
        let [offered, records, refused, took] = one(folder.path(), format)?;
        writeln!(
            out,
            "{format:8} {:14.0} {:18.0} {:24.1} %",
            offered / SPAN.as_secs_f64(),
            records / took,
            100.0 * refused / offered
        )?;
    }
    Ok(())
}

/// A thread counts a packet of a new flow each time, as fast as it can, and does not wait for records. Returns the
/// flows, the records, the refused packets, and the seconds until all records were written.
fn one(folder: &Path, format: &str) -> anyhow::Result<[f64; 4]> {
    // No process reads: messages that do not fit into its buffer are lost after they were sent.
    let collector = UdpSocket::bind("127.0.0.1:0")?;
    let mask = FlowMask::ALL;
    let to = collector.local_addr()?.to_string();
    let ipfix = (format == "ipfix").then(|| Ipfix::connect(&to, &mask, 1, |_| {})).transpose()?;
    let file = folder.join(format!("flows.{format}"));
    let has_file = !["none", "ipfix"].contains(&format);
    let target = has_file.then(|| Target::new(&file, None, None)).transpose()?;
    let outputs = Outputs::live(target, mask, ipfix, Rotation::default(), |_| {})?;
    let view = View { mask, anonymize: Anonymize::new(None, None)?, interfaces: Vec::new() };
    let writing = Writing { outputs, view, records: 0 };
    let collecting = Collecting::start(&FlowTableConfig::new(FLOWS), writing, None)?;
    let mut writer = collecting.writer(CpuId::new(0).context("CPU 0")?)?;
    let (started, mut offered) = (Instant::now(), 0u32);
    while started.elapsed() < SPAN {
        let packets: Vec<FlowPacket> = (offered..offered + LIST).map(packet).collect();
        offered += LIST;
        let counted = writer.update(&packets);
        writer.refuse((packets.len() - counted) as u64);
    }
    drop(writer);
    let (writing, FlowCounts { refused, .. }) = collecting.finish()?;
    let records = writing.records;
    writing.outputs.finish();
    let took = started.elapsed().as_secs_f64();
    anyhow::ensure!(records + refused == u64::from(offered), "each packet is in one record");
    Ok([f64::from(offered), records as f64, refused as f64, took])
}

fn packet(flow: u32) -> FlowPacket {
    let mut key = FlowKey { ip_version: 4, protocol: 6, dst_port: 443, ..FlowKey::default() };
    key.src[..4].copy_from_slice(&flow.to_be_bytes());
    key.dst[..4].copy_from_slice(&[192, 0, 2, 1]);
    FlowPacket {
        flow: key.into(),
        time_ns: 1_700_000_000_000_000_000 + u64::from(flow),
        bytes: 100,
        ..FlowPacket::default()
    }
}
