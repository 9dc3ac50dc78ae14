//! Thousands of seeds for the order guard: the deterministic scheduler of `rxsteer-order`.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Tries to reorder the packets of a flow: 10,000 seeds, one run for each.
#[derive(Args)]
#[command(after_help = "Examples:\n  cargo xtask order --seeds 100000 --packets 2000\n  \
                  cargo xtask order --seed 17 --packets 2000")]
pub(crate) struct Options {
    /// How many seeds to run, from 0.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// Packets received in each run.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    packets: u64,
    /// Runs this seed alone, as the message of a failure suggests.
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Turns the order guard off (off), or half off (head-at-dequeue): the run must then find packets out of order.
    #[arg(long, value_name = "HOW", default_value = "on")]
    guard: String,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let (which, number) = options.seed.map_or(("--seeds", options.seeds), |seed| ("--seed", seed));
    let cargo = ["--quiet", "--release", "--package", "rxsteer-order"];
    // If the program does not build, it has no findings.
    if let Outcome::Failed = shell::outcome(shell::cargo().arg("build").args(cargo))? {
        bail!("rxsteer-order does not build");
    }
    let mut order = shell::cargo();
    order
        .arg("run")
        .args(cargo)
        .args(["--", which, &number.to_string(), "--packets", &options.packets.to_string()])
        .args(["--guard", &options.guard]);
    // Its own exit status distinguishes a finding from a refused command line.
    match order.status().context("cannot start cargo")?.code() {
        Some(0) => Ok(Outcome::Passed),
        Some(1) => Ok(Outcome::Failed),
        _ => bail!("rxsteer-order could not run"),
    }
}
