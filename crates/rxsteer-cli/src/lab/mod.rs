//! `rxsteer lab`: experiments on this machine. The crate `rxsteer-lab` contains the experiments; this module contains
//! the command line and the text of the reports.

pub(crate) mod args;
mod calibrate;
mod compare;
mod forest;
mod markdown;
mod page;
mod plot;
mod run;
mod tables;
mod validate;

use crate::Outcome;
use crate::output::lines::field;
use crate::output::{note, print};
use anyhow::Context;
use args::{LabArgs, LabCommand, ListArgs};
use rxsteer_lab::ActiveLab;
use rxsteer_lab::experiment::{self, Experiment};
use rxsteer_user::{printable, shown};
use serde_json::json;
use std::fs::OpenOptions;
use std::path::Path;

pub(crate) fn command(args: &LabArgs) -> anyhow::Result<Outcome> {
    // The methods of rxsteer are measured with this program, whatever its name is.
    if let Ok(program) = std::env::current_exe() {
        rxsteer_lab::use_program(program);
    }
    match &args.command {
        LabCommand::List(args) => list(args),
        LabCommand::Run(args) => run::command(args),
        LabCommand::Compare(args) => compare::command(args),
        LabCommand::Calibrate(args) => calibrate::command(args),
        LabCommand::Validate(args) => validate::command(args),
    }
}

/// Begins to measure; refused while another lab runs. First restores what a killed lab left.
fn begin() -> anyhow::Result<ActiveLab> {
    let waits = |process: Option<u32>| {
        let process = process.map_or_else(String::new, |process| format!(" (process {process})"));
        note(&format!(
            "rxsteer: another rxsteer lab measures on this machine{process}, and two would disturb each other's figures; this one \
             waits until it ends"
        ));
        true
    };
    let started = rxsteer_lab::begin(waits)?;
    for what in &started.left {
        note(&format!("rxsteer: {}", printable(what)));
    }
    Ok(started)
}

/// Fails if a file cannot be written, before minutes of measurements. It does not change the file.
fn writable(path: &Path, what: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write the {what} {}", shown(path));
    let was_there = path.symlink_metadata().is_ok();
    drop(OpenOptions::new().create(true).append(true).open(path).with_context(failed)?);
    if !was_there {
        std::fs::remove_file(path).with_context(failed)?;
    }
    Ok(())
}

fn list(args: &ListArgs) -> anyhow::Result<Outcome> {
    // If another lab is measuring, it has already restored everything.
    for what in rxsteer_lab::begin(|_| false).iter().flat_map(|started| &started.left) {
        note(&format!("rxsteer: {}", printable(what)));
    }
    let experiments = experiment::list();
    if args.json {
        let description = |experiment: &dyn Experiment| {
            let mut description = serde_json::to_value(experiment.description())?;
            description["programs"] = json!(experiment.programs());
            description["lacks"] = json!(experiment.unavailable());
            Ok(description)
        };
        let all = experiments
            .iter()
            .map(|experiment| description(&**experiment))
            .collect::<anyhow::Result<Vec<_>>>()?;
        print(&format!(
            "{:#}\n",
            json!({ "version": env!("CARGO_PKG_VERSION"), "experiments": all })
        ))?;
        return Ok(Outcome::Success);
    }
    let mut text = String::new();
    let heading = "what it measures, its source, and whether it can run here";
    field(&mut text, " experiment", 13, heading);
    for experiment in &experiments {
        let description = experiment.description();
        let here = match experiment.unavailable() {
            None => "Can run here".to_owned(),
            Some(why) => format!("Can't run here: {why}"),
        };
        let what = format!("{}. Source: {}. {here}", description.about, description.source);
        field(&mut text, &format!(" {}", description.name), 13, &what);
    }
    print(&text)?;
    Ok(Outcome::Success)
}
