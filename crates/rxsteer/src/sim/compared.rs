//! What a person reads of several policies: side by side, then the differences, then advice.

use super::advice;
use super::figure::{self, lines};
use super::table::worth_showing;
use super::told::{Cell, Told};
use crate::output::table;
use rxsteer_sim::compare::Difference;
use rxsteer_sim::metric::{METRICS, Metric, Subject, Unit, subjects};
use std::fmt::Write;

/// All policies in one table, with what distinguishes them.
pub(crate) fn all(told: &Told) -> String {
    let mut text = format!("{}\n{}", side_by_side(told), busy(told));
    if !told.differences.is_empty() {
        let _ = write!(text, "\n{}\n{}\n", differences(told), advice::legend(told));
    }
    if let Some(advice) = advice::advice(told) {
        let _ = writeln!(text, "\nadvice       {advice}");
    }
    text
}

fn header<'a>(first: &'a str, cells: &'a [Cell]) -> Vec<&'a str> {
    std::iter::once(first).chain(cells.iter().map(|cell| cell.label.as_str())).collect()
}

fn side_by_side(told: &Told) -> String {
    let mut table = table::new(&header("", &told.cells), &[0]);
    for row in figures(told) {
        table.add_row(row);
    }
    lines(&table)
}

/// A row per figure: its name, and what it is under each policy.
pub(crate) fn figures(told: &Told) -> Vec<Vec<String>> {
    let row = |(metric, of): (&'static Metric, Subject)| {
        let under = |cell: &Cell| figure::summary(metric.unit, cell.summary(metric, of).as_ref());
        let name = figure::name(told.scenario(), metric, of);
        std::iter::once(name).chain(told.cells.iter().map(under)).collect()
    };
    rows(told).into_iter().map(row).collect()
}

/// The figures that are shown: those of the run that are not 0 everywhere, and each traffic's that add
/// up to none of the run's. `reordered` is shown in any case.
fn rows(told: &Told) -> Vec<(&'static Metric, Subject)> {
    const LEFT_OUT: [&str; 5] = ["packets", "arrived", "processed", "under_way", "cpu_packets"];
    let has = |metric: &Metric, of| {
        told.cells.iter().any(|cell| {
            let mean = cell.summary(metric, of).map(|told| told.mean);
            mean.is_some_and(|mean| mean != 0.0)
        })
    };
    let mut rows = Vec::new();
    for metric in METRICS.iter().filter(|metric| !LEFT_OUT.contains(&metric.name)) {
        if has(metric, Subject::Run) || metric.name == "reordered" {
            rows.push((metric, Subject::Run));
            continue;
        }
        let traffics = subjects(told.scenario()).filter(|of| matches!(of, Subject::Traffic(_)));
        rows.extend(traffics.filter(|of| has(metric, *of)).map(|of| (metric, of)));
    }
    rows
}

/// How busy each CPU is under each policy.
fn busy(told: &Told) -> String {
    let (ids, left_out) = worth_showing(&told.cells);
    let mut table = table::new(&header("CPU busy", &told.cells), &[]);
    for id in ids {
        let busy = |cell: &Cell| {
            let metric = Metric::named("busy");
            let told = metric.and_then(|metric| cell.summary(metric, Subject::Cpu(id)));
            figure::summary(Unit::Share, told.as_ref())
        };
        let row = told.cells.iter().map(busy);
        table.add_row(std::iter::once(id.to_string()).chain(row).collect::<Vec<_>>());
    }
    format!("{}{left_out}", lines(&table))
}

fn differences(told: &Told) -> String {
    let title = format!("against {}", told.cells[0].label);
    let mut table = table::new(&[&title, "figure", "difference", "", "p", "finding"], &[0, 1, 5]);
    for row in findings(told) {
        table.add_row(row);
    }
    lines(&table)
}

/// A row per policy and headline figure: both, the difference, relatively, its probability, the finding.
pub(crate) fn findings(told: &Told) -> Vec<Vec<String>> {
    let row = |it: &Difference| {
        vec![
            told.cells[it.cell].label.clone(),
            figure::name(told.scenario(), it.metric, it.subject),
            figure::difference(it.metric.unit, it.paired.difference, it.paired.interval),
            figure::relative(it.relative()),
            figure::probability(it.corrected),
            it.finding().words().to_owned(),
        ]
    };
    told.differences.iter().map(row).collect()
}
