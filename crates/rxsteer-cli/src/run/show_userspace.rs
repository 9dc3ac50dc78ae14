//! The status of `rxsteer live` and `rxsteer replay` as text, with only what applies to user space.

use super::show_rates;
use super::show_tables::{cpus, flows};
use crate::output::lines::{field, fitted};
use crate::output::table::new;
use rxsteer_status::figures::grouped;
use rxsteer_status::{Command, Rates, Status};
use rxsteer_user::core::counters::LiveCounter;
use std::fmt::Write;

/// The status after its first line.
pub(super) fn status(status: &Status, rates: Option<&Rates>) -> String {
    let mut text = settings(status);
    if let Some(share) = status.input_share {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{:.0} % of the input is read", (share * 100.0).floor());
    }
    if status.changing {
        text.push_str(
            "a change is under way: some frames sent under the old settings are not delivered yet\n",
        );
    }
    text.push('\n');
    text.push_str(&interfaces(status, rates));
    text.push('\n');
    text.push_str(&cpus(&status.cpus, !status.settings.rules.is_empty()));
    text.push('\n');
    if let Some(rates) = rates {
        text.push_str(&show_rates::cpus(rates));
    }
    text.push_str(&totals(status));
    text.push_str(&remedies(status));
    if !status.largest_flows.is_empty() {
        text.push('\n');
        text.push_str(&flows(&status.largest_flows, status.command));
    }
    text
}

/// The settings in one line.
fn settings(status: &Status) -> String {
    let settings = &status.settings;
    let source = match settings.mode.as_str() {
        "packet" => "by packet sockets",
        "xdp" => "by AF_XDP sockets",
        "synthetic" => "synthetic frames",
        _ => "from captures",
    };
    let mut text = format!(
        "policy {}, CPUs {}, {source}, backlog {}",
        settings.policy, settings.cpus, settings.queue_size
    );
    let rest = [
        settings.rps_maps.iter().map(|map| format!("map {map}")).collect::<Vec<_>>().join(", "),
        settings.rfs_cpus.as_ref().map_or_else(String::new, |cpus| format!("rfs to CPUs {cpus}")),
        settings.offline.as_ref().map_or_else(String::new, |cpus| format!("CPU {cpus} offline")),
        settings.flow_limit.map_or_else(String::new, |buckets| format!("flow limit {buckets}")),
    ];
    for part in rest.iter().filter(|part| !part.is_empty()) {
        let _ = write!(text, ", {part}");
    }
    text.push('\n');
    text
}

fn interfaces(status: &Status, rates: Option<&Rates>) -> String {
    let is_live = status.command == Command::Live;
    let (mut header, left): (Vec<&str>, &[_]) = match is_live {
        true => (vec!["interface", "state", "received", "malformed", "kernel drops"], &[0, 1]),
        false => (vec!["input", "received", "malformed"], &[0]),
    };
    if rates.is_some() {
        header.extend(["packets/s", "bits/s"]);
    }
    let mut table = new(&header, left);
    for known in &status.interfaces {
        let mut row = vec![known.name.clone()];
        if is_live {
            row.push(known.state.name().to_owned());
        }
        let counters = [LiveCounter::Received, LiveCounter::Malformed];
        row.extend(counters.map(|counter| grouped(known.counts.get(counter))));
        row.extend(known.kernel_drops.map(grouped));
        if let Some(rates) = rates {
            row.extend(show_rates::interface(rates, &known.name));
        }
        table.add_row(row);
    }
    fitted(table, &[])
}

fn totals(status: &Status) -> String {
    let (counts, drops) = (&status.totals, &status.totals.drops);
    let rx = |counter| grouped(counts.rx.get(counter));
    let mut text = String::new();
    let mut line = |name: &str, value: String| field(&mut text, name, 13, &value);
    let mut received = format!(
        "{} = {} delivered + {} dropped",
        rx(LiveCounter::Received),
        grouped(counts.delivered),
        grouped(drops.total())
    );
    if counts.waiting > 0 {
        let _ = write!(received, " + {} waiting", grouped(counts.waiting));
    }
    line("received", received);
    let reasons = [
        (drops.ring_full, "by a full backlog"),
        (drops.alloc, "out of memory"),
        (drops.flow_limit, "by the flow limit"),
        (drops.worker_lost, "with a worker that ended"),
        (drops.interface_removed, "of an interface that is gone"),
        (drops.tx_full, "without room to be sent on"),
    ];
    let reasons = reasons.iter().filter(|(count, _)| *count > 0);
    let reasons: Vec<String> =
        reasons.map(|(count, why)| format!("{} {why}", grouped(*count))).collect();
    if !reasons.is_empty() {
        line("dropped", reasons.join(", "));
    }
    let (queued, lists) =
        (counts.rx.get(LiveCounter::Redirected), counts.rx.get(LiveCounter::Batches));
    let mean = if lists == 0 { 0.0 } else { queued as f64 / lists as f64 };
    line("queued", format!("{} in {} lists, {mean:.1} a list", grouped(queued), grouped(lists)));
    let reordered = status
        .reordered
        .map_or_else(String::new, |reordered| format!("{} reordered, ", grouped(reordered)));
    let (moves, deferred) = (rx(LiveCounter::Moves), rx(LiveCounter::Deferred));
    line("order", format!("{reordered}{moves} moves, {deferred} packets deferred"));
    if status.settings.flow_stats {
        let (flows, over) = (rx(LiveCounter::Flows), rx(LiveCounter::FlowsEnded));
        line("flows", format!("{flows} counted, {over} of them ended"));
    }
    let (not_ip, malformed) = (rx(LiveCounter::NotIp), rx(LiveCounter::Malformed));
    line("not steered", format!("{not_ip} not IP, {malformed} malformed"));
    text
}

/// What to do about lost packets.
fn remedies(status: &Status) -> String {
    let mut text = String::new();
    if status.totals.drops.ring_full > 0 {
        let options = match status.command {
            Command::Live => "--max-backlog, or name more --cpus",
            _ => "--max-backlog, name more --cpus, or use --on-full wait",
        };
        field(&mut text, "", 13, &format!("-> backlogs were full: next time raise {options}"));
    }
    if status.interfaces.iter().any(|known| known.kernel_drops.is_some_and(|drops| drops > 0)) {
        field(
            &mut text,
            "",
            13,
            "-> the kernel dropped packets, since the ring was full: next time raise --ring-size, or give \
             receiving a CPU of its own (--rx-cpus)",
        );
    }
    text
}
