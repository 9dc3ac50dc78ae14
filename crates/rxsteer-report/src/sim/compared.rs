//! The text output for several policies: a table side by side, then the differences, then the advice.

use super::advice;
use super::figure;
use super::results::{Cell, Results, rules};
use super::table::{self as one, worth_showing};
use crate::lines::{field, fitted, lines, paragraphs};
use crate::table;
use rxsteer_sim::compare::Difference;
use rxsteer_sim::metric::{METRICS, Metric, Subject, Unit, subjects};
use std::fmt::Write;

/// All policies in one table, followed by their differences.
pub fn all(results: &Results) -> String {
    let mut text = format!("{}\n{}", side_by_side(results), busy(results));
    if !results.differences.is_empty() {
        let _ =
            write!(text, "\n{}\n{}", differences(results), paragraphs(&advice::legend(results)));
    }
    if let Some(advice) = advice::advice(results) {
        text.push('\n');
        field(&mut text, "advice", 13, &advice);
    }
    if let Some(assumed) = one::assumed(results) {
        field(&mut text, "assumed", 13, &assumed);
    }
    text
}

fn header<'a>(first: &'a str, cells: &'a [Cell]) -> Vec<&'a str> {
    std::iter::once(first).chain(cells.iter().map(|cell| cell.label.as_str())).collect()
}

fn side_by_side(results: &Results) -> String {
    let mut table = table::new(&header("", &results.cells), &[0]);
    for row in figures(results) {
        table.add_row(row);
    }
    lines(&table)
}

/// One row per figure: its name, and its value under each policy.
pub fn figures(results: &Results) -> Vec<Vec<String>> {
    let row = |(metric, of): (&'static Metric, Subject)| {
        let under = |cell: &Cell| figure::summary(metric.unit, cell.summary(metric, of).as_ref());
        let name = figure::name(results.scenario(), metric, of);
        std::iter::once(name).chain(results.cells.iter().map(under)).collect()
    };
    let mut rows: Vec<Vec<String>> = rows(results).into_iter().map(row).collect();
    for rule in rules(&results.cells) {
        let under = |cell: &Cell| figure::summary(Unit::Packets, cell.matched(rule).as_ref());
        let under = results.cells.iter().map(under);
        rows.push(std::iter::once(format!("rule {rule}")).chain(under).collect());
    }
    rows
}

/// The figures that are shown: those of the run that are not 0 everywhere, and those of each traffic that do not add up
/// to one of the run's. `reordered` is always shown.
fn rows(results: &Results) -> Vec<(&'static Metric, Subject)> {
    const LEFT_OUT: [&str; 5] = ["packets", "arrived", "processed", "under_way", "cpu_packets"];
    let has = |metric: &Metric, of| {
        results.cells.iter().any(|cell| {
            let mean = cell.summary(metric, of).map(|results| results.mean);
            mean.is_some_and(|mean| mean != 0.0)
        })
    };
    let mut rows = Vec::new();
    for metric in METRICS.iter().filter(|metric| !LEFT_OUT.contains(&metric.name)) {
        if has(metric, Subject::Run) || metric.name == "reordered" {
            rows.push((metric, Subject::Run));
            continue;
        }
        let traffics = subjects(results.scenario()).filter(|of| matches!(of, Subject::Traffic(_)));
        rows.extend(traffics.filter(|of| has(metric, *of)).map(|of| (metric, of)));
    }
    rows
}

/// How busy each CPU is under each policy.
fn busy(results: &Results) -> String {
    let (ids, left_out) = worth_showing(&results.cells);
    let mut table = table::new(&header("CPU busy", &results.cells), &[]);
    for id in ids {
        let busy = |cell: &Cell| {
            let metric = Metric::named("busy");
            let results = metric.and_then(|metric| cell.summary(metric, Subject::Cpu(id)));
            figure::summary(Unit::Share, results.as_ref())
        };
        let row = results.cells.iter().map(busy);
        table.add_row(std::iter::once(id.to_string()).chain(row).collect::<Vec<_>>());
    }
    format!("{}{left_out}", lines(&table))
}

fn differences(results: &Results) -> String {
    let title = format!("against {}", results.cells[0].label);
    let mut table =
        table::new(&[&title, "figure", "difference", "", "allowed", "p", "finding"], &[0, 1, 6]);
    for row in findings(results) {
        table.add_row(row);
    }
    fitted(table, &[vec![4], vec![5]])
}

/// One row per policy and headline figure: both values, the difference, the relative difference, what of it is allowed, its
/// probability, the finding.
pub(crate) fn findings(results: &Results) -> Vec<Vec<String>> {
    let row = |it: &Difference| {
        vec![
            results.cells[it.cell].label.clone(),
            figure::name(results.scenario(), it.metric, it.subject),
            figure::difference(it.metric.unit, it.paired.difference, it.paired.interval),
            figure::relative(it.relative()),
            figure::allowed(it.allowed.factor()),
            figure::probability(it.corrected),
            it.finding().words().to_owned(),
        ]
    };
    results.differences.iter().map(row).collect()
}
