//! `rxsteer lab calibrate`.

use super::args::CalibrateArgs;
use super::run::{bar, quoted};
use super::{begin, writable};
use crate::Outcome;
use crate::input::stop_on_interrupt;
use crate::output::{note, print, table};
use anyhow::Context;
use rxsteer_lab::calibrate::{Calibration, calibrate, unavailable};
use rxsteer_user::printable;
use std::fmt::Write;

/// Rounds of a short run.
const QUICK_ROUNDS: usize = 1;

pub(super) fn command(args: &CalibrateArgs) -> anyhow::Result<Outcome> {
    if let Some(why) = unavailable() {
        anyhow::bail!("this machine can't be calibrated here: {why}");
    }
    let path = &args.output;
    writable(path, "scenario")?;
    let _begun = begin()?;
    let stop = stop_on_interrupt(&[])?;
    let rounds = if args.quick { QUICK_ROUNDS } else { usize::from(args.repeat) };
    let bar = bar(args.json);
    let calibration = calibrate(rounds, args.quick, &stop, |done, all, next| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(next.to_owned());
    });
    bar.finish_and_clear();
    let calibration = calibration.context("nothing could be measured")?;
    let is_whole = !calibration.scenario.is_empty();
    if is_whole {
        std::fs::write(path, &calibration.scenario)
            .with_context(|| format!("cannot write the scenario {}", path.display()))?;
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string(&calibration)?))?;
    } else {
        print(&text(&calibration))?;
    }
    for failure in &calibration.failures {
        note(&format!("rxsteer: {}", printable(failure)));
    }
    if is_whole {
        note(&format!(
            "rxsteer: wrote {}; sudo rxsteer lab validate {} checks it",
            path.display(),
            quoted(&path.to_string_lossy())
        ));
        return Ok(Outcome::Success);
    }
    note(&format!(
        "rxsteer: {} was not written, because not every time was measured",
        path.display()
    ));
    Ok(if calibration.partial { Outcome::Interrupted } else { Outcome::Findings })
}

fn text(calibration: &Calibration) -> String {
    let mut text = String::new();
    let short = if calibration.quick { "; a short run, whose figures prove nothing" } else { "" };
    let partial = if calibration.partial { "; interrupted" } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Linux {}, {} CPUs ({}); {} rounds; steal time {:.1} %{short}{partial}\n",
        calibration.machine.kernel,
        calibration.machine.cpus,
        calibration.machine.cpu,
        calibration.rounds,
        calibration.steal_percent,
    );
    let mut shown = table::new(&["time of one CPU per frame", "median", "quartiles"], &[0]);
    for time in &calibration.times {
        shown.add_row([
            time.what.clone(),
            format!("{:.0} ns", time.median_ns),
            format!("{:.0} to {:.0}", time.lower_ns, time.upper_ns),
        ]);
    }
    let _ = writeln!(text, "{shown}");
    text
}
