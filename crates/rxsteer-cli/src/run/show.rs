//! The state of an instance, as text.

use super::losses::{losses, milliseconds};
use super::show_tables::{MAX_ROWS, cpus, flows};
use super::{show_rates, show_userspace};
use crate::output::lines::{field, fitted, lines, paragraphs};
use crate::output::table::new;
use crate::words::plural;
use rxsteer_status::figures::grouped;
use rxsteer_status::{
    BalanceShown, Command, Counts, CpuStatus, FlowRecordsShown, FlowStatisticsShown,
    InterfaceStatus, IpfixShown, Rates, SettingsShown, Status,
};
use rxsteer_user::core::Policy;
use rxsteer_user::core::counters::{LiveCounter, LiveCpuCounter};
use std::fmt::Write;
use std::time::Duration;

/// The number of moves of buckets that are shown.
const MAX_MOVES: usize = 5;

/// Interfaces, CPUs, totals; and the rates, if two readings showed them.
pub(crate) fn status(status: &Status, rates: Option<&Rates>) -> String {
    let running = Duration::from_secs(Duration::from_nanos(status.running_ns).as_secs());
    let name = match status.command {
        Command::Run => String::new(),
        command => format!(" {}", command.name()),
    };
    let mut text = format!(
        "rxsteer{name}, process {}, running for {}, socket {}\n",
        status.pid,
        humantime::format_duration(running),
        status.socket
    );
    text = paragraphs(&text);
    if status.command != Command::Run {
        return text + &show_userspace::status(status, rates);
    }
    // Writing to a String does not fail.
    text += &paragraphs(&status.settings.to_string());
    if let Some(bytes) = status.memory_bytes {
        let _ = writeln!(text, "BPF maps take {:.1} MiB", bytes as f64 / f64::from(1 << 20));
    }
    if status.changing {
        text.push_str(
            "a change is under way: some frames sent under the old settings are not delivered yet\n",
        );
    }
    if !status.guarded {
        text.push_str("order guard bypassed: this policy never moves a flow\n");
    }
    if let Some(why) = &status.threads_problem {
        text += &paragraphs(why);
    }
    if let Some(shown) = &status.balance {
        text.push_str(&balance(shown));
    }
    if status.settings.shadow {
        text.push_str(
            "shadow: every frame is processed as without rxsteer; the moves that the order guard would defer can't \
             be counted\n",
        );
    }
    text.push('\n');
    text.push_str(&interfaces(&status.interfaces, rates));
    text.push('\n');
    text.push_str(&cpus(&status.cpus, !status.settings.rules.is_empty()));
    text.push_str(&shadow(&status.cpus));
    text.push('\n');
    if let Some(rates) = rates {
        text.push_str(&show_rates::cpus(rates));
    }
    text.push_str(&threads(&status.cpus));
    text.push_str(&totals(status));
    text.push_str(&losses(status));
    if let Some(statistics) = &status.flow_statistics {
        text.push_str(&flow_packets(statistics));
    }
    if let Some(records) = &status.flow_records {
        text.push_str(&flow_records(records));
    }
    if !status.largest_flows.is_empty() {
        text.push('\n');
        text.push_str(&flows(&status.largest_flows, status.command));
    }
    if !status.events.is_empty() {
        text.push_str(&show_rates::events(&status.events));
    }
    if !status.ended_flows.is_empty() {
        text.push_str("\nFlows that ended last, within 5 minutes\n");
        text.push_str(&flows(&status.ended_flows, status.command));
    }
    text
}

/// Where buckets are, the last moves, and why none moves.
fn balance(shown: &BalanceShown) -> String {
    let held = shown.by_cpu.iter().map(|held| format!("CPU {} {}", held.cpu, held.buckets));
    let held: Vec<String> = held.take(MAX_ROWS).collect();
    let mut text = format!("{} buckets: {}", grouped(shown.buckets.into()), held.join(", "));
    if shown.by_cpu.len() > held.len() {
        let _ = write!(text, " and {} CPUs more", shown.by_cpu.len() - held.len());
    }
    let _ = writeln!(text, "; {} moved by load", grouped(shown.moved));
    for one in shown.latest.iter().take(MAX_MOVES) {
        let ago = Duration::from_millis(one.ago_ms / 100 * 100);
        let _ = write!(
            text,
            "  bucket {} from CPU {} to CPU {}, {} ago: {}",
            one.bucket,
            one.from,
            one.to,
            humantime::format_duration(ago),
            one.why
        );
        if let Some(hash) = one.large_flow {
            let _ = write!(text, "; most of it is the flow with hash {hash:#010x}");
        }
        text.push('\n');
    }
    if let Some(why) = &shown.problem {
        let _ = writeln!(text, "{why}");
    }
    text
}

