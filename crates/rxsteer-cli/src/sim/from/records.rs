//! Flow records as recordings: reads the files that `rxsteer replay --flows` writes, but only the columns about the
//! flow, its counts and its times.
//!
//! As with captures, records before a damaged place are used, and nothing after it. Other files are not affected.

#[cfg(feature = "parquet")]
mod parquet;

use super::Into;
use anyhow::{Context, bail, ensure};
use rxsteer_sim::recorded::{FlowSpan, Spread, spread};
use rxsteer_user::core::FlowKey;
use rxsteer_user::shown;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The columns that are read, a subset of those that are written.
const COLUMNS: [&str; 9] =
    ["src", "dst", "protocol", "src_port", "dst_port", "packets", "bytes", "first_ns", "last_ns"];

/// The longest line of a .jsonl file, in bytes. A line with all possible CPUs fits.
const LONGEST_LINE: u64 = 4 << 20;

/// The format of a file of records, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    JsonLines,
    Parquet,
}

impl Format {
    /// `None` if it is not a file of records.
    pub(super) fn of(file: &Path) -> Option<Format> {
        let ending = file.extension()?.to_string_lossy().to_lowercase();
        match ending.as_str() {
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" => Some(Format::JsonLines),
            "parquet" => Some(Format::Parquet),
            _ => None,
        }
    }
}

/// Reads the records of all files, merged by time, at most `limit`; returns their number.
pub(super) fn read(
    files: &[PathBuf],
    how: Spread,
    limit: u32,
    into: &mut Into,
) -> anyhow::Result<u64> {
    let mut spans = Spans { spans: Vec::new(), limit: limit as usize };
    for file in files {
        let before = spans.spans.len();
        // A file that cannot be opened or lacks these columns is an error, not damage.
        let damage = read_file(file, into, &mut spans)
            .with_context(|| format!("can't read flow records from {}", shown(file)))?;
        let Some(damage) = damage else { continue };
        let read = spans.spans.len() - before;
        ensure!(read > 0, "{}: {damage:#}, and no record comes before that", shown(file));
        into.issues.push(format!(
            "{}: {damage:#}; the {read} records before it are used, none after it",
            shown(file)
        ));
    }
    if spans.is_full() {
        into.issues.push(format!(
            "only the first {limit} flow records are used; --from-packets takes more"
        ));
    }
    let read = spans.spans.len() as u64;
    spread(spans.spans, how, &mut into.recording);
    Ok(read)
}

/// The records read so far, up to the limit.
struct Spans {
    spans: Vec<FlowSpan>,
    limit: usize,
}

impl Spans {
    fn is_full(&self) -> bool {
        self.spans.len() >= self.limit
    }
}

/// The damage, if there is any. A file that is not a file of records is an error instead.
type Damage = Option<anyhow::Error>;

fn read_file(file: &Path, into: &Into, spans: &mut Spans) -> anyhow::Result<Damage> {
    ensure!(!file.is_dir(), "it is a folder; name the files in it");
    let opened = File::open(file)?;
    match Format::of(file) {
        Some(Format::Csv) => csv(opened, into, spans),
        Some(Format::JsonLines) => json_lines(opened, into, spans),
        #[cfg(feature = "parquet")]
        Some(Format::Parquet) => parquet::read(opened, into, spans),
        #[cfg(not(feature = "parquet"))]
        Some(Format::Parquet) => bail!("this rxsteer was built without the feature parquet"),
        None => bail!("its name ends neither in .csv nor in .jsonl nor in .parquet"),
    }
}

fn csv(file: File, into: &Into, spans: &mut Spans) -> anyhow::Result<Damage> {
    let mut reader = csv::Reader::from_reader(BufReader::new(file));
    let header = reader.headers()?.clone();
    let places = places(|column| header.iter().position(|name| name == column))?;
    let mut row = csv::StringRecord::new();
    while !spans.is_full() {
        let line = reader.position().line();
        match reader.read_record(&mut row) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => return Ok(Some(error.into())),
        }
        let cells = places.map(|place| row.get(place).unwrap_or_default());
        match span(cells, into) {
            Ok(span) => spans.spans.push(span),
            Err(error) => return Ok(Some(error.context(format!("line {line}")))),
        }
    }
    Ok(None)
}

