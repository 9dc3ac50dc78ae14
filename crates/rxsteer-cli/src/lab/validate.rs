//! `rxsteer lab validate`.

use super::args::ValidateArgs;
use super::run::bar;
use super::{begin, plot, writable};
use crate::Outcome;
use crate::input::stop_on_interrupt;
use crate::output::{note, print};
use anyhow::Context;
use rxsteer_lab::calibrate::unavailable;
use rxsteer_lab::experiment::Figure;
use rxsteer_lab::validate::{Errors, Expected, Load, Row, Score, Validation, measure, predict};
use rxsteer_user::{printable, shown};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

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
    let to = args.predictions.clone().unwrap_or_else(|| path.with_extension("predictions.json"));
    let plotted = args.plot.clone().unwrap_or_else(|| path.with_extension("svg"));
    let files: [(&str, &Path); 3] = [
        ("the scenario FILE", path),
        ("the predictions (--predictions)", &to),
        ("the plot (--plot)", &plotted),
    ];
    different(if args.predict_only { &files[..2] } else { &files })?;
    let stop = stop_on_interrupt(&[])?;
    let name = path.display().to_string();
    let predicted = predict(&text, &name, args.quick, &stop)?;
    // A damaged file is reported before what the machine lacks.
    if let Some(why) = unavailable().filter(|_| !args.predict_only) {
        anyhow::bail!("nothing can be measured here: {why}");
    }
    let Some(predicted) = predicted else { return Ok(Outcome::Interrupted) };
    let _begun = if args.predict_only {
        None
    } else {
        writable(&plotted, "plot")?;
        Some(begin()?)
    };
    let written = serde_json::to_string_pretty(&json!({ "predictions": predicted }))?;
    save(&to, &written)?;
    note(&format!("rxsteer: {} predictions are in {}", predicted.len(), to.display()));
    if args.predict_only {
        if args.json {
            let file = to.to_string_lossy();
            print(&format!("{}\n", json!({ "file": file, "predictions": predicted })))?;
        }
        return Ok(Outcome::Success);
    }
    let bar = bar(args.json);
    let rounds = if args.quick { QUICK_ROUNDS } else { usize::from(args.repeat) };
    let scenario = (text.as_str(), name.as_str());
    let validation = measure(predicted, scenario, rounds, args.quick, &stop, |done, all, next| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(next.to_owned());
    });
    bar.finish_and_clear();
    let validation = validation.context("nothing could be measured")?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&validation)?))?;
    } else {
        print(&markdown(&validation))?;
    }
    std::fs::write(&plotted, plot::predicted_and_measured(&validation)?)
        .with_context(|| format!("cannot write the plot {}", plotted.display()))?;
    note(&format!("rxsteer: the plot is in {}", plotted.display()));
    Ok(match (validation.partial, validation.failures.is_empty()) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Success,
        (false, false) => Outcome::Findings,
    })
}

/// Refuses two names for the same file: one output would replace the other.
fn different(files: &[(&str, &Path)]) -> anyhow::Result<()> {
    // For a file that does not exist yet: the path that it will have.
    let real = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        path.canonicalize().unwrap_or_else(|_| {
            let folder = folder.unwrap_or(Path::new(".")).canonicalize().unwrap_or_default();
            folder.join(path.file_name().unwrap_or_default())
        })
    };
    for (index, (what, path)) in files.iter().enumerate() {
        for (other, of_other) in &files[..index] {
            anyhow::ensure!(
                real(path) != real(of_other),
                "{other} and {what} are the same file, {}; name another one",
                shown(path)
            );
        }
    }
    Ok(())
}

/// Writes predictions so that they survive a crash of the machine. Existing ones may have been published, so they are
/// not replaced.
fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    let there = path.is_file().then(|| std::fs::read(path)).transpose();
    let failed = || format!("cannot write the predictions {}", shown(path));
    match there.with_context(failed)? {
        Some(there) if there == text.as_bytes() => Ok(()),
        Some(_) => anyhow::bail!(
            "{} has other predictions, or is another file; rxsteer does not replace predictions. Name another file \
             with --predictions, or \
             remove this one",
            shown(path)
        ),
        None => {
            let mut file = std::fs::File::create(path).with_context(failed)?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(failed)
        }
    }
}