fn interfaces(interfaces: &[InterfaceStatus], rates: Option<&Rates>) -> String {
    let mut header = vec![
        "interface",
        "state",
        "for",
        "tables",
        "received",
        "passed",
        "redirected",
        "malformed",
    ];
    if rates.is_some() {
        header.extend(["packets/s", "bits/s"]);
    }
    let mut table = new(&header, &[0, 1]);
    let mut notes = String::new();
    for known in interfaces {
        let counts = &known.counts;
        let mut row = vec![
            known.name.clone(),
            known.state.name().to_owned(),
            since(known),
            known.flow_tables.to_string(),
            grouped(counts.get(LiveCounter::Received)),
            grouped(counts.get(LiveCounter::Passed)),
            grouped(counts.get(LiveCounter::Redirected)),
            grouped(counts.get(LiveCounter::Malformed)),
        ];
        if let Some(rates) = rates {
            row.extend(show_rates::interface(rates, &known.name));
        }
        if let Some(why) = &known.why {
            field(&mut notes, &format!(" {}:", known.name), 4, why);
        }
        table.add_row(row);
    }
    fitted(table, &[vec![3], vec![7], vec![2]]) + &notes
}

/// How long an interface has been attached, to the second.
fn since(known: &InterfaceStatus) -> String {
    match Duration::from_nanos(known.running_ns).as_secs() {
        0 => "-".to_owned(),
        seconds => humantime::format_duration(Duration::from_secs(seconds)).to_string(),
    }
}

/// What each CPU would get, in shadow mode.
fn shadow(cpus: &[CpuStatus]) -> String {
    let all: u64 = cpus.iter().filter_map(|cpu| cpu.would).sum();
    let mut table = new(&["CPU", "would carry", "share"], &[]);
    for CpuStatus { cpu, would, .. } in cpus {
        if let Some(would) = would.filter(|_| all > 0) {
            let share = 100.0 * would as f64 / all as f64;
            table.add_row(vec![cpu.to_string(), grouped(would), format!("{share:.1} %")]);
        }
    }
    match all {
        0 => String::new(),
        _ => format!("\n{}", lines(&table)),
    }
}

/// The state of the rings' threads, on CPUs to which frames were sent.
fn threads(cpus: &[CpuStatus]) -> String {
    let seen = |cpu: &&CpuStatus| cpu.thread.get(LiveCpuCounter::ThreadRan) != 0;
    let header = ["CPU", "thread", "frames/s", "ran", "waited", "longest wait"];
    let mut table = new(&header, &[1]);
    for CpuStatus { cpu, thread, .. } in cpus.iter().filter(seen) {
        let time = |counter| milliseconds(thread.get(counter));
        table.add_row(vec![
            cpu.to_string(),
            thread.class.clone().unwrap_or_else(|| "unknown".to_owned()),
            grouped(thread.get(LiveCpuCounter::Rate)),
            time(LiveCpuCounter::ThreadRan),
            time(LiveCpuCounter::ThreadWaited),
            time(LiveCpuCounter::LongestWait),
        ]);
    }
    match cpus.iter().any(|cpu| seen(&cpu)) {
        true => format!("{}\n", lines(&table)),
        false => String::new(),
    }
}

