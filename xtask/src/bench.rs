//! Starts the table of ratios, which is a bench target of this package: only an optimised build is worth measuring, and
//! only this target needs the crates that serve as baselines.

#[path = "bench_options.rs"]
mod bench_options;

use std::env;

use anyhow::Result;

pub(crate) use bench_options::Options;

use crate::{Outcome, shell};

/// Passes the command line on unchanged. [`Options`] has checked it, and the table parses it again.
pub(crate) fn run() -> Result<Outcome> {
    let mut bench = shell::cargo();
    bench.args(["bench", "--quiet", "--package", "xtask", "--bench", "table", "--"]);
    bench.args(env::args_os().skip_while(|arg| arg != "bench").skip(1));
    shell::outcome(&mut bench)
}
