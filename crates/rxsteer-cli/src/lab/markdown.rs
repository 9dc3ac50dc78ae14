//! A report as Markdown, which is also printed on terminals.

use super::tables::{self, ABOUT_PUBLISHED, Table};
use rxsteer_lab::experiment::Report;
use std::fmt::Write;

pub(super) fn of(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "# {}\n\n{}.\n\nSource: {}.\n\nMachine: {} Command: `{}`.\n\n",
        report.experiment,
        report.about,
        report.source,
        tables::machine(report),
        report.command,
    );
    for load in tables::loads(report) {
        let rows = tables::rows_of(report, load);
        let _ = write!(text, "## {load}\n\n");
        table(&mut text, &tables::of_load(report, &rows));
        if let Some(row) = rows.iter().find(|row| !row.checks.is_empty()) {
            let _ = writeln!(text, "Checked: {}.\n", row.checks.join("; "));
        }
    }
    let _ = write!(text, "## Verdict\n\n");
    list(&mut text, report.verdict.text.iter().chain(&tables::remarks(report)));
    if report.rows.iter().any(|row| row.method.is_rxsteer()) {
        let balance = tables::balance(report);
        for (heading, rows) in [("loses", balance.loses), ("gains", balance.gains)] {
            let _ = write!(text, "## Where rxsteer {heading}\n\n");
            list(&mut text, rows.iter());
        }
    }
    if let Some(published) = tables::published(report) {
        let _ = write!(text, "## Published and measured\n\n{ABOUT_PUBLISHED}\n\n");
        table(&mut text, &published);
    }
    text
}

fn list<'a>(text: &mut String, lines: impl Iterator<Item = &'a String>) {
    let before = text.len();
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
    text.push_str(if text.len() == before { "Nowhere.\n\n" } else { "\n" });
}

fn table(text: &mut String, Table { header, rows }: &Table) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(header));
    let _ = writeln!(text, "|---{}|", "|---:".repeat(header.len().saturating_sub(1)));
    for row in rows {
        text.push_str(&line(row));
    }
    text.push('\n');
}
