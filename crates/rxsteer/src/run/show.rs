//! The state of an instance, for people.

use super::flows_shown::{FlowShown, FlowWhere, Place};
use super::protocol::{Counts, CpuStatus, InterfaceStatus, SettingsShown, Status};
use crate::output::table::{grouped, new, percent};
use crate::words::plural;
use rxsteer_user::core::counters::LiveCounter;
use std::fmt::Write;
use std::time::Duration;

/// CPUs with nothing to show are left out above so many.
const MOST_ROWS: usize = 16;

/// Interfaces, CPUs, totals.
pub(crate) fn status(status: &Status) -> String {
    let running = Duration::from_secs(Duration::from_nanos(status.running_ns).as_secs());
    let mut text = format!(
        "rxsteer, process {}, running for {}, socket {}\n",
        status.pid,
        humantime::format_duration(running),
        status.socket
    );
    // Writing to a String does not fail.
    let _ = writeln!(text, "{}", settings(&status.settings));
    if status.changing {
        text.push_str(
            "a change is under way: what was sent by the old settings is not all delivered yet\n",
        );
    }
    if !status.guarded {
        text.push_str("frames go unguarded: this policy changes its mind about no flow\n");
    }
    if status.settings.shadow {
        text.push_str(
            "shadow: every frame goes where it would have gone; what the order guard would refuse can't be counted\n",
        );
    }
    text.push('\n');
    text.push_str(&interfaces(&status.interfaces));
    text.push('\n');
    text.push_str(&cpus(&status.cpus));
    text.push('\n');
    text.push_str(&totals(&status.totals));
    if !status.largest_flows.is_empty() {
        text.push('\n');
        text.push_str(&flows(&status.largest_flows));
    }
    text
}

/// The settings in a line.
pub(crate) fn settings(settings: &SettingsShown) -> String {
    let mut text = format!(
        "policy {}, CPUs {}, {} mode, queue size {}",
        settings.policy, settings.cpus, settings.mode, settings.queue_size
    );
    if let Some(offline) = &settings.offline {
        let _ = write!(text, ", CPU {offline} offline");
    }
    if let Some(buckets) = settings.flow_limit {
        let _ = write!(text, ", flow limit {buckets}");
    }
    for (holds, word) in
        [(settings.shadow, "shadow"), (!settings.order_guard, "WITHOUT ORDER GUARD")]
    {
        if holds {
            let _ = write!(text, ", {word}");
        }
    }
    text
}

fn interfaces(interfaces: &[InterfaceStatus]) -> String {
    let header =
        ["interface", "state", "tables", "received", "passed", "redirected", "malformed", ""];
    let mut table = new(&header, &[0, 1, 7]);
    for known in interfaces {
        let counts = &known.counts;
        table.add_row(vec![
            known.name.clone(),
            known.state.name().to_owned(),
            known.flow_tables.to_string(),
            grouped(counts.get(LiveCounter::Received)),
            grouped(counts.get(LiveCounter::Passed)),
            grouped(counts.get(LiveCounter::Redirected)),
            grouped(counts.get(LiveCounter::Malformed)),
            known.why.clone().unwrap_or_default(),
        ]);
    }
    lines(&table)
}

/// What is shown of the receiving side, after the CPU's number.
const CPU_COLUMNS: [LiveCounter; 8] = [
    LiveCounter::Received,
    LiveCounter::Local,
    LiveCounter::Bound,
    LiveCounter::Hashed,
    LiveCounter::InSlots,
    LiveCounter::Wished,
    LiveCounter::Moves,
    LiveCounter::Held,
];

fn cpus(cpus: &[CpuStatus]) -> String {
    let header = [
        "CPU",
        "received",
        "local",
        "bound",
        "by hash",
        "in slots",
        "by wish",
        "moves",
        "held",
        "delivered",
        "dropped",
    ];
    let mut table = new(&header, &[]);
    let is_idle = |cpu: &&CpuStatus| {
        cpu.counts.rx.get(LiveCounter::Received) == 0
            && cpu.counts.delivered == 0
            && cpu.counts.drops.total() == 0
    };
    let (idle, shown): (Vec<&CpuStatus>, Vec<&CpuStatus>) =
        cpus.iter().partition(|cpu| cpus.len() > MOST_ROWS && is_idle(cpu));
    for CpuStatus { cpu, counts } in shown {
        let mut row = vec![cpu.to_string()];
        row.extend(CPU_COLUMNS.map(|counter| grouped(counts.rx.get(counter))));
        row.extend([counts.delivered, counts.drops.total()].map(grouped));
        table.add_row(row);
    }
    let mut text = lines(&table);
    if !idle.is_empty() {
        let _ = writeln!(text, " and {} with nothing", plural(idle.len(), "CPU"));
    }
    text
}

