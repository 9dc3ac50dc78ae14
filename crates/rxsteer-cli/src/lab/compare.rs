//! `rxsteer lab compare`: two reports of the same experiment.

use super::args::CompareArgs;
use super::tables::{number, ratio};
use crate::Outcome;
use crate::output::lines::fitted;
use crate::output::{print, table};
use anyhow::Context;
use rxsteer_lab::experiment::{MIN_ROUNDS, no_verdict};
use rxsteer_user::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The parts of a report that a comparison reads.
#[derive(Deserialize)]
struct Saved {
    experiment: String,
    machine: Machine,
    quick: bool,
    partial: bool,
    rounds: usize,
    steal_percent: f64,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Machine {
    kernel: String,
    cpu: String,
    // Reports of former versions use the other name.
    #[serde(rename = "cpu_count", alias = "cpus")]
    cpus: usize,
    rxsteer: String,
}

#[derive(Deserialize)]
struct Row {
    method: String,
    load: String,
    headline: String,
    metrics: BTreeMap<String, Figure>,
}

#[derive(Deserialize, Serialize, Clone)]
struct Figure {
    median: f64,
    low: f64,
    high: f64,
    rounds: usize,
    unit: String,
}

/// A row that both reports have.
#[derive(Serialize)]
struct Compared {
    method: String,
    load: String,
    metric: String,
    a: Figure,
    b: Figure,
    /// The median of B divided by that of A; `None` if that of A is 0.
    ratio: Option<f64>,
    /// Whether the intervals overlap; `None` if they cover too little, or if a report allows no verdict.
    overlap: Option<bool>,
}

/// A comparison.
#[derive(Serialize)]
struct Comparison {
    experiment: String,
    rows: Vec<Compared>,
    /// How the runs differ.
    differences: Vec<String>,
    /// Why a report allows no verdict.
    no_verdict_a: Option<String>,
    no_verdict_b: Option<String>,
    /// Rows with a figure in only one report.
    only_a: Vec<String>,
    only_b: Vec<String>,
}

pub(super) fn command(args: &CompareArgs) -> anyhow::Result<Outcome> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    anyhow::ensure!(
        a.experiment == b.experiment,
        "{} is a report of {}, and {} one of {}; compare reports of the same experiment",
        args.a.display(),
        a.experiment,
        args.b.display(),
        b.experiment
    );
    let comparison = compare(&a, &b);
    if comparison.rows.is_empty() {
        let named = |rows: &[String]| match rows {
            [] => "nothing".to_owned(),
            rows => rows.join(", "),
        };
        anyhow::bail!(
            "there is nothing to compare: {} and {} have no figure for the same method and load. The first one has figures for: {}; the \
             second one for: {}",
            shown(&args.a),
            shown(&args.b),
            named(&comparison.only_a),
            named(&comparison.only_b)
        );
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&comparison)?))?;
    } else {
        print(&text(&comparison))?;
    }
    Ok(Outcome::Success)
}

fn read(path: &Path) -> anyhow::Result<Saved> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read {}; rxsteer lab run NAME --report DIR writes DIR/NAME.json",
            path.display()
        )
    })?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not a report of an experiment; rxsteer lab run NAME --report DIR writes DIR/NAME.json",
            path.display()
        )
    })
}

fn compare(a: &Saved, b: &Saved) -> Comparison {
    let name = |row: &Row| format!("{}, {}", row.method, row.load);
    let twin = |row: &Row, of: &Saved| {
        let row_of = of.rows.iter().find(|it| it.method == row.method && it.load == row.load)?;
        row_of.metrics.get(&row.headline).cloned()
    };
    let [no_verdict_a, no_verdict_b] =
        [a, b].map(|of| no_verdict(of.quick, of.partial, of.rounds, of.steal_percent));
    let may_conclude = no_verdict_a.is_none() && no_verdict_b.is_none();
    let mut rows = Vec::new();
    let mut only_a = Vec::new();
    for row in &a.rows {
        let Some(figure) = row.metrics.get(&row.headline) else { continue };
        let Some(other) = twin(row, b) else {
            only_a.push(name(row));
            continue;
        };
        rows.push(Compared {
            method: row.method.clone(),
            load: row.load.clone(),
            metric: row.headline.clone(),
            ratio: (figure.median != 0.0).then(|| other.median / figure.median),
            overlap: (may_conclude && figure.rounds.min(other.rounds) >= MIN_ROUNDS)
                .then_some(figure.low <= other.high && other.low <= figure.high),
            a: figure.clone(),
            b: other,
        });
    }
    let has_figure = |row: &&Row| row.metrics.contains_key(&row.headline);
    let only_b = b.rows.iter().filter(has_figure).filter(|row| twin(row, a).is_none());
    Comparison {
        experiment: a.experiment.clone(),
        only_b: only_b.map(name).collect(),
        only_a,
        rows,
        differences: differences(a, b),
        no_verdict_a,
        no_verdict_b,
    }
}

fn differences(a: &Saved, b: &Saved) -> Vec<String> {
    let scale = |of: &Saved| if of.quick { "quick" } else { "full" }.to_owned();
    let whole = |of: &Saved| if of.partial { "partial" } else { "complete" }.to_owned();
    let pairs = [
        ("kernel", a.machine.kernel.clone(), b.machine.kernel.clone()),
        ("CPU", a.machine.cpu.clone(), b.machine.cpu.clone()),
        ("number of CPUs", a.machine.cpus.to_string(), b.machine.cpus.to_string()),
        ("version of rxsteer", a.machine.rxsteer.clone(), b.machine.rxsteer.clone()),
        ("scale", scale(a), scale(b)),
        ("number of rounds", a.rounds.to_string(), b.rounds.to_string()),
        ("state", whole(a), whole(b)),
    ];
    pairs
        .into_iter()
        .filter(|(_, a, b)| a != b)
        .map(|(what, a, b)| format!("the {what} differs: {a} and {b}"))
        .collect()
}

