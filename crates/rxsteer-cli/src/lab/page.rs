//! `--report DIR`: one page with all experiments of a run. It loads nothing: charts are SVG inside the page.

use super::forest;
use super::tables::{self, ABOUT_PUBLISHED, Table};
use rxsteer_lab::experiment::Report;
use rxsteer_report::html::{self, escaped, styled};
use std::fmt::Write;

/// Rules in addition to the common style: for dark screens, narrow screens, and charts in the colours of the page.
const STYLE: &str = "\
:root { color-scheme: light dark; }
section ul { margin: 0; padding-left: 20px; } code { overflow-wrap: anywhere; }
svg text { fill: currentColor; } svg > rect:first-of-type { fill: none; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(280px, 100%), 1fr)); gap: 0 16px; }
h3 { font-size: 18px; margin: 32px 0 4px; }
@media (max-width: 500px) { body { padding: 8px; } section { padding: 8px; } }
@media (prefers-color-scheme: dark) {
  body { background: #14171a; color: #e3e6e8; } section, pre { background: #1d2125; border-color: #3a4046; }
  th, td { border-color: #33393f; } .head, .foot { color: #a9b1b8; }
}
";

/// The page with the experiments of one run.
pub(super) fn of(reports: &[Report]) -> anyhow::Result<String> {
    let names: Vec<&str> = reports.iter().map(|report| report.experiment).collect();
    let title = format!("rxsteer lab: {}", names.join(", "));
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    for report in reports {
        experiment(&mut body, report)?;
    }
    let explanation = "A ratio is the geometric mean of the ratios to the baseline within rounds, with the 95 % interval of a paired t-test. \
                 Other figures are medians with the interval of the sign test. docs/lab.md says more.";
    let _ = writeln!(body, "<p class=\"head\">{}</p>", escaped(explanation));
    Ok(styled(&title, &body, STYLE))
}

fn experiment(body: &mut String, report: &Report) -> anyhow::Result<()> {
    // Writing to a String does not fail.
    let _ = writeln!(body, "<h3 id=\"{0}\">{0}</h3>", escaped(report.experiment));
    let source = format!("Source: {}.", report.source);
    for line in [&format!("{}.", report.about), &source, &tables::machine(report)] {
        let _ = writeln!(body, "<p class=\"head\">{}</p>", escaped(line));
    }
    let _ =
        writeln!(body, "<p class=\"head\">Command: <code>{}</code></p>", escaped(&report.command));
    list(body, "Verdict", &[report.verdict.text.clone(), tables::remarks(report)].concat());
    if let Some(chart) = forest::of(report)? {
        html::figure(body, "Ratio to the baseline", &chart);
    }
    if report.rows.iter().any(|row| row.method.is_rxsteer()) {
        let balance = tables::balance(report);
        body.push_str("<div class=\"two\">\n");
        list(body, "Where rxsteer loses", &balance.loses);
        list(body, "Where rxsteer gains", &balance.gains);
        body.push_str("</div>\n");
    }
    if let Some(published) = tables::published(report) {
        table(body, "Published and measured", &published);
        let _ = writeln!(body, "<p class=\"head\">{}</p>", escaped(ABOUT_PUBLISHED));
    }
    for load in tables::loads(report) {
        let rows = tables::rows_of(report, load);
        table(body, load, &tables::of_load(report, &rows));
        if let Some(row) = rows.iter().find(|row| !row.checks.is_empty()) {
            let checks = format!("Checked: {}.", row.checks.join("; "));
            let _ = writeln!(body, "<p class=\"head\">{}</p>", escaped(&checks));
        }
    }
    Ok(())
}

fn table(body: &mut String, heading: &str, Table { header, rows }: &Table) {
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    html::table(body, heading, &header, rows);
}

fn list(body: &mut String, heading: &str, lines: &[String]) {
    let _ = writeln!(body, "<section>\n<h2>{}</h2>\n<ul>", escaped(heading));
    for line in lines {
        let _ = writeln!(body, "<li>{}</li>", escaped(line));
    }
    if lines.is_empty() {
        body.push_str("<li>Nowhere.</li>\n");
    }
    body.push_str("</ul>\n</section>\n");
}
