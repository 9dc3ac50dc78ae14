//! Records as JSON lines: one object per record.

use crate::temporary::Temporary;
use crate::text::{Progress, Text};
use crate::{Row, Sink, Written};
use rxsteer_flows::CpuTotals;
use serde::Serialize;
use std::io::Write;

pub(crate) struct JsonLines {
    text: Text,
    progress: Progress,
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
    vlan: Option<u16>,
    interface: Option<String>,
    moves: u32,
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
            vlan: record.totals.vlan,
            interface: row.interface().map(str::to_owned),
            moves: record.moves,
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
        Ok(JsonLines { text: Text::begin(&file)?, progress: Progress::default(), file })
    }
}

impl Sink for JsonLines {
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let line = Line::from(row);
        serde_json::to_writer(&mut self.text, &line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.text.write_all(b"\n"))
            .and_then(|()| self.text.flush())
            .map_err(|error| self.file.failed(error))?;
        self.progress.add(row, &self.text);
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.text.write_out().map_err(|error| self.file.failed(error))?;
        self.progress.check(&self.text);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.text.bytes()
    }

    fn salvage(self: Box<Self>) -> Written {
        self.progress.salvage(self.file)
    }

    fn close(mut self: Box<Self>) -> anyhow::Result<()> {
        self.flush()?;
        let JsonLines { file, .. } = *self;
        file.sync()?;
        file.name()
    }
}