/// The report as Markdown, which is also printed on terminals.
fn markdown(validation: &Validation) -> String {
    let mut text = String::new();
    let short = if validation.quick { " A short run: its figures prove nothing." } else { "" };
    let partial = if validation.partial { " Interrupted, so the results are partial." } else { "" };
    let speed = |speed: f64| format!("{:.1} %", 100.0 * speed);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# Predicted and measured\n\n\
         Linux {}, {} CPUs ({}); rxsteer {}. Steal time {:.1} %. Rounds: {}.{short}{partial}\n\n\
         *Predicted* was written before anything was measured. In each round two calibrated loads were measured again: the machine forwarded at \
         {} and answered requests at {} of the speed that it had while it was calibrated. A busy CPU was paused for {} of the time while the \
         machine was calibrated, and for {} during this measurement. *Adjusted* errors are those of predictions for these speeds and pauses, made \
         afterwards. The null model knows nothing of methods: a packet costs what it costs one CPU without steering, and a request what \
         it costs without steering. Packets and transactions are per second, in thousands; latencies are in µs. Intervals are those of medians.\n",
        validation.machine.kernel,
        validation.machine.cpus,
        validation.machine.cpu,
        validation.machine.rxsteer,
        validation.steal_percent,
        validation.rounds,
        speed(validation.speeds.forwarding),
        speed(validation.speeds.requests),
        speed(validation.paused[0]),
        speed(validation.paused[1]),
    );
    text.push_str(
        "| load | method | figure | predicted | measured | error | adjusted | null | its error | adjusted |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in &validation.rows {
        lines(&mut text, row);
    }
    text.push('\n');
    if let Some(why) = &validation.no_verdict {
        let _ = writeln!(text, "**No verdict**: {why}.\n");
    }
    for score in &validation.scores {
        text.push_str(&result(score, validation.no_verdict.is_none()));
    }
    for failure in &validation.failures {
        let _ =
            writeln!(text, "- FAILED {}", printable(failure.lines().next().unwrap_or_default()));
    }
    text
}

/// The lines of a row, one for each of its figures.
fn lines(text: &mut String, row: &Row) {
    let of = &row.prediction;
    let rate = match &of.load {
        Load::Forward(_) => "packets/s",
        Load::Requests(load) if load.rate > 0 => "transactions/s, as scheduled",
        Load::Requests(_) => "transactions/s",
    };
    type Get = fn(&Expected) -> Option<f64>;
    let figures: [(&str, Get, Option<Figure>, f64); 3] = [
        (rate, |of| Some(of.rate), row.measured.rate, 1e3),
        ("p50", |of| of.p50, row.measured.p50, 1.0),
        ("p99", |of| of.p99, row.measured.p99, 1.0),
    ];
    for (name, get, measured, unit) in figures {
        let (Some(predicted), Some(null)) = (get(&of.predicted), get(&of.null)) else { continue };
        let error = |of: Option<f64>| {
            let error = of.zip(measured).map(|(of, figure)| of / figure.median - 1.0);
            error.map_or("–".to_owned(), |error| format!("{:+.1} %", 100.0 * error))
        };
        let measured = measured.map_or("–".to_owned(), |figure| {
            let [median, low, high] = [figure.median, figure.low, figure.high].map(|of| of / unit);
            format!("{median:.0} ({low:.0}–{high:.0})")
        });
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {name} | {:.0} | {measured} | {} | {} | {:.0} | {} | {} |",
            of.load,
            String::from(of.method),
            predicted / unit,
            error(Some(predicted)),
            error(get(&row.adjusted)),
            null / unit,
            error(Some(null)),
            error(get(&row.adjusted_null)),
        );
    }
}

/// The result for one figure, and whether the goals are met, if there is a verdict.
fn result(score: &Score, verdict: bool) -> String {
    let Score { what, adjusted, rows, precise, simulator, null, nearer, farther, pairs } = score;
    let goal = |met: bool| match (verdict, met) {
        (false, _) => "",
        (true, true) => " (met)",
        (true, false) => " (missed)",
    };
    let adjusted = if *adjusted { ", adjusted" } else { "" };
    let goals = if *what == "throughput" {
        format!(
            "goal: 10 % in the mean{}, 25 % in the worst row{}",
            goal(simulator.mean <= 0.1),
            goal(simulator.worst <= 0.25)
        )
    } else {
        format!("goal: all rows within 25 %{}", goal(simulator.within_quarter == *rows))
    };
    let summary = |name: &str, errors: &Errors| {
        let Errors { mean, worst, within_quarter, precise_within_quarter, right_order } = errors;
        format!(
            "{name} {:.1} % in the mean, {:.1} % in the worst row, {within_quarter} within 25 % ({precise_within_quarter} of the {precise} rows with a measured interval that narrow), {right_order} of {pairs} pairs of methods in the right order",
            100.0 * mean,
            100.0 * worst
        )
    };
    format!(
        "- **{what}{adjusted}**, {rows} rows, {goals}: {}; {}. The simulator is nearer in {nearer} rows, the null model in {farther}; within 1 % of each \
         other in the rest.\n",
        summary("simulator", simulator),
        summary("null model", null)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_by_two_names_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("m.svg"), "").unwrap();
        std::os::unix::fs::symlink(file("m.svg"), file("link")).unwrap();
        let check = |predictions: &str, plot: &str| {
            let (scenario, predictions, plot) = (file("m.svg"), file(predictions), file(plot));
            different(&[("scenario", &scenario), ("predictions", &predictions), ("plot", &plot)])
                .map_err(|why| why.to_string())
        };
        assert_eq!(check("m.json", "p.svg"), Ok(()));
        assert!(check("m.json", "m.svg").unwrap_err().contains("scenario and plot are the same"));
        assert!(check("link", "p.svg").unwrap_err().contains("scenario and predictions"));
        assert!(check("x", "./x").unwrap_err().contains("predictions and plot"));
    }

    #[test]
    fn predictions_are_not_replaced_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json");
        save(&path, "one").unwrap();
        save(&path, "one").unwrap();
        let refused = save(&path, "two").unwrap_err().to_string();
        assert!(refused.contains("--predictions"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    }
}
