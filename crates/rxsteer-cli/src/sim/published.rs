//! `--published` and `--fit`: compares published measurements with the simulator's figures, and shows the origin of the
//! costs in the predictions.

use super::whole_file::WholeFile;
use crate::Outcome;
use crate::input::stop_on_interrupt;
use crate::output;
use crate::output::lines::{entry, fitted, lines, paragraphs};
use crate::output::table;
use crate::words::{plural, suggestion};
use anyhow::Context;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_sim::fit::{self, Fit, FitError};
use rxsteer_sim::published::{self, Experiment, Report, Row};
use rxsteer_status::figures::grouped;
use rxsteer_user::shown;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Options about what is run and how; they conflict with a published table.
const RUN_OPTIONS: [&str; 17] = [
    "scenario",
    "list",
    "set",
    "seconds",
    "faults",
    "seed",
    "seeds",
    "threads",
    "compare",
    "sensitivity",
    "from",
    "from_speed",
    "from_packets",
    "from_spread",
    "from_hash_seed",
    "from_inner",
    "from_key_tunnels",
];

/// The widest line of a text.
const WIDTH: usize = 100;

/// Published tables, simulated.
#[derive(Args, Debug)]
pub(crate) struct PublishedArgs {
    /// Simulate the experiment of a published table
    ///
    /// The report shows simulated next to published figures, a null model, and the range over all machines that the
    /// fitted rows allow. Each row has a role: fitted, reproduced (it depends on a figure from which the costs were
    /// derived) or predicted. E.g. --published rfs.
    #[arg(long, value_name = "TABLE", value_parser = words(Experiment::ALL.map(Experiment::name), parse_experiment), conflicts_with_all = RUN_OPTIONS,
          conflicts_with_all = ["csv", "report", "fit"], help_heading = "Published tables")]
    pub(crate) published: Option<Experiment>,

    /// Fit the costs of the machine of a published table again
    ///
    /// The output has the form of the built-in file. E.g. --fit rfs.
    #[arg(long, value_name = "TABLE", value_parser = words(Experiment::ALL.map(Experiment::name), parse_experiment), conflicts_with_all = RUN_OPTIONS,
          conflicts_with_all = ["csv", "report"], help_heading = "Published tables")]
    pub(crate) fit: Option<Experiment>,

    // An option that conflicts with a required one removes the requirement, so the conflicts are repeated here.
    /// Write what --fit finds to this file, e.g. fits/rfs.toml
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "fit", conflicts_with_all = RUN_OPTIONS,
          conflicts_with = "published",
          help_heading = "Published tables")]
    pub(crate) out: Option<PathBuf>,
}

fn parse_experiment(text: &str) -> Result<Experiment, String> {
    let names = Experiment::ALL.map(Experiment::name);
    let found = Experiment::ALL.into_iter().find(|experiment| experiment.name() == text);
    found.ok_or_else(|| format!("there is no published table '{text}'{}", suggestion(text, &names)))
}

/// Executes the options; `None` if none of them is given.
pub(crate) fn command(args: &PublishedArgs, json: bool) -> anyhow::Result<Option<Outcome>> {
    if let Some(experiment) = args.published {
        let stop = stop_on_interrupt(&[])?;
        let report = match published::report(experiment, &stop) {
            Err(FitError::Stopped) => {
                output::note(
                    "rxsteer: interrupted; nothing is shown, since each figure is a mean over whole runs. \
                     Run it again, and let it end.",
                );
                return Ok(Some(Outcome::Interrupted));
            }
            report => report?,
        };
        output::print(&if json { format!("{:#}\n", object(&report)) } else { text(&report) })?;
    } else if let Some(experiment) = args.fit {
        make_fit(experiment, args.out.as_deref(), json)?;
    } else {
        return Ok(None);
    }
    Ok(Some(Outcome::Success))
}

fn make_fit(experiment: Experiment, out: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let file = out.map(|path| WholeFile::create(path, "--out")).transpose()?;
    output::note("rxsteer: fitting takes up to half a minute, that of sparse up to ten minutes");
    let fit = fit::make(experiment)?;
    if let Some(file) = file {
        file.finish(fit.to_toml().as_bytes())?;
    }
    if json {
        return output::print(&format!("{:#}\n", fit_object(&fit)?));
    }
    match out {
        None => output::print(&fit.to_toml()),
        Some(path) => {
            let same = fit.to_toml() == fit::committed_text(experiment);
            let beside = if same { "the same as" } else { "other than" };
            output::print(&format!("{} is written, {beside} what is built in\n", shown(path)))
        }
    }
}

fn fit_object(fit: &Fit) -> anyhow::Result<Value> {
    serde_json::to_value(fit).context("a fit holds a number that JSON has no word for")
}

// -------------------------------------------------------------------------------------------------
// JSON

/// The report as one object.
fn object(report: &Report) -> Value {
    let row = |row: &Row| {
        json!({
            "what": row.what,
            "unit": row.unit,
            "published": row.published,
            "predicted": row.predicted,
            "error": row.error(),
            "role": row.role.name(),
            "null": row.null,
            "range": row.range,
        })
    };
    let target = |target: &published::Target| json!({ "what": target.what, "reached": target.reached, "is_met": target.is_met });
    let constant = |constant: &published::machine::Constant| {
        json!({
            "name": constant.name,
            "value": constant.value,
            "unit": constant.unit,
            "source": constant.source,
            "range": constant.range,
        })
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "published": report.experiment.name(),
        "title": report.title,
        "source": report.source,
        "seeds": report.seeds,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "mean_absolute_error": report.mean_absolute_error(),
        "null": { "what": report.null, "mean_absolute_error": report.null_error() },
        "ranges": report.ranges,
        "targets": report.targets.iter().map(target).collect::<Value>(),
        "is_met": report.is_met(),
        "lacks": report.lacks,
        "fit": report.fit,
        "constants": report.constants.iter().map(constant).collect::<Value>(),
    })
}

