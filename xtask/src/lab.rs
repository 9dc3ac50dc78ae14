//! Experiments of `rxsteer-lab`, in a release build.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Arguments that are passed to the experiment.
#[derive(Args)]
#[command(after_help = "Example:\n  cargo xtask hand-off -- --rounds 15 --policy rfs+sparse\n\n\
                  What can be set: cargo xtask hand-off -- --help")]
pub(crate) struct Options {
    /// Options of the experiment.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Runs an experiment, which needs root, clang and two CPUs.
pub(crate) fn run(experiment: &str, options: &Options) -> Result<Outcome> {
    let cargo = ["--quiet", "--release", "--package", "rxsteer-live", "--package", "rxsteer-cli"];
    if let Outcome::Failed = shell::outcome(shell::cargo().arg("build").args(cargo))? {
        bail!("rxsteer-live and rxsteer do not build");
    }
    let folder = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => folder.into(),
        None => shell::root().join("target"),
    };
    let mut lab = Command::new(folder.join("release/rxsteer-lab"));
    lab.arg(experiment).args(&options.options);
    // Its own exit status distinguishes a finding from a failure to run.
    match lab.status().context("cannot start rxsteer-lab")?.code() {
        Some(0) => Ok(Outcome::Passed),
        Some(1) => Ok(Outcome::Failed),
        _ => bail!("rxsteer-lab could not run"),
    }
}
