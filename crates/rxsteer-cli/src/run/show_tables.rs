//! Tables that the status of every command has: CPUs and flows.

use crate::output::lines::fitted;
use crate::output::table::new;
use crate::words::plural;
use rxsteer_status::figures::{grouped, percent};
use rxsteer_status::{Command, CpuStatus, FlowShown};
use rxsteer_user::core::counters::LiveCounter;
use std::fmt::Write;

/// If there are more CPUs than this, those with nothing to show are left out.
pub(super) const MAX_ROWS: usize = 16;

/// The columns of the receiving side, after the CPU's number.
const CPU_COLUMNS: [(&str, LiveCounter); 9] = [
    ("received", LiveCounter::Received),
    ("by rule", LiveCounter::Matched),
    ("local", LiveCounter::Local),
    ("bound", LiveCounter::Bound),
    ("by hash", LiveCounter::Hashed),
    ("in slots", LiveCounter::InSlots),
    ("rfs", LiveCounter::Rfs),
    ("moves", LiveCounter::Moves),
    ("deferred", LiveCounter::Deferred),
];

/// A row for each CPU; with `rules`, also what they placed.
pub(super) fn cpus(cpus: &[CpuStatus], rules: bool) -> String {
    let is_unused = |counter: LiveCounter| cpus.iter().all(|cpu| cpu.counts.rx.get(counter) == 0);
    let is_shown = |(_, counter): &(&str, LiveCounter)| {
        *counter != LiveCounter::Matched || rules || !is_unused(*counter)
    };
    let columns: Vec<(&str, LiveCounter)> = CPU_COLUMNS.into_iter().filter(is_shown).collect();
    let mut header = vec!["CPU"];
    header.extend(columns.iter().map(|(name, _)| *name));
    header.extend(["delivered", "dropped"]);
    let mut table = new(&header, &[]);
    let is_idle = |cpu: &&CpuStatus| {
        cpu.counts.rx.get(LiveCounter::Received) == 0
            && cpu.counts.delivered == 0
            && cpu.counts.drops.total() == 0
    };
    let (idle, shown): (Vec<&CpuStatus>, Vec<&CpuStatus>) =
        cpus.iter().partition(|cpu| cpus.len() > MAX_ROWS && is_idle(cpu));
    for CpuStatus { cpu, counts, .. } in shown {
        let mut row = vec![cpu.to_string()];
        row.extend(columns.iter().map(|(_, counter)| grouped(counts.rx.get(*counter))));
        row.extend([counts.delivered, counts.drops.total()].map(grouped));
        table.add_row(row);
    }
    // First the counts that steered nothing, then those that the totals have, too.
    let which = |is_meant: &dyn Fn(LiveCounter) -> bool| -> Vec<usize> {
        let meant = (1..).zip(&columns).filter(|(_, (_, counter))| is_meant(*counter));
        meant.map(|(column, _)| column).collect()
    };
    let in_totals = [LiveCounter::Moves, LiveCounter::Deferred];
    let least = [
        which(&is_unused),
        which(&|counter| in_totals.contains(&counter)),
        which(&|counter| counter != LiveCounter::Received && !in_totals.contains(&counter)),
    ];
    let mut text = fitted(table, &least);
    if !idle.is_empty() {
        let _ = writeln!(text, " and {} with nothing", plural(idle.len(), "CPU"));
    }
    text
}

/// Moves of single flows are counted only in the kernel.
pub(super) fn flows(flows: &[FlowShown], command: Command) -> String {
    let mut header = vec!["flow", "packets", "bytes", "moves", "idle", "CPUs"];
    header.retain(|column| *column != "moves" || command == Command::Run);
    let mut table = new(&header, &[0, header.len() - 1]);
    for flow in flows {
        let mut row = vec![flow.flow.clone(), grouped(flow.packets), grouped(flow.bytes)];
        if command == Command::Run {
            row.push(grouped(u64::from(flow.moves)));
        }
        row.extend([format!("{:.1} s", flow.idle_s), shares(flow)]);
        table.add_row(row);
    }
    let column = |name: &str| header.iter().position(|of| *of == name).into_iter().collect();
    fitted(table, &["idle", "bytes", "moves"].map(column))
}

/// "0: 75 %, 2: 25 %"
fn shares(flow: &FlowShown) -> String {
    let share = |packets: u64| percent(packets, flow.packets);
    let cpus = flow.cpus.iter().map(|on| format!("{}: {}", on.cpu, share(on.packets)));
    let others = (flow.other_cpus != 0).then(|| format!("others: {}", share(flow.other_cpus)));
    cpus.chain(others).collect::<Vec<_>>().join(", ")
}
