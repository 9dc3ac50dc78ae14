//! The text output for one policy: its traffic, its CPUs, its totals.

use super::figure;
use super::results::{self, Cell, Results};
use crate::lines::{field, lines, paragraphs};
use crate::table::{self, duration, steered_by};
use rxsteer_sim::RunResult;
use rxsteer_sim::costs::COSTS;
use rxsteer_sim::metric::{Metric, Subject, Unit};
use rxsteer_status::figures::grouped;
use rxsteer_status::figures::plural;
use std::fmt::Write;
use std::time::Duration;

/// The most rows of CPUs; further CPUs are summed up.
const MAX_ROWS: usize = 16;

/// What was simulated, in two lines.
pub fn head(results: &Results) -> String {
    let scenario = results.scenario();
    let measured = Duration::from_nanos(scenario.measured_ns());
    let last = results.first_seed.wrapping_add(u64::from(results.seeds) - 1);
    let seeds = match results.seeds {
        1 => format!("seed {last}"),
        _ => format!(
            "seeds {} to {last}; ± is the 95 % confidence interval of the mean",
            results.first_seed
        ),
    };
    let mut text = format!("{}: {}\n", results.name, scenario.title);
    let settings = results.settings.iter().fold(String::new(), |all, one| format!("{all}, {one}"));
    let _ = writeln!(
        text,
        "{}, {}, {}, {} measured{settings}; {seeds}",
        plural(scenario.cpus.len(), "CPU"),
        plural(scenario.nics.len(), "card"),
        plural(scenario.nics.iter().map(|nic| nic.irq_cpus.len()).sum(), "RX queue"),
        duration(measured)
    );
    if results.interrupted {
        let done = results.cells.iter().map(|cell| cell.done().to_string());
        let done: Vec<String> = done.collect();
        let _ = writeln!(
            text,
            "interrupted: {} of {} seeds are complete",
            done.join(", "),
            results.seeds
        );
        if results.is_unfinished() {
            for cell in results.cells.iter().filter(|cell| !cell.runs.is_empty()) {
                let time = |run: &RunResult| {
                    let measured = duration(Duration::from_nanos(run.measured_ns));
                    format!("seed {} after {measured}", run.seed)
                };
                let times: Vec<String> = cell.runs.iter().map(time).collect();
                let _ = writeln!(text, "abandoned under {}: {}", cell.label, times.join(", "));
            }
        }
    }
    paragraphs(&text)
}

/// One policy in detail.
pub fn one(results: &Results) -> String {
    let cell = &results.cells[0];
    let mut text = format!("{}\n{}\n{}\n", traffic(cell), latency(cell), cpus(cell));
    if let Some(rules) = rules(cell) {
        let _ = writeln!(text, "{rules}");
    }
    totals(&mut text, cell);
    if let Some(assumed) = assumed(results) {
        field(&mut text, "assumed", 13, &assumed);
    }
    text
}

/// How many costs were not measured; `None` without any.
pub(crate) fn assumed(results: &Results) -> Option<String> {
    let assumed = results.assumed.len();
    (assumed > 0).then(|| {
        format!("{assumed} of {} costs; --sensitivity shows which of them matter here", COSTS.len())
    })
}

fn shown(cell: &Cell, name: &str, of: Subject) -> String {
    let Some(metric) = Metric::named(name) else { return "-".to_owned() };
    figure::summary(metric.unit, cell.summary(metric, of).as_ref())
}

/// A table with one row per traffic, and one column for each metric that has values.
fn by_traffic(cell: &Cell, columns: &[(&str, &str)]) -> String {
    let traffics = || (0..cell.scenario.traffic.len()).map(Subject::Traffic);
    let has = |name: &str| {
        let metric = Metric::named(name);
        metric.is_some_and(|metric| traffics().any(|of| cell.summary(metric, of).is_some()))
    };
    let columns: Vec<&(&str, &str)> = columns.iter().filter(|(name, _)| has(name)).collect();
    if columns.is_empty() {
        return String::new();
    }
    let header: Vec<&str> = ["traffic"].into_iter().chain(columns.iter().map(|it| it.1)).collect();
    let mut table = table::new(&header, &[0]);
    for (traffic, of) in cell.scenario.traffic.iter().zip(traffics()) {
        let figures = columns.iter().map(|(name, _)| shown(cell, name, of));
        table.add_row(std::iter::once(traffic.name.clone()).chain(figures).collect::<Vec<_>>());
    }
    lines(&table)
}

fn traffic(cell: &Cell) -> String {
    by_traffic(
        cell,
        &[
            ("bits_per_second", "throughput"),
            ("packets_per_second", "packets"),
            ("transactions_per_second", "transactions"),
            ("fairness", "fairness"),
            ("lost", "lost"),
        ],
    )
}