fn totals(counts: &Counts) -> String {
    let drops = &counts.drops;
    let rx = |counter| grouped(counts.rx.get(counter));
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<13}{value}");
    };
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
            "{} by a full queue, {} for want of memory, {} by the flow limit, {} that could not be handed over",
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
        format!("{} moves, {} packets held", rx(LiveCounter::Moves), rx(LiveCounter::Held)),
    );
    line(
        "flows",
        format!("{} counted, {} of them over", rx(LiveCounter::Flows), rx(LiveCounter::FlowsEnded)),
    );
    line(
        "not steered",
        format!(
            "{} not IP, {} malformed, {} without room for a number",
            rx(LiveCounter::NotIp),
            rx(LiveCounter::Malformed),
            rx(LiveCounter::Unnumbered)
        ),
    );
    text
}

fn flows(flows: &[FlowShown]) -> String {
    let mut table = new(&["flow", "packets", "bytes", "moves", "idle", "CPUs"], &[0, 5]);
    for flow in flows {
        table.add_row(vec![
            flow.flow.clone(),
            grouped(flow.packets),
            grouped(flow.bytes),
            grouped(u64::from(flow.moves)),
            format!("{:.1} s", flow.idle_s),
            shares(flow),
        ]);
    }
    lines(&table)
}

/// "0: 75 %, 2: 25 %"
fn shares(flow: &FlowShown) -> String {
    let share = |packets: u64| percent(packets, flow.packets);
    let cpus = flow.cpus.iter().map(|on| format!("{}: {}", on.cpu, share(on.packets)));
    cpus.collect::<Vec<_>>().join(", ")
}

/// Where a flow is and why.
pub(crate) fn whereabouts(at: &FlowWhere) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<13}{value}");
    };
    line("flow", at.flow.clone());
    line("policy", format!("{}, CPUs {}", at.policy, at.cpus));
    line("wanted on", wanted(&at.wanted));
    match at.wish {
        Some(cpu) => line("wish", format!("its application consumes data on CPU {cpu}")),
        None => line("wish", "nobody said where its application runs".to_owned()),
    }
    for slot in &at.sparse {
        line("sparse slot", format!("on CPU {}, as a flow of {}", slot.cpu, slot.interface));
    }
    for slot in &at.slots {
        let state = match slot.delivered {
            true => "is delivered: the next one may go elsewhere",
            false => "is under way: the next one follows it",
        };
        line(
            "flow table",
            format!(
                "{} RX queue {}: the slot's last packet went from CPU {} to CPU {} and {state}",
                slot.interface, slot.queue, slot.received_on, slot.cpu
            ),
        );
    }
    if !at.guarded {
        let why = "not needed: the policy changes its mind about no flow";
        line("flow table", why.to_owned());
    } else if at.slots.is_empty() {
        line("flow table", "none of its packets is known".to_owned());
    }
    match at.flows.is_empty() {
        true => line("statistics", "none: not seen, over, or not counted".to_owned()),
        false => {
            text.push('\n');
            text.push_str(&flows(&at.flows));
        }
    }
    text
}

fn wanted(place: &Place) -> String {
    let cpu = place.cpu.map_or("the CPU that receives it".to_owned(), |cpu| format!("CPU {cpu}"));
    match (place.rule.as_str(), place.place) {
        ("none", _) => format!("{cpu}: the policy leaves every packet there"),
        ("bound", _) => "the CPU that its RX queue is bound to".to_owned(),
        ("wish", _) => format!("{cpu}: its application runs there"),
        ("slot", _) => format!("{cpu}: it holds a sparse slot there"),
        (_, Some((at, of))) => {
            format!("{cpu}: the hash picks place {at} of the {of} in the CPU map")
        }
        _ => cpu,
    }
}

fn lines(table: &comfy_table::Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
