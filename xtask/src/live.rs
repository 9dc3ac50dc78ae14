//! Long tests of `rxsteer run` on live traffic.

use anyhow::{Result, bail};
use clap::Args;

use crate::{Outcome, shell};

/// Tests `rxsteer run` on live traffic in network namespaces of its own; requires root, clang and two CPUs.
///
/// The tests cover order, conservation of packets, real clients, kills, CPUs that go offline, faults, and captures.
/// Tests that this machine can't run print SKIPPED, with the reason.
#[derive(Args)]
#[command(after_help = "Examples:\n  cargo xtask live\n  cargo xtask live --full --only order")]
pub(crate) struct Options {
    /// Runs the full tests, which take more than an hour: 10,000,000 numbered packets a run, 200 kills,
    /// 50 times offline. Also compares the C policy and the programs in the kernel with the core, with ten times as
    /// many packets. Without this option, it runs the short tests of ./test.
    #[arg(long)]
    full: bool,
    /// Only tests whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    // The tests run the binary in their build folder, which a test build of their own crate does not build.
    let build = shell::cargo().args(["build", "--quiet", "--package", "rxsteer-cli"]).status()?;
    if !build.success() {
        bail!("rxsteer does not build");
    }
    let mut test = shell::cargo();
    test.args(["test", "--quiet", "--package", "rxsteer-live", "--test", "live", "--"]);
    test.args(&options.only).arg("--test-threads=1");
    if !options.full {
        return shell::outcome(&mut test);
    }
    let mut compare = shell::cargo();
    compare.args(["test", "--quiet", "--test", "it"]);
    compare.args([
        "--package",
        "rxsteer-bpf-native",
        "--package",
        "rxsteer-xdp",
        "--",
        "policy::",
        "parse::",
        "change::",
    ]);
    for test in [&mut test, &mut compare] {
        if let Outcome::Failed = shell::outcome(test.env("RXSTEER_LIVE", "full"))? {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Passed)
}
