//! `rxsteer lab`: experiments on this machine. The experiments are in the crate `rxsteer-lab`; here are its command line and the
//! text of its reports.

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
use crate::output::print;
use args::{LabArgs, LabCommand, ListArgs};
use rxsteer_lab::experiment::{self, Experiment};
use serde_json::json;

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

fn list(args: &ListArgs) -> anyhow::Result<Outcome> {
    let experiments = experiment::list();
    if args.json {
        let about = |experiment: &dyn Experiment| {
            let mut about = serde_json::to_value(experiment.about())?;
            about["programs"] = json!(experiment.programs());
            about["lacks"] = json!(experiment.lacks());
            Ok(about)
        };
        let all = experiments
            .iter()
            .map(|experiment| about(&**experiment))
            .collect::<anyhow::Result<Vec<_>>>()?;
        print(&format!(
            "{:#}\n",
            json!({ "version": env!("CARGO_PKG_VERSION"), "experiments": all })
        ))?;
        return Ok(Outcome::Success);
    }
    let mut text = String::new();
    field(&mut text, " experiment", 13, "what it measures, and whether it can run here");
    for experiment in &experiments {
        let about = experiment.about();
        let here =
            experiment.lacks().map_or("can run".to_owned(), |lacks| format!("can't run: {lacks}"));
        field(&mut text, &format!(" {}", about.name), 13, &format!("{}: {here}", about.about));
    }
    print(&text)?;
    Ok(Outcome::Success)
}
