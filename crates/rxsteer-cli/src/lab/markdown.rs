//! A report as Markdown, which is also what a terminal shows.

use rxsteer_lab::experiment::{Figure, Metric, Report, Row};
use rxsteer_user::printable;
use std::fmt::Write;

pub(super) fn of(report: &Report) -> String {
    let mut text = String::new();
    let machine = &report.machine;
    let virtual_machine = if machine.virtual_machine { ", a virtual machine" } else { "" };
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "# {}\n\n{}.\n\nSource: {}.\n\nMachine: Linux {}, {} CPUs ({}{virtual_machine}); rxsteer {}. Steal time {} %. Command: `{}`. \
         Rounds: {}{}.\n\n",
        report.experiment,
        report.about,
        report.source,
        machine.kernel,
        machine.cpus,
        machine.cpu,
        machine.rxsteer,
        report.steal_percent,
        report.command,
        report.rounds,
        if report.partial { "; interrupted, so the results are partial" } else { "" },
    );
    let mut loads: Vec<&str> = report.rows.iter().map(|row| row.load).collect();
    loads.dedup();
    for load in loads {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.load == load).collect();
        one_load(&mut text, load, report, &rows);
    }
    for sentence in &report.verdict.text {
        let _ = writeln!(text, "- {sentence}");
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "- SKIPPED {}: {}.", skipped.what, skipped.needs);
    }
    for row in &report.rows {
        for failure in &row.failures {
            let failure = printable(failure.lines().next().unwrap_or_default());
            let _ = writeln!(
                text,
                "- FAILED {} with {}: {failure}",
                String::from(row.method),
                row.load
            );
        }
    }
    text
}

fn one_load(text: &mut String, load: &str, report: &Report, rows: &[&Row]) {
    let _ = write!(text, "## {load}\n\n| method |");
    for Metric { name, unit, .. } in report.metrics {
        let _ = write!(text, " {name}, {unit} |");
    }
    let columns = "---:|".repeat(report.metrics.len());
    let _ = write!(
        text,
        " to {} | CPUs busy, % |\n|---|{columns}---|---|\n",
        String::from(report.baseline)
    );
    for row in rows {
        let _ = write!(text, "| {} |", String::from(row.method));
        for Metric { name, .. } in report.metrics {
            let figure = row.metrics.get(*name).map_or("–".to_owned(), interval);
            let _ = write!(text, " {figure} |");
        }
        let against = row.against.as_ref().map_or("–".to_owned(), |against| {
            format!(
                "{} ({}–{}), {}",
                ratio(against.ratio),
                ratio(against.low),
                ratio(against.high),
                against.finding
            )
        });
        let busy: Vec<String> =
            row.cpus.iter().map(|cpu| format!("{:.0}", 100.0 - cpu.idle)).collect();
        let _ = writeln!(text, " {against} | {} |", busy.join(" "));
    }
    text.push('\n');
    if let Some(row) = rows.iter().find(|row| !row.checks.is_empty()) {
        let _ = writeln!(text, "Checked: {}.\n", row.checks.join("; "));
    }
}

/// The median and its interval.
fn interval(figure: &Figure) -> String {
    format!("{} ({}–{})", number(figure.median), number(figure.low), number(figure.high))
}

fn number(figure: f64) -> String {
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

/// A ratio to two digits behind the point, more of them where it is small.
fn ratio(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.5}") } else { format!("{ratio:.2}") }
}
