//! `rxsteer lab validate`.

use super::args::ValidateArgs;
use super::plot;
use super::run::bar;
use crate::Outcome;
use crate::input::stop_on_interrupt;
use crate::output::{note, print};
use anyhow::Context;
use rxsteer_lab::calibrate::lacks;
use rxsteer_lab::validate::{Errors, Validation, measure, predict};
use rxsteer_user::printable;
use std::fmt::Write as _;
use std::io::Write as _;

/// Rounds of a short run.
const QUICK_ROUNDS: usize = 2;

pub(super) fn command(args: &ValidateArgs) -> anyhow::Result<Outcome> {
    let path = &args.file;
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read {}; rxsteer lab calibrate -o FILE writes such a scenario",
            path.display()
        )
    })?;
    let stop = stop_on_interrupt(&[])?;
    let name = path.display().to_string();
    let predicted = predict(&text, &name, args.quick, &stop)?;
    let whole = !stop.load(std::sync::atomic::Ordering::Relaxed);
    // A damaged file is named before what the machine lacks.
    if let Some(lacks) = lacks() {
        anyhow::bail!("nothing can be measured here: {lacks}");
    }
    let to = args.predictions.clone().unwrap_or_else(|| path.with_extension("predictions.json"));
    let written = serde_json::to_string_pretty(&serde_json::json!({ "predictions": predicted }))?;
    let mut file = std::fs::File::create(&to)
        .with_context(|| format!("cannot write the predictions {}", to.display()))?;
    let saved = file.write_all(written.as_bytes()).and_then(|()| file.sync_all());
    saved.with_context(|| format!("cannot write the predictions {}", to.display()))?;
    note(&format!("rxsteer: {} predictions are in {}", predicted.len(), to.display()));
    if !whole {
        return Ok(Outcome::Interrupted);
    }
    let bar = bar(args.json);
    let rounds = if args.quick { QUICK_ROUNDS } else { usize::from(args.repeat) };
    let validation = measure(predicted, rounds, args.quick, &stop, |done, all, next| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(next.to_owned());
    });
    bar.finish_and_clear();
    let validation = validation.context("nothing could be measured")?;
    let plotted = args.plot.clone().unwrap_or_else(|| path.with_extension("svg"));
    std::fs::write(&plotted, plot::predicted_and_measured(&validation)?)
        .with_context(|| format!("cannot write the plot {}", plotted.display()))?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&validation)?))?;
    } else {
        print(&markdown(&validation))?;
    }
    note(&format!("rxsteer: the plot is in {}", plotted.display()));
    Ok(match (validation.partial, validation.failures.is_empty()) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Success,
        (false, false) => Outcome::Findings,
    })
}

/// The report as Markdown, which is also what a terminal shows.
fn markdown(validation: &Validation) -> String {
    let mut text = String::new();
    let short = if validation.quick { " A short run: its figures decide nothing." } else { "" };
    let partial = if validation.partial { " Interrupted, so the results are partial." } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# Predicted and measured\n\n\
         Linux {}, {} CPUs ({}); rxsteer {}. Steal time {:.1} %. Rounds: {}.{short}{partial} Forwarded packets a second; the interval is \
         that of the median. The null model is the offered rate, up to what one CPU forwards without steering.\n",
        validation.machine.kernel,
        validation.machine.cpus,
        validation.machine.cpu,
        validation.machine.rxsteer,
        validation.steal_percent,
        validation.rounds,
    );
    text.push_str("| load | method | predicted | measured | error | null | its error |\n|---|---|---:|---:|---:|---:|---:|\n");
    for row in &validation.rows {
        let of = &row.prediction;
        let measured = row.measured.map_or("–".to_owned(), |figure| {
            format!(
                "{:.0} k ({:.0}–{:.0})",
                figure.median / 1e3,
                figure.low / 1e3,
                figure.high / 1e3
            )
        });
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} k | {measured} | {} | {:.0} k | {} |",
            of.load,
            String::from(of.method),
            of.predicted / 1e3,
            percent(row.error),
            of.null / 1e3,
            percent(row.null_error),
        );
    }
    text.push('\n');
    for (name, errors) in [("simulator", validation.simulator), ("null model", validation.null)] {
        let Some(Errors { mean, worst, right_order }) = errors else { continue };
        let order = right_order.map_or("no two methods differ beyond their intervals".to_owned(), |share| {
            format!(
                "right order of {:.0} of {} pairs of methods that differ beyond their intervals",
                share * validation.distinct_pairs as f64,
                validation.distinct_pairs
            )
        });
        let _ = writeln!(
            text,
            "- {name}: error {:.1} % in the mean, {:.1} % in the worst row; {order}.",
            100.0 * mean,
            100.0 * worst
        );
    }
    for failure in &validation.failures {
        let _ =
            writeln!(text, "- FAILED {}", printable(failure.lines().next().unwrap_or_default()));
    }
    text
}

fn percent(error: Option<f64>) -> String {
    error.map_or("–".to_owned(), |error| format!("{:+.1} %", 100.0 * error))
}
