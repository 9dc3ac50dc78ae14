//! Records as CSV (RFC 4180 except for its line ends): a header, then one line per record.

use crate::temporary::Temporary;
use crate::text::{Progress, Text};
use crate::{COLUMNS, Row, Sink, Written};
use std::fmt::Write;

pub(crate) struct Csv {
    writer: csv::Writer<Text>,
    progress: Progress,
    file: Temporary,
}

impl Csv {
    pub(crate) fn begin(file: Temporary) -> anyhow::Result<Csv> {
        let mut writer = csv::Writer::from_writer(Text::begin(&file)?);
        writer.write_record(COLUMNS).map_err(|error| file.failed(error))?;
        writer.flush().map_err(|error| file.failed(error))?;
        Ok(Csv { writer, progress: Progress::default(), file })
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
            &or_empty(totals.vlan),
            row.interface().unwrap_or_default(),
            &row.record.moves.to_string(),
        ];
        let Csv { writer, progress, file } = self;
        writer.write_record(fields).map_err(|error| file.failed(error))?;
        // The line ends here.
        writer.flush().map_err(|error| file.failed(error))?;
        progress.add(row, writer.get_ref());
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let Csv { writer, progress, file } = self;
        let text = std::mem::replace(writer, csv::Writer::from_writer(Text::begin(file)?));
        let mut text = text.into_inner().map_err(|error| file.failed(error.into_error()))?;
        text.write_out().map_err(|error| file.failed(error))?;
        progress.check(&text);
        *writer = csv::Writer::from_writer(text);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.writer.get_ref().bytes()
    }

    fn salvage(self: Box<Self>) -> Written {
        self.progress.salvage(self.file)
    }

    fn close(mut self: Box<Self>) -> anyhow::Result<()> {
        self.flush()?;
        let Csv { writer, file, .. } = *self;
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