fn text(comparison: &Comparison) -> String {
    let header = ["method", "load", "metric", "A", "B", "B to A", "intervals"];
    let mut shown = table::new(&header, &[0, 1, 2, 6]);
    let interval = |figure: &Figure| {
        format!("{} ({}–{})", number(figure.median), number(figure.low), number(figure.high))
    };
    for row in &comparison.rows {
        shown.add_row([
            row.method.clone(),
            row.load.clone(),
            format!("{}, {}", row.metric, row.a.unit),
            interval(&row.a),
            interval(&row.b),
            row.ratio.map_or("–".to_owned(), ratio),
            row.overlap.map_or("–", |overlap| if overlap { "overlap" } else { "apart" }).to_owned(),
        ]);
    }
    let mut text =
        format!("{}\n\n{}", comparison.experiment, fitted(shown, &[vec![2], vec![3, 4]]));
    // Writing to a String does not fail.
    for difference in &comparison.differences {
        let _ = writeln!(text, "\nNOTE {difference}.");
    }
    for (which, why) in [("A", &comparison.no_verdict_a), ("B", &comparison.no_verdict_b)] {
        if let Some(why) = why {
            let _ = writeln!(text, "\nNOTE {which} allows no verdict on intervals: {why}.");
        }
    }
    for (which, rows) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !rows.is_empty() {
            let _ = writeln!(text, "\nOnly {which} has a figure for: {}.", rows.join("; "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(kernel: &str, median: f64) -> Saved {
        let figure = serde_json::json!({"median": median, "low": median - 1.0, "high": median + 1.0, "rounds": 9, "unit": "1/s"});
        serde_json::from_value(serde_json::json!({
            "experiment": "rr", "quick": false, "partial": false, "rounds": 9, "steal_percent": 0.0,
            "machine": {"kernel": kernel, "cpu": "x", "cpus": 2, "rxsteer": "1"},
            "rows": [{"method": "none", "load": "l", "headline": "t", "metrics": {"t": figure}}],
        }))
        .unwrap()
    }

    #[test]
    fn ratio_overlap_and_differences_are_those_of_the_figures() {
        let near = compare(&saved("6.1", 10.0), &saved("6.1", 11.0));
        assert_eq!((near.rows[0].ratio, near.rows[0].overlap), (Some(1.1), Some(true)));
        assert!(near.differences.is_empty());
        let far = compare(&saved("6.1", 10.0), &saved("6.2", 20.0));
        assert_eq!((far.rows[0].ratio, far.rows[0].overlap), (Some(2.0), Some(false)));
        assert_eq!(far.differences, ["the kernel differs: 6.1 and 6.2"]);
        assert_eq!(compare(&saved("6.1", 0.0), &saved("6.1", 1.0)).rows[0].ratio, None);
    }

    #[test]
    fn intervals_of_few_rounds_have_no_verdict() {
        let whole = saved("6.1", 10.0);
        let change = |change: fn(&mut Saved)| {
            let mut other = saved("6.1", 20.0);
            change(&mut other);
            compare(&whole, &other)
        };
        let quick = change(|of| of.quick = true);
        assert_eq!((quick.rows[0].overlap, quick.no_verdict_a.clone()), (None, None));
        let output = text(&quick);
        assert!(output.contains("NOTE B allows no verdict on intervals: "), "{output}");
        assert!(output.contains("--quick") && !output.contains("apart"), "{output}");
        assert_eq!(change(|of| of.partial = true).rows[0].overlap, None);
        assert_eq!(change(|of| of.rounds = 5).rows[0].overlap, None);
        assert_eq!(change(|of| of.steal_percent = 9.0).rows[0].overlap, None);
        // A figure with fewer rounds than the others.
        let failed = change(|of| of.rows[0].metrics.get_mut("t").unwrap().rounds = 5);
        assert_eq!((failed.rows[0].overlap, failed.no_verdict_b), (None, None));
        assert_eq!(change(|_| ()).rows[0].overlap, Some(false));
    }

    #[test]
    fn reports_without_common_figures_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, rows: serde_json::Value| {
            let path = folder.path().join(name);
            let report = serde_json::json!({
                "experiment": "rr", "quick": false, "partial": true, "rounds": 0, "steal_percent": 0.0,
                "machine": {"kernel": "6.1", "cpu": "x", "cpu_count": 2, "rxsteer": "1"}, "rows": rows,
            });
            std::fs::write(&path, report.to_string()).unwrap();
            path
        };
        let row = serde_json::json!([{"method": "none", "load": "l", "headline": "t", "metrics": {
            "t": {"median": 1.0, "low": 1.0, "high": 1.0, "rounds": 1, "unit": "1/s"}}}]);
        let (a, b) = (file("a", serde_json::json!([])), file("b", row));
        let refused = command(&CompareArgs { a, b, json: false }).err().unwrap().to_string();
        assert!(refused.starts_with("there is nothing to compare"), "{refused}");
        assert!(refused.ends_with("for: nothing; the second one for: none, l"), "{refused}");
    }

    #[test]
    fn rows_of_one_report_only_are_named() {
        let mut other = saved("6.1", 10.0);
        other.rows[0].load = "m".to_owned();
        let comparison = compare(&saved("6.1", 10.0), &other);
        assert!(comparison.rows.is_empty());
        assert_eq!(
            (comparison.only_a, comparison.only_b),
            (vec!["none, l".into()], vec!["none, m".into()])
        );
    }
}
