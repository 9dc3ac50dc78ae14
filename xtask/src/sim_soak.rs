//! Thousands of runs of the simulator's scenarios with random faults: the example `soak` of `rxsteer-sim`.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Runs the built-in scenarios with random faults, and checks that no flow is overtaken and no packet is lost without
/// being counted.
#[derive(Args)]
#[command(after_help = "Examples:\n  cargo xtask sim-soak --seeds 10000\n  \
                  cargo xtask sim-soak --scenario rpc-8 --seed 17")]
pub(crate) struct Options {
    /// How many seeds to run each scenario with, from 0.
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u64,
    /// Runs this seed alone, as the message of a failure suggests.
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Runs this built-in scenario alone.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Faults of each run.
    #[arg(long, value_name = "N", default_value_t = 12)]
    faults: u32,
    /// About how many packets a run has without faults.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    packets: u64,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let (which, number) = options.seed.map_or(("--seeds", options.seeds), |seed| ("--seed", seed));
    let cargo = ["--quiet", "--release", "--package", "rxsteer-sim", "--example", "soak"];
    // If the program does not build, it has no findings.
    if let Outcome::Failed = shell::outcome(shell::cargo().arg("build").args(cargo))? {
        bail!("the example soak of rxsteer-sim does not build");
    }
    let mut soak = shell::cargo();
    soak.arg("run")
        .args(cargo)
        .args(["--", which, &number.to_string()])
        .args(["--faults", &options.faults.to_string()])
        .args(["--packets", &options.packets.to_string()]);
    if let Some(scenario) = &options.scenario {
        soak.args(["--scenario", scenario]);
    }
    // Its own exit status distinguishes a finding from a refused command line.
    match soak.status().context("cannot start cargo")?.code() {
        Some(0) => Ok(Outcome::Passed),
        Some(1) => Ok(Outcome::Failed),
        _ => bail!("the soak could not run"),
    }
}
