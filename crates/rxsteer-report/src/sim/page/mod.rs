//! One page with everything in it, to open, mail or keep. Plots are SVG inside the page, and the page
//! loads nothing.

mod busy;
mod goal;
mod latency;

use super::results::Results;
use super::{advice, compared, table};
use crate::html::{self, escaped};
use rxsteer_sim::metric::{Metric, Subject};
use std::fmt::Write;

/// The page.
/// # Errors
///
/// If a plot can't be drawn.
pub fn page(results: &Results) -> anyhow::Result<String> {
    let mut body = String::new();
    let title = format!("{}: {}", results.name, results.scenario().title);
    let _ = writeln!(body, "<h1>{}</h1>", escaped(&title));
    for line in table::head(results).lines().skip(1) {
        let _ = writeln!(body, "<p class=\"head\">{}</p>", escaped(line));
    }
    if let Some(advice) = advice::advice(results) {
        let _ = writeln!(body, "<p class=\"advice\">{}</p>", escaped(&advice));
    }
    for note in results.notes() {
        let _ = writeln!(body, "<p class=\"wrong\">{}</p>", escaped(&note));
    }
    if results.cells.iter().any(|cell| !cell.runs.is_empty()) {
        plots(&mut body, results)?;
        tables(&mut body, results);
    }
    let _ = writeln!(
        body,
        "<details><summary>Scenario</summary>\n<pre>{}</pre></details>\n<p class=\"foot\">rxsteer {}</p>",
        escaped(&results.text),
        env!("CARGO_PKG_VERSION")
    );
    Ok(html::page(&title, &body))
}

fn plots(body: &mut String, results: &Results) -> anyhow::Result<()> {
    let goals =
        ["bits_per_second", "transactions_per_second"].into_iter().filter_map(Metric::named);
    for metric in goals {
        if results.cells.iter().any(|cell| cell.summary(metric, Subject::Run).is_some()) {
            let heading = format!("{}, mean with 95 % interval", html::capital(metric.title));
            html::figure(body, &heading, &goal::bars(results, metric)?);
            if results.seeds > 1 {
                let heading = format!("{}, seed by seed", html::capital(metric.title));
                html::figure(body, &heading, &goal::spread(results, metric)?);
            }
        }
    }
    html::figure(body, "CPU time by kind of work", &busy::stacked(results)?);
    for (index, traffic) in results.scenario().traffic.iter().enumerate() {
        if let Some(plot) = latency::percentiles(results, index)? {
            html::figure(body, &format!("Latency, {}", traffic.name), &plot);
        }
    }
    Ok(())
}

fn tables(body: &mut String, results: &Results) {
    let labels = || results.cells.iter().map(|cell| cell.label.as_str());
    let header: Vec<&str> = std::iter::once("").chain(labels()).collect();
    html::table(body, "Figures", &header, &compared::figures(results));
    if !results.differences.is_empty() {
        let first = format!("against {}", results.cells[0].label);
        let header = [&first, "figure", "difference", "", "allowed", "p", "finding"];
        html::table(body, "Differences", &header, &compared::findings(results));
        let _ = writeln!(body, "<p class=\"head\">{}</p>", escaped(&advice::legend(results)));
    }
}