fn latency(cell: &Cell) -> String {
    by_traffic(
        cell,
        &[
            ("latency_mean_ns", "latency"),
            ("latency_std_dev_ns", "std dev"),
            ("latency_p50_ns", "p50"),
            ("latency_p90_ns", "p90"),
            ("latency_p99_ns", "p99"),
            ("latency_p999_ns", "p99.9"),
        ],
    )
}

fn cpus(cell: &Cell) -> String {
    let mut table =
        table::new(&["CPU", "busy", "receiving", "protocol", "application", "packets"], &[]);
    let (ids, left_out) = worth_showing(std::slice::from_ref(cell));
    for id in ids {
        let of = Subject::Cpu(id);
        let share = |name| {
            let results = Metric::named(name).and_then(|metric| cell.summary(metric, of));
            figure::summary(Unit::Share, results.as_ref())
        };
        let shares = ["busy", "receiving", "protocol", "application"].map(share);
        let mut row = vec![id.to_string()];
        row.extend(shares);
        row.push(grouped(cell.mean("cpu_packets", of).round() as u64));
        table.add_row(row);
    }
    format!("{}{left_out}", lines(&table))
}

/// The packets that each rule before the policy matched, and those that matched none; `None` without rules.
fn rules(cell: &Cell) -> Option<String> {
    let mut table = table::new(&["rule", "packets"], &[0]);
    let rules = results::rules(std::slice::from_ref(cell));
    for rule in &rules {
        let packets = figure::summary(Unit::Packets, cell.matched(rule).as_ref());
        table.add_row([rule.to_string(), packets]);
    }
    table.add_row(["no rule".to_owned(), shown(cell, "unmatched", Subject::Run)]);
    (!rules.is_empty()).then(|| lines(&table))
}

/// The ids of the CPUs to show, and a line about the others. If there are many CPUs, those are shown that were busiest
/// in any cell.
pub(crate) fn worth_showing(cells: &[Cell]) -> (Vec<usize>, String) {
    let busy = |id: usize| {
        let of_cells = cells.iter().map(|cell| cell.mean("busy", Subject::Cpu(id)));
        of_cells.fold(0.0, f64::max)
    };
    let mut ids: Vec<(usize, f64)> =
        (0..cells[0].scenario.cpus.len()).map(|id| (id, busy(id))).collect();
    ids.sort_by(|a, b| b.1.total_cmp(&a.1));
    let others = ids.split_off(ids.len().min(MAX_ROWS));
    let mut ids: Vec<usize> = ids.into_iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    let Some((_, most)) = others.first() else { return (ids, String::new()) };
    let most = figure::with_interval(Unit::Share, *most, None);
    let others = plural(others.len(), "other CPU");
    (
        ids,
        format!(" and {others}, busy at most {most} of the time; --json and --report show them\n"),
    )
}

fn totals(text: &mut String, cell: &Cell) {
    let run = |name| shown(cell, name, Subject::Run);
    let mut line = |name: &str, value: String| field(text, name, 13, &value);
    line("policy", format!("{}, CPUs {}", cell.label, cell.scenario.steering.cpus));
    line("CPU time", format!("{} CPUs busy, {} a packet", run("busy"), run("cpu_per_packet_ns")));
    line("imbalance", format!("{} (busiest CPU over the average)", run("imbalance")));
    line(
        "frames",
        format!(
            "{} arrived, {} processed, {} under way at the end",
            run("arrived"),
            run("processed"),
            run("under_way")
        ),
    );
    line("refused", format!("{} of the frames{}", run("refused"), by_reason(cell)));
    let behind = reasons(cell, &["tx_full", "socket_full"]);
    if !behind.is_empty() {
        line("lost later", format!("{behind}, after processing"));
    }
    line("order", format!("{} reordered, {} moves", run("reordered"), run("moves")));
    line("wake-ups", format!("{}; {} interrupts", run("kicks"), run("interrupts")));
    let mechanisms = mechanisms(cell);
    if !mechanisms.is_empty() {
        line("steered by", mechanisms);
    }
}

/// Why frames were refused, if any were.
fn by_reason(cell: &Cell) -> String {
    let names = [
        "ring_full",
        "backlog_full",
        "no_buffer",
        "worker_lost",
        "interface_removed",
        "flow_limit",
    ];
    let parts = reasons(cell, &names);
    if parts.is_empty() { parts } else { format!(": {parts}") }
}

/// The named counts that are not 0.
fn reasons(cell: &Cell, names: &[&str]) -> String {
    let counted = names.iter().filter(|name| cell.mean(name, Subject::Run) > 0.0);
    let parts = counted
        .map(|name| format!("{} {}", shown(cell, name, Subject::Run), name.replace('_', " ")));
    parts.collect::<Vec<String>>().join(", ")
}

/// What steered the frames of a cell.
fn mechanisms(cell: &Cell) -> String {
    steered_by(|counter| {
        let is_counted = cell.mean(counter.name(), Subject::Run) > 0.0;
        is_counted.then(|| shown(cell, counter.name(), Subject::Run))
    })
}
