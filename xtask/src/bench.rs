//! Starts the table of ratios, which is a bench target of this package: only an optimised build is
//! worth measuring, and only it needs the crates we compare with.

#[path = "bench_options.rs"]
mod bench_options;

use std::env;

use anyhow::Result;

pub(crate) use bench_options::Options;

use crate::{Outcome, shell};

/// Hands on the command line as it was typed; it has been checked by [`Options`], which the table
/// reads again.
pub(crate) fn run() -> Result<Outcome> {
    let mut bench = shell::cargo();
    bench.args(["bench", "--quiet", "--package", "xtask", "--bench", "table", "--"]);
    bench.args(env::args_os().skip_while(|arg| arg != "bench").skip(1));
    shell::outcome(&mut bench)
}