/// The position of each column.
fn places(find: impl Fn(&str) -> Option<usize>) -> anyhow::Result<[usize; COLUMNS.len()]> {
    let mut places = [0; COLUMNS.len()];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        *place = find(column).with_context(|| {
            format!(
                "it has no column {column}; flow records are what rxsteer replay --flows writes"
            )
        })?;
    }
    Ok(places)
}

fn json_lines(file: File, into: &Into, spans: &mut Spans) -> anyhow::Result<Damage> {
    let mut reader = BufReader::new(file);
    let (mut line, mut number) = (Vec::new(), 0u64);
    while !spans.is_full() {
        line.clear();
        number += 1;
        let mut bounded = std::io::Read::take(&mut reader, LONGEST_LINE);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match json_line(&line, into) {
            Ok(span) => spans.spans.push(span),
            Err(error) => return Ok(Some(error.context(format!("line {number}")))),
        }
    }
    Ok(None)
}

fn json_line(line: &[u8], into: &Into) -> anyhow::Result<FlowSpan> {
    let object: serde_json::Value = serde_json::from_slice(line)?;
    let mut cells: [String; COLUMNS.len()] = Default::default();
    for (cell, column) in cells.iter_mut().zip(COLUMNS) {
        *cell = match object.get(column) {
            None => bail!("it has no field {column}"),
            Some(serde_json::Value::Null) => String::new(),
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
    }
    span(cells.each_ref().map(String::as_str), into)
}

/// A record from the texts of its columns. The text is empty for a field that does not distinguish flows.
fn span(cells: [&str; COLUMNS.len()], into: &Into) -> anyhow::Result<FlowSpan> {
    let mut at = 0;
    let mut next = || {
        at += 1;
        (COLUMNS[at - 1], cells[at - 1])
    };
    let [src, dst] = [address(next())?, address(next())?];
    let protocol = value(next())?.unwrap_or(0);
    let [src_port, dst_port] = [value(next())?.unwrap_or(0), value(next())?.unwrap_or(0)];
    let [packets, bytes, first_ns, last_ns] =
        [count(next())?, count(next())?, count(next())?, count(next())?];
    ensure!(packets > 0, "a record can't have 0 packets");
    ensure!(first_ns <= last_ns, "it ends ({last_ns}) before it begins ({first_ns})");
    let mut key = FlowKey { src_port, dst_port, ..FlowKey::default() };
    key.protocol = protocol;
    key.ip_version = version(src, dst)?;
    (key.src, key.dst) = (bytes_of(src), bytes_of(dst));
    let hash = into.hasher.hash(&key);
    Ok(FlowSpan { key, hash, packets, bytes, first_ns, last_ns })
}

/// Records are of IP packets; without any address the version does not matter.
fn version(src: Option<IpAddr>, dst: Option<IpAddr>) -> anyhow::Result<u8> {
    match (src.map(|src| src.is_ipv6()), dst.map(|dst| dst.is_ipv6())) {
        (Some(src), Some(dst)) if src != dst => bail!("src and dst are of different IP versions"),
        (Some(true), _) | (_, Some(true)) => Ok(6),
        _ => Ok(4),
    }
}

fn bytes_of(address: Option<IpAddr>) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        Some(IpAddr::V4(v4)) => bytes[..4].copy_from_slice(&v4.octets()),
        Some(IpAddr::V6(v6)) => bytes = v6.octets(),
        None => {}
    }
    bytes
}

fn address(cell: (&str, &str)) -> anyhow::Result<Option<IpAddr>> {
    value(cell)
}

fn count(cell: (&str, &str)) -> anyhow::Result<u64> {
    value(cell)?.with_context(|| format!("{} is not there", cell.0))
}

fn value<T: FromStr>((column, text): (&str, &str)) -> anyhow::Result<Option<T>> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || anyhow::anyhow!("{column} can't be '{text}'");
    text.parse().map(Some).map_err(|_| wrong())
}
