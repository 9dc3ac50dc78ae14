//! Compares buckets that move by load with other rules, on simulated machines: the example `balance` of `rxsteer-sim`.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Compares rps+balance with other rules on simulated machines.
#[derive(Args)]
#[command(after_help = "Example:\n  cargo xtask balance -- --write docs/results/balance.md\n\n\
                  What can be set: cargo xtask balance -- --help")]
pub(crate) struct Options {
    /// Options of the comparison.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let cargo = ["--quiet", "--release", "--package", "rxsteer-sim", "--example", "balance"];
    if let Outcome::Failed = shell::outcome(shell::cargo().arg("build").args(cargo))? {
        bail!("the example balance of rxsteer-sim does not build");
    }
    let mut balance = shell::cargo();
    balance.arg("run").args(cargo).arg("--").args(&options.options);
    match balance.status().context("cannot start cargo")?.code() {
        Some(0) => Ok(Outcome::Passed),
        Some(1) => Ok(Outcome::Failed),
        _ => bail!("the comparison could not run"),
    }
}
