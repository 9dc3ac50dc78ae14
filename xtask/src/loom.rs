//! The ring, the shared tables of the policy and the flow table under loom: every interleaving of their atomics, up to
//! a number of preemptions.

use anyhow::Result;
use clap::Args;

use crate::{Outcome, shell};

/// Tries every interleaving of the atomics of ring, policy and flow table (loom).
#[derive(Args)]
#[command(after_help = "Example:\n  cargo xtask loom --preemptions 3")]
pub(crate) struct Options {
    /// How often a thread may be preempted where it did not have to wait. Each additional preemption takes many times
    /// longer; 2 finds nearly all errors.
    #[arg(long, value_name = "N", default_value_t = 2)]
    preemptions: u32,
    /// Only the tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let mut test = shell::cargo();
    // Loom is slow in a debug build, and its flag applies to all crates of the build, so it has its own folder.
    test.args(["test", "--package", "rxsteer-loom", "--release", "--test", "loom"])
        .arg("--target-dir")
        .arg(shell::target_dir("loom"))
        .args(&options.filter)
        .env("RUSTFLAGS", shell::rustflags("--cfg loom"))
        // Only the test programs are optimized as one: optimizing across crates takes longer than it saves.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("LOOM_MAX_PREEMPTIONS", options.preemptions.to_string());
    shell::outcome(&mut test)
}
