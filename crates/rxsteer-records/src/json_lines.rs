//! Records as JSON lines: one object per record.

use crate::temporary::Temporary;
use crate::{Row, Sink};
use rxsteer_flows::CpuTotals;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};

pub(crate) struct JsonLines {
    writer: BufWriter<File>,
    file: Temporary,
}

/// One line; the fields are the columns.
#[derive(Serialize)]
pub struct Line {
    src: Option<String>,
    dst: Option<String>,
    protocol: Option<u8>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    packets: u64,
    bytes: u64,
    tcp_flags: u8,
    first_ns: u64,
    last_ns: u64,
    cpus: Vec<u16>,
    per_cpu: Vec<OnCpu>,
    shared_packets: u64,
    shared_bytes: u64,
    end_reason: Option<&'static str>,
    hash: String,
}

/// The counts of one CPU.
#[derive(Serialize)]
struct OnCpu {
    cpu: u16,
    packets: u64,
    bytes: u64,
}

impl From<&Row<'_>> for Line {
    fn from(row: &Row<'_>) -> Line {
        let record = row.record;
        let [src, dst] = row.ends();
        let per_cpu: Vec<OnCpu> = row.per_cpu().iter().map(OnCpu::from).collect();
        Line {
            src: src.address.map(|address| address.to_string()),
            dst: dst.address.map(|address| address.to_string()),
            protocol: row.protocol(),
            src_port: src.port,
            dst_port: dst.port,
            packets: record.totals.packets,
            bytes: record.totals.bytes,
            tcp_flags: record.totals.tcp_flags,
            first_ns: record.totals.first_ns,
            last_ns: record.totals.last_ns,
            cpus: per_cpu.iter().map(|cpu| cpu.cpu).collect(),
            per_cpu,
            shared_packets: record.shared.packets,
            shared_bytes: record.shared.bytes,
            end_reason: row.end(),
            hash: row.hash(),
        }
    }
}

impl From<&CpuTotals> for OnCpu {
    fn from(cpu: &CpuTotals) -> OnCpu {
        OnCpu { cpu: cpu.cpu.get(), packets: cpu.packets, bytes: cpu.bytes }
    }
}

impl JsonLines {
    pub(crate) fn begin(file: Temporary) -> anyhow::Result<JsonLines> {
        Ok(JsonLines { writer: BufWriter::new(file.writer()?), file })
    }
}

impl Sink for JsonLines {
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let line = Line::from(row);
        serde_json::to_writer(&mut self.writer, &line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.writer.write_all(b"\n"))
            .map_err(|error| self.file.failed(error))
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        let JsonLines { mut writer, file } = *self;
        writer.flush().map_err(|error| file.failed(error))?;
        drop(writer);
        file.sync()?;
        file.name()
    }
}
