//! The largest flows as a table, and as JSON.

use super::Found;
use crate::explain::flow::protocol_name;
use crate::output::json::{decisive, flow_counts, issues};
use crate::output::lines::{field, fitted};
use crate::output::table::{duration, hash, left_out, new};
use rxsteer_records::{End, Line, Row};
use rxsteer_status::figures::{grouped, percent};
use rxsteer_user::core::CpuSet;
use rxsteer_user::flows::{FlowMask, FlowRecord};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// TCP flags from the header's highest bit to its lowest.
const FLAGS: [char; 8] = ['C', 'E', 'U', 'A', 'P', 'R', 'S', 'F'];

pub(super) fn table(found: &Found) -> String {
    let of_key = key_columns(&found.view.mask);
    let names = of_key.iter().map(|(name, _)| *name);
    let counted = ["packets", "bytes", "share", "duration", "flags", "CPUs"];
    let header: Vec<&str> = ["rank"].into_iter().chain(names).chain(counted).collect();
    let texts = (1..=of_key.len()).chain([header.len() - 2, header.len() - 1]);
    let mut table = new(&header, &texts.collect::<Vec<_>>());
    let top = &found.top;
    let all = match top.by {
        super::top::Measure::Packets => top.packets,
        super::top::Measure::Bytes => top.bytes,
    };
    for (index, record) in top.records().into_iter().enumerate() {
        let row = found.view.row(record);
        let totals = &record.totals;
        let mut cells = vec![(index + 1).to_string()];
        cells.extend(of_key.iter().map(|(_, cell)| cell(&row)));
        cells.extend([
            grouped(totals.packets),
            grouped(totals.bytes),
            percent(top.by.of(totals), all),
            duration(Duration::from_nanos(totals.last_ns.saturating_sub(totals.first_ns))),
            flags(totals.tcp_flags),
            cpus(record),
        ]);
        table.add_row(cells);
    }
    let column = |name: &str| header.iter().position(|of| *of == name).into_iter().collect();
    let least = ["duration", "flags", "rank", "bytes"].map(column);
    let mut text = fitted(table, &least);
    text.push('\n');
    totals(&mut text, found);
    text
}

fn totals(text: &mut String, found: &Found) {
    let top = &found.top;
    let mut line = |name: &str, value: String| field(text, name, 13, &value);
    let (packets, bytes) = covered(found);
    // By only some of the fields, a row is not a flow; it may be a source, a network or a service.
    let rows = if found.view.mask == FlowMask::ALL { "flows" } else { "keys" };
    line(
        rows,
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
    if found.skipped > 0 {
        line("left out", left_out(found.skipped));
    }
    line("policy", format!("{}, CPUs {}", found.config.policy, found.config.cpus));
    line("hash", hash(found.hash, found.hash_seed, true));
    if found.interrupted {
        line("interrupted", "the report covers what was read until then".to_owned());
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
        let row = found.view.row(record);
        let mut object = Map::new();
        object.insert("rank".to_owned(), json!(index + 1));
        // A record is plain data, which can always be written as JSON.
        if let Ok(Value::Object(record)) = serde_json::to_value(Line::from(&row)) {
            object.extend(record);
        }
        Value::Object(object)
    });
    let (packets, bytes) = covered(found);
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("policy", json!(found.config.policy.to_string()));
    put("hash", json!(found.hash));
    put("hash_seed", json!(found.hash_seed.map(|seed| format!("{:032x}", seed.0))));
    put("settings", Value::Object(decisive(&found.config)));
    put("by", json!(top.by.name()));
    put("largest_flows", shown.collect());
    put("records", json!(top.records));
    put("packets", json!(top.packets));
    put("bytes", json!(top.bytes));
    put("packets_shown", json!(packets));
    put("bytes_shown", json!(bytes));
    put("frames_not_ip", json!(found.report.not_ip));
    put("malformed", json!(found.malformed()));
    put("dropped", rxsteer_user::drops_to_json(&found.report.drops));
    put("records_skipped", json!(found.skipped));
    put("errors", issues(&found.issues));
    put("interrupted", json!(found.interrupted));
    flow_counts(&mut object, &found.counts);
    format!("{:#}\n", Value::Object(object))
}

