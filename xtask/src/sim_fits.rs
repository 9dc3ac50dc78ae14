//! Repeats the fits of published machines, and compares the result with the committed file digit by digit.

use anyhow::Result;
use clap::Args;

use crate::{Outcome, shell};

/// Fits the machines of the published tables again, and compares the results with the committed fits.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  cargo xtask sim-fits\n  cargo xtask sim-fits --all\n\nWhere a fit differs because the simulator was \
                  changed on purpose, rxsteer sim --fit NAME --out crates/rxsteer-sim/fits/NAME.toml writes it again."
)]
pub(crate) struct Options {
    /// Also fit the table that takes some minutes (sparse), and compare the tables that it predicts
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    // With the optimization level of tests: a higher one would take longer to build than it saves.
    let mut fits = shell::cargo();
    fits.arg("test").args(shell::packages("rxsteer-sim")).args(["--test", "it"]);
    fits.args(["--", "--include-ignored", "fit_of"]);
    match options.all {
        true => fits.arg("sparse_is_predicted"),
        false => fits.args(["--skip", "fit_of_sparse"]),
    };
    shell::outcome(&mut fits)
}