fn totals(status: &Status) -> String {
    let counts = &status.totals;
    let drops = &counts.drops;
    let rx = |counter| grouped(counts.rx.get(counter));
    let mut text = String::new();
    let mut line = |name: &str, value: String| field(&mut text, name, 13, &value);
    let mut received = format!(
        "{} = {} passed + {} delivered + {} dropped",
        rx(LiveCounter::Received),
        rx(LiveCounter::Passed),
        grouped(counts.delivered),
        grouped(drops.total())
    );
    if counts.waiting > 0 {
        let _ = write!(received, " + {} under way", grouped(counts.waiting));
    }
    line("received", received);
    line(
        "dropped",
        format!(
            "{} by a full queue, {} out of memory, {} by the flow limit, {} redirect errors",
            grouped(drops.ring_full),
            grouped(drops.alloc),
            grouped(drops.flow_limit),
            grouped(drops.redirect_errors)
        ),
    );
    let (redirected, batches) =
        (counts.rx.get(LiveCounter::Redirected), counts.rx.get(LiveCounter::Batches));
    let mean = if batches == 0 { 0.0 } else { redirected as f64 / batches as f64 };
    line(
        "redirected",
        format!("{} in {} lists, {mean:.1} a list", grouped(redirected), grouped(batches)),
    );
    line(
        "order",
        format!("{} moves, {} packets deferred", rx(LiveCounter::Moves), rx(LiveCounter::Deferred)),
    );
    line(
        "flows",
        format!(
            "{} counted, {} of them ended",
            rx(LiveCounter::Flows),
            rx(LiveCounter::FlowsEnded)
        ),
    );
    line(
        "not steered",
        format!(
            "{} not IP, {} malformed, {} without headroom for a number, {} without a complete checksum",
            rx(LiveCounter::NotIp),
            rx(LiveCounter::Malformed),
            rx(LiveCounter::Unnumbered),
            rx(LiveCounter::PartialChecksums)
        ),
    );
    if let Some(passed) = passed_otherwise(counts, &status.settings) {
        line(
            "passed",
            format!(
                "{} for no reason above: received while rxsteer attached, detached or changed settings, without a queue of \
                 their CPU, or left on their CPU by a setting",
                grouped(passed)
            ),
        );
    }
    text
}

/// Passed frames that no other line explains.
fn passed_otherwise(counts: &Counts, settings: &SettingsShown) -> Option<u64> {
    // In these cases all frames pass.
    if settings.shadow || settings.policy == Policy::None.to_string() {
        return None;
    }
    let reasons = [
        LiveCounter::NotIp,
        LiveCounter::Malformed,
        LiveCounter::Unnumbered,
        LiveCounter::PartialChecksums,
    ];
    let explained: u64 = reasons.map(|counter| counts.rx.get(counter)).iter().sum();
    let passed = counts.rx.get(LiveCounter::Passed).saturating_sub(explained);
    (passed > 0).then_some(passed)
}

/// Totals of the packets that were counted for flows.
fn flow_packets(at: &FlowStatisticsShown) -> String {
    let lost = match at.records_lost {
        0 => String::new(),
        lost => format!("; the last counts of {} were not kept one by one", plural_of(lost)),
    };
    let mut text = String::new();
    let what = format!(
        "{} of {} listed, {} of flows that ended, {} cleared, {} without room{lost}",
        grouped(at.packets),
        plural_of(at.flows),
        grouped(at.ended),
        grouped(at.cleared),
        grouped(at.refused)
    );
    field(&mut text, "flow packets", 13, &what);
    text
}

/// The counts of flow records.
fn flow_records(at: &FlowRecordsShown) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| field(&mut text, name, 13, &value);
    line(
        "flow records",
        format!(
            "{} of {} packets, {} of {} packets lost",
            grouped(at.records),
            grouped(at.packets),
            grouped(at.records_lost),
            grouped(at.packets_lost)
        ),
    );
    if let Some(files) = &at.files {
        let problem = files.problem.as_ref();
        let problem = problem.map(|problem| format!("; the last problem: {problem}"));
        line(
            "record files",
            format!(
                "{} complete, {} records written, {} lost{}",
                grouped(files.complete),
                grouped(files.records),
                grouped(files.records_lost),
                problem.unwrap_or_default()
            ),
        );
    }
    if let Some(IpfixShown { collector, records, messages, records_lost }) = &at.ipfix {
        line(
            "IPFIX",
            format!(
                "{} records in {} messages to {collector}, {} refused",
                grouped(*records),
                grouped(*messages),
                grouped(*records_lost)
            ),
        );
    }
    text
}

fn plural_of(flows: u64) -> String {
    plural(usize::try_from(flows).unwrap_or(usize::MAX), "flow")
}