// -------------------------------------------------------------------------------------------------
// Text

fn text(report: &Report) -> String {
    let mut text = format!(
        "{}: {}\n{}\nfitted to the rows marked so, means of {}\n\n{}\n",
        report.experiment,
        report.title,
        report.source,
        plural(report.seeds as usize, "seed"),
        rows(report)
    );
    text = paragraphs(&text);
    let mut with_target = report.rows.iter().filter(|row| row.role.has_target());
    let unit = if with_target.all(|row| row.unit == "%") { " points" } else { " %" };
    let (own, null) = (report.mean_absolute_error(), report.null_error());
    let _ = writeln!(text, "mean absolute error {own:.1}{unit}; of the null model {null:.1}{unit}");
    let _ = write!(text, "Null model:\n{}", wrapped(report.null));
    let _ = writeln!(text, "Ranges:\n{}", wrapped(&report.ranges));
    for target in &report.targets {
        let met = if target.is_met { "met   " } else { "MISSED" };
        let _ = writeln!(text, "{met}  {}: {}", target.what, target.reached);
    }
    text.push_str("\nWhat the model lacks:\n");
    for lack in &report.lacks {
        text.push_str(&wrapped(lack));
    }
    let _ = writeln!(text, "\nFound by {}:\n{}", report.fit.command, found(&report.fit));
    let _ = write!(text, "Constants, which no fitted row determines:\n{}", constants(report));
    text
}

fn rows(report: &Report) -> String {
    let header = ["figure", "published", "simulated", "off by", "range", "null model", ""];
    let mut table = table::new(&header, &[0, 6]);
    for row in &report.rows {
        let points = if row.unit == "%" { "points" } else { "%" };
        table.add_row(vec![
            row.what.clone(),
            figure(row.published, row.unit),
            figure(row.predicted, row.unit),
            format!("{:+.1} {points}", row.error()),
            row.range.map_or_else(String::new, |range| range_of(range, row.unit)),
            row.null.map_or_else(String::new, |null| figure(null, row.unit)),
            row.role.label().to_owned(),
        ]);
    }
    fitted(table, &[vec![5], vec![4]])
}

fn found(fit: &Fit) -> String {
    let mut table = table::new(&["part", "value", ""], &[0, 1]);
    for (name, part) in &fit.part {
        for (value, number) in &part.value {
            table.add_row(vec![name.clone(), value.clone(), number.to_string()]);
        }
    }
    lines(&table)
}

fn constants(report: &Report) -> String {
    let mut table = table::new(&["constant", "value", "range", "unit", "source"], &[0, 3, 4]);
    for constant in &report.constants {
        let number = |value: f64| {
            if value >= 1e4 { grouped(value.round() as u64) } else { value.to_string() }
        };
        let range = constant.range.map(|(a, b)| format!("{} to {}", number(a), number(b)));
        let (value, range) = (number(constant.value), range.unwrap_or_default());
        let name = constant.name.to_owned();
        let (unit, source) = (constant.unit.to_owned(), constant.source.to_owned());
        table.add_row(vec![name, value, range, unit, source]);
    }
    fitted(table, &[vec![2], vec![4]])
}

/// A figure with its unit.
fn figure(value: f64, unit: &str) -> String {
    match unit {
        "%" => format!("{value:.1} %"),
        "Mbit/s" => format!("{value:.1} Mbit/s"),
        "us" => format!("{} µs", grouped(value.round() as u64)),
        _ => format!("{}{unit}", grouped(value.round() as u64)),
    }
}

/// A range, with the unit once.
fn range_of((least, most): (f64, f64), unit: &str) -> String {
    let most = figure(most, unit);
    let least = figure(least, unit);
    let number = least.trim_end_matches(unit).trim_end_matches("µs").trim_end();
    format!("{number} to {most}")
}

/// A sentence after a dash, in lines of at most [`WIDTH`].
fn wrapped(sentence: &str) -> String {
    let mut text = String::new();
    entry(&mut text, "-", 2, sentence, WIDTH);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_and_misspellings_find_theirs() {
        assert_eq!(parse_experiment("hand-off"), Ok(Experiment::HandOff));
        assert!(parse_experiment("rsf").unwrap_err().contains("'rfs'"));
        assert!(parse_experiment("everything").unwrap_err().contains("hand-off"));
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let sentence = "eleven char ".repeat(20);
        let text = wrapped(sentence.trim());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text.starts_with("- eleven") && text.lines().nth(1).unwrap().starts_with("  "));
        assert_eq!(text.split_whitespace().count(), 41);
    }

    #[test]
    fn figures_have_their_units() {
        assert_eq!(figure(61.04, "%"), "61.0 %");
        assert_eq!(figure(379.4, "us"), "379 µs");
        assert!(figure(303_000.0, "/s").ends_with("/s"));
        assert_eq!(range_of((-7.21, 50.04), "%"), "-7.2 to 50.0 %");
        assert_eq!(range_of((379.4, 409.0), "us"), "379 to 409 µs");
    }
}
