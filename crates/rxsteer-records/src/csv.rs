//! Records as CSV (RFC 4180 except for its line ends): a header, then one line per record.

use crate::temporary::Temporary;
use crate::{COLUMNS, Row, Sink};
use std::fmt::Write;
use std::fs::File;
use std::io::BufWriter;

pub(crate) struct Csv {
    writer: csv::Writer<BufWriter<File>>,
    file: Temporary,
}

impl Csv {
    pub(crate) fn begin(file: Temporary) -> anyhow::Result<Csv> {
        let mut writer = csv::Writer::from_writer(BufWriter::new(file.writer()?));
        writer.write_record(COLUMNS).map_err(|error| file.failed(error))?;
        Ok(Csv { writer, file })
    }
}

impl Sink for Csv {
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()> {
        let totals = &row.record.totals;
        let [src, dst] = row.ends();
        let fields: [&str; COLUMNS.len()] = [
            &or_empty(src.address),
            &or_empty(dst.address),
            &or_empty(row.protocol()),
            &or_empty(src.port),
            &or_empty(dst.port),
            &totals.packets.to_string(),
            &totals.bytes.to_string(),
            &totals.tcp_flags.to_string(),
            &totals.first_ns.to_string(),
            &totals.last_ns.to_string(),
            &cpus(row),
            &per_cpu(row),
            &row.record.shared.packets.to_string(),
            &row.record.shared.bytes.to_string(),
            row.end().unwrap_or_default(),
            &row.hash(),
        ];
        self.writer.write_record(fields).map_err(|error| self.file.failed(error))
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        let Csv { mut writer, file } = *self;
        writer.flush().map_err(|error| file.failed(error))?;
        drop(writer);
        file.sync()?;
        file.name()
    }
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// `0;3`: CSV has no lists in fields.
fn cpus(row: &Row<'_>) -> String {
    let cpus: Vec<String> = row.per_cpu().iter().map(|cpu| cpu.cpu.to_string()).collect();
    cpus.join(";")
}

/// `0:12:3400;3:1:60`, each as CPU:packets:bytes.
fn per_cpu(row: &Row<'_>) -> String {
    let mut text = String::new();
    for cpu in row.per_cpu() {
        let between = if text.is_empty() { "" } else { ";" };
        // Writing to a String does not fail.
        let _ = write!(text, "{between}{}:{}:{}", cpu.cpu, cpu.packets, cpu.bytes);
    }
    text
}
