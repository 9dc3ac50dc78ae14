//! The tables and lists of a report, as text, for Markdown and HTML.

use rxsteer_lab::experiment::{Against, Figure, Metric, Published, Report, Row};

/// A table.
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The loads, in the order of the report.
pub(super) fn loads(report: &Report) -> Vec<&'static str> {
    let mut loads: Vec<&str> = report.rows.iter().map(|row| row.load).collect();
    loads.dedup();
    loads
}

/// The rows of a load.
pub(super) fn rows_of<'a>(report: &'a Report, load: &str) -> Vec<&'a Row> {
    report.rows.iter().filter(|row| row.load == load).collect()
}

/// The methods under one load, and their figures.
pub(super) fn of_load(report: &Report, rows: &[&Row]) -> Table {
    let headline = rows.first().map_or("", |row| row.headline);
    let metrics = report.metrics.iter().map(|Metric { name, unit, .. }| format!("{name}, {unit}"));
    let header = ["method".to_owned()]
        .into_iter()
        .chain(metrics)
        .chain([
            format!("{headline} to {}", String::from(report.baseline)),
            "CPUs busy, %".to_owned(),
        ])
        .collect();
    let cells = |row: &&Row| {
        let figure =
            |metric: &Metric| row.metrics.get(metric.name).map_or("–".to_owned(), interval);
        let busy: Vec<String> =
            row.cpus.iter().map(|cpu| format!("{:.0}", 100.0 - cpu.idle)).collect();
        [String::from(row.method)]
            .into_iter()
            .chain(report.metrics.iter().map(figure))
            .chain([row.against.as_ref().map_or("–".to_owned(), against), busy.join(" ")])
            .collect()
    };
    Table { header, rows: rows.iter().map(cells).collect() }
}

/// The published figures with the measured ones; `None` if there are none.
pub(super) fn published(report: &Report) -> Option<Table> {
    let text = |value: Option<f64>, of: fn(f64) -> String| value.map_or("–".to_owned(), of);
    let cells = |row: &Published| {
        vec![
            row.what.clone(),
            row.metric.to_owned(),
            text(row.published, number),
            text(row.published_ratio, ratio),
            format!("{}, {}", String::from(row.method), row.load),
            text(row.measured, number),
            text(row.measured_ratio, ratio),
        ]
    };
    let header = ["published", "metric", "figure", "ratio", "here", "figure here", "ratio here"];
    (!report.published.is_empty()).then(|| Table {
        header: header.map(str::to_owned).to_vec(),
        rows: report.published.iter().map(cells).collect(),
    })
}

/// What the ratios of [`published`] mean.
pub(super) const ABOUT_PUBLISHED: &str = "Other CPUs, NICs and kernels: compare ratios, not figures. A ratio is to the first row of \
the same table with the same metric; the rows without a ratio are those. A veth pair has no interrupts, and here sender and receiver share the CPUs.";

/// Where rxsteer is better or worse than the baseline.
#[derive(Default)]
pub(super) struct Balance {
    pub(super) loses: Vec<String>,
    pub(super) gains: Vec<String>,
}

/// The rows of rxsteer, divided into better and worse than the baseline; equal ones are left out.
///
/// A row is worse if its finding is "worse", or if its mean ratio is worse, even if that is not significant.
pub(super) fn balance(report: &Report) -> Balance {
    let mut balance = Balance::default();
    for row in report.rows.iter().filter(|row| row.method.is_rxsteer()) {
        let Some(compared) = &row.against else { continue };
        let Some(metric) = report.metrics.iter().find(|of| of.name == row.headline) else {
            continue;
        };
        let better = if metric.more_is_better { compared.ratio } else { 1.0 / compared.ratio };
        let sentence = format!(
            "{}, {}: {} {}",
            String::from(row.method),
            row.load,
            row.headline,
            against(compared)
        );
        if better < 1.0 || compared.finding == "worse" {
            balance.loses.push(sentence);
        } else if better > 1.0 {
            balance.gains.push(sentence);
        }
    }
    balance
}

/// Kernel, CPUs, versions, and the circumstances of the run.
pub(super) fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let virtual_machine = if machine.virtual_machine { ", a virtual machine" } else { "" };
    let links = report.interfaces.as_ref().map_or(String::new(), |[steered, peer]| {
        format!(" The interface {steered} is steered, and {peer} sends to it.")
    });
    format!(
        "Linux {}, {} CPUs ({}{virtual_machine}); rxsteer {}. Steal time {} %. Rounds: {}{}.{links}",
        machine.kernel,
        machine.cpus,
        machine.cpu,
        machine.rxsteer,
        report.steal_percent,
        report.rounds,
        if report.partial { "; interrupted, so the results are partial" } else { "" },
    )
}

/// What could not be measured, and what failed.
pub(super) fn remarks(report: &Report) -> Vec<String> {
    let skipped = report
        .skipped
        .iter()
        .map(|skipped| format!("SKIPPED {}: {}.", skipped.what, skipped.needs));
    let failed = report.rows.iter().flat_map(|row| {
        row.failures.iter().map(|failure| {
            let failure = rxsteer_user::printable(failure.lines().next().unwrap_or_default());
            format!("FAILED {} with {}: {failure}", String::from(row.method), row.load)
        })
    });
    skipped.chain(failed).collect()
}

/// A ratio with its interval, and the finding.
pub(super) fn against(against: &Against) -> String {
    format!(
        "{} ({}–{}), {}",
        ratio(against.ratio),
        ratio(against.low),
        ratio(against.high),
        against.finding
    )
}

/// The median and its interval.
fn interval(figure: &Figure) -> String {
    format!("{} ({}–{})", number(figure.median), number(figure.low), number(figure.high))
}

pub(super) fn number(figure: f64) -> String {
    if figure >= 1e6 {
        format!("{:.2} M", figure / 1e6)
    } else if figure >= 1e4 {
        format!("{:.0} k", figure / 1e3)
    } else if figure >= 100.0 || figure.fract() == 0.0 {
        format!("{figure:.0}")
    } else {
        format!("{figure:.1}")
    }
}

/// A ratio with two decimal places, or more if it is small.
pub(super) fn ratio(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.5}") } else { format!("{ratio:.2}") }
}
