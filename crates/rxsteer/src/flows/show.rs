//! The largest flows as a table, and as JSON.

use super::Found;
use crate::explain::flow::protocol_name;
use crate::output::json::{flow_counts, issues};
use crate::output::table::{duration, grouped, new, percent};
use crate::records::{Line, Row};
use rxsteer_user::core::{CpuSet, FlowKey};
use rxsteer_user::flows::FlowRecord;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// TCP flags from the header's highest bit to its lowest.
const FLAGS: [char; 8] = ['C', 'E', 'U', 'A', 'P', 'R', 'S', 'F'];

pub(super) fn table(found: &Found) -> String {
    let header = [
        "rank",
        "source",
        "destination",
        "protocol",
        "packets",
        "bytes",
        "share",
        "duration",
        "flags",
        "CPUs",
    ];
    let mut table = new(&header, &[1, 2, 3, 8, 9]);
    let top = &found.top;
    let all = match top.by {
        super::top::Measure::Packets => top.packets,
        super::top::Measure::Bytes => top.bytes,
    };
    for (index, record) in top.records().into_iter().enumerate() {
        let key = found.anonymize.key(record.key);
        let totals = &record.totals;
        let [source, destination] = ends(&key);
        table.add_row(vec![
            (index + 1).to_string(),
            source,
            destination,
            protocol_name(key.protocol),
            grouped(totals.packets),
            grouped(totals.bytes),
            percent(top.by.of(totals), all),
            duration(Duration::from_nanos(totals.last_ns.saturating_sub(totals.first_ns))),
            flags(totals.tcp_flags),
            cpus(record),
        ]);
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    text.push('\n');
    totals(&mut text, found);
    text
}

fn totals(text: &mut String, found: &Found) {
    let top = &found.top;
    let mut line = |name: &str, value: String| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name:<12} {value}");
    };
    let (packets, bytes) = covered(found);
    line(
        "flows",
        format!(
            "{} with {} packets, {} bytes; shown: {} of the packets, {} of the bytes",
            grouped(top.records),
            grouped(top.packets),
            grouped(top.bytes),
            percent(packets, top.packets),
            percent(bytes, top.bytes)
        ),
    );
    line(
        "in no flow",
        format!(
            "{} not IP, {} malformed, {} dropped",
            grouped(found.report.not_ip),
            grouped(found.malformed()),
            grouped(found.report.drops.total())
        ),
    );
    if found.interrupted {
        line("interrupted", "this is what was read until then".to_owned());
    }
}

/// Packets and bytes of the flows shown.
fn covered(found: &Found) -> (u64, u64) {
    let shown = found.top.records();
    let totals = shown.iter().map(|record| &record.totals);
    totals.fold((0, 0), |(packets, bytes), of| (packets + of.packets, bytes + of.bytes))
}

pub(super) fn json(found: &Found) -> String {
    let top = &found.top;
    let records = top.records();
    let shown = records.iter().enumerate().map(|(index, record)| {
        let row = Row::new(record, &found.anonymize);
        let mut object = Map::new();
        object.insert("rank".to_owned(), json!(index + 1));
        // A record is plain data, which JSON has a form for.
        if let Ok(Value::Object(record)) = serde_json::to_value(Line::from(&row)) {
            object.extend(record);
        }
        Value::Object(object)
    });
    let (packets, bytes) = covered(found);
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("by", json!(top.by.name()));
    put("top", shown.collect());
    put("records", json!(top.records));
    put("packets", json!(top.packets));
    put("bytes", json!(top.bytes));
    put("packets_shown", json!(packets));
    put("bytes_shown", json!(bytes));
    put("frames_not_ip", json!(found.report.not_ip));
    put("malformed", json!(found.malformed()));
    put("dropped", json!(found.report.drops.total()));
    put("errors", issues(&found.issues));
    put("interrupted", json!(found.interrupted));
    flow_counts(&mut object, &found.counts);
    format!("{:#}\n", Value::Object(object))
}

/// What is to be known beside the figures.
pub(super) fn notes(found: &Found) -> Vec<String> {
    let mut notes: Vec<String> = found.issues.iter().map(ToString::to_string).collect();
    if found.counts.evicted > 0 {
        notes.push(format!(
            "{} records made room for others, so some flows are counted in several records, each \
             smaller than the flow; raise --max-flows to have them whole",
            found.counts.evicted
        ));
    }
    for cpu in &found.report.per_cpu {
        if let Some(failure) = &cpu.failure {
            notes.push(format!("the worker of CPU {} ended early: {failure}", cpu.cpu));
        }
    }
    notes
}

/// Both ends of a flow; without ports where it has none.
fn ends(key: &FlowKey) -> [String; 2] {
    let no_ports = key.src_port == 0 && key.dst_port == 0;
    let end = |address: Option<IpAddr>, port| match address {
        None => "-".to_owned(),
        Some(address) if no_ports => address.to_string(),
        Some(address) => SocketAddr::new(address, port).to_string(),
    };
    [end(key.src_addr(), key.src_port), end(key.dst_addr(), key.dst_port)]
}

/// `APSF`; `-` for none.
fn flags(flags: u8) -> String {
    let set = |bit: &usize| flags & (0x80 >> bit) != 0;
    let text: String = (0..8).filter(set).map(|bit| FLAGS[bit]).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// The CPUs that counted packets of a flow; those without a block of their own are not known.
fn cpus(record: &FlowRecord) -> String {
    let list = CpuSet::new(record.per_cpu.iter().map(|cpu| cpu.cpu));
    let unknown = if record.shared.packets > 0 { "…" } else { "" };
    list.map_or_else(|| "-".to_owned(), |list| format!("{list}{unknown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_letters() {
        assert_eq!(flags(0x1b), "APSF");
        assert_eq!(flags(0xff), "CEUAPRSF");
        assert_eq!(flags(0), "-");
    }
}