/// Remarks in addition to the figures.
pub(super) fn notes(found: &Found) -> Vec<String> {
    let mut notes: Vec<String> = found.issues.iter().map(ToString::to_string).collect();
    if found.counts.evicted > 0 {
        notes.push(format!(
            "{} records made room for others, so some flows are counted in several records, each \
             smaller than the flow; raise --max-flows to keep flows whole",
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

/// The text of a column in a row.
type Cell = fn(&Row<'_>) -> String;

/// The columns of the fields that distinguish flows.
fn key_columns(mask: &FlowMask) -> Vec<(&'static str, Cell)> {
    let has_src = mask.src_prefix(4) > 0 || mask.src_prefix(6) > 0 || mask.has_src_port();
    let has_dst = mask.dst_prefix(4) > 0 || mask.dst_prefix(6) > 0 || mask.has_dst_port();
    let columns: [(bool, &'static str, Cell); 3] = [
        (has_src, "source", |row| source_and_destination(row).0),
        (has_dst, "destination", |row| source_and_destination(row).1),
        (mask.has_protocol(), "protocol", |row| {
            row.protocol().map_or_else(String::new, protocol_name)
        }),
    ];
    let shown = columns.into_iter().filter(|(is_shown, ..)| *is_shown);
    shown.map(|(_, name, cell)| (name, cell)).collect()
}

/// Both ends of a flow; without ports where it has none.
fn source_and_destination(row: &Row<'_>) -> (String, String) {
    let [src, dst] = row.ends();
    let has_ports = [src, dst].iter().any(|end| end.port.is_some_and(|port| port != 0));
    let text = |end: End| end_text(End { port: end.port.filter(|_| has_ports), ..end });
    (text(src), text(dst))
}

/// `10.0.0.1:80`, `10.0.0.0/24`, `[2001:db8::1]:80`; `*:80` is port 80 of any address.
fn end_text(End { address, prefix, port }: End) -> String {
    let host = match address {
        None => "*".to_owned(),
        Some(address) => {
            let whole = if address.is_ipv4() { 32 } else { 128 };
            let network = if prefix < whole { format!("/{prefix}") } else { String::new() };
            format!("{address}{network}")
        }
    };
    match port {
        None => host,
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    }
}

/// `APSF`; `-` for none.
fn flags(flags: u8) -> String {
    let set = |bit: &usize| flags & (0x80 >> bit) != 0;
    let text: String = (0..8).filter(set).map(|bit| FLAGS[bit]).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// The CPUs that counted packets of a flow; CPUs without a block of their own are unknown.
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

    #[test]
    fn ends_are_hosts_networks_or_ports() {
        let text = |address: Option<&str>, prefix, port| {
            let address = address.map(|address| address.parse().unwrap());
            end_text(End { address, prefix, port })
        };
        assert_eq!(text(Some("10.0.0.1"), 32, Some(80)), "10.0.0.1:80");
        assert_eq!(text(Some("10.0.0.0"), 24, None), "10.0.0.0/24");
        assert_eq!(text(Some("10.0.0.0"), 24, Some(80)), "10.0.0.0/24:80");
        assert_eq!(text(Some("2001:db8::1"), 128, Some(80)), "[2001:db8::1]:80");
        assert_eq!(text(Some("2001:db8::"), 56, Some(80)), "[2001:db8::/56]:80");
        assert_eq!(text(Some("2001:db8::"), 56, None), "2001:db8::/56");
        assert_eq!(text(None, 0, Some(80)), "*:80");
        assert_eq!(text(None, 0, None), "*");
    }
}
