//! The tests of the crates with threads, under ThreadSanitizer.
//!
//! The sanitizer sees only code that was built with it, so the standard library is built as well. Both flags are
//! unstable. With RUSTC_BOOTSTRAP the stable compiler accepts them, so the tests use the compiler of the released
//! binaries.

use anyhow::Result;
use clap::Args;

use crate::{Outcome, rustup, shell};

/// Optimization levels below those of the test profile. Under the sanitizer, optimizing takes longer than it saves in
/// the tests.
const OPTIMIZATION: [(&str, u8); 6] = [
    ("rxsteer-core", 0),
    ("rxsteer-flows", 1),
    ("rxsteer-io", 0),
    ("rxsteer-packet", 0),
    ("rxsteer-ring", 0),
    ("zstd-sys", 0),
];

/// Long tests of a single thread, in which the sanitizer has nothing to find.
const SINGLE_THREAD: [&str; 4] = [
    "model::",
    "victims::",
    "flood_leaves_established_flows_alone",
    "all_possible_cpus_use_one_flow",
];

/// Runs the tests of the crates with threads under ThreadSanitizer.
#[derive(Args)]
#[command(after_help = "Example:\n  cargo xtask tsan --package rxsteer-ring --filter model")]
pub(crate) struct Options {
    /// The crates to test.
    #[arg(long, short, value_name = "NAME", default_values = ["rxsteer-ring", "rxsteer-flows", "rxsteer-user"])]
    package: Vec<String>,
    /// Only the tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let host = rustup::host()?;
    if !has_tsan(&host) {
        return Ok(Outcome::Skipped(format!("tsan: Rust has no ThreadSanitizer for {host}.")));
    }
    if let Err(why) = rustup::std_source()? {
        return Ok(Outcome::Skipped(format!("tsan: {why}")));
    }
    let mut test = shell::cargo();
    // Doc tests are left out: they only show calls, and are built without the flags.
    test.args(["test", "-Zbuild-std", "--lib", "--tests", "--no-fail-fast", "--target", &host])
        .arg("--target-dir")
        .arg(shell::target_dir("tsan"))
        .args(options.package.iter().flat_map(|name| ["--package", name]))
        .args(OPTIMIZATION.iter().flat_map(|(name, level)| {
            ["--config".into(), format!("profile.dev.package.{name}.opt-level={level}")]
        }))
        .args(&options.filter)
        .arg("--")
        .args(SINGLE_THREAD.iter().flat_map(|name| ["--skip", name]))
        .env("RUSTC_BOOTSTRAP", "1")
        // One test requests more memory than there is, and expects the refusal.
        .env("TSAN_OPTIONS", "allocator_may_return_null=1")
        .env("RUSTFLAGS", shell::rustflags("-Zsanitizer=thread"));
    shell::outcome(&mut test)
}

/// Whether the sanitizer supports this target, of those that rxsteer supports.
fn has_tsan(host: &str) -> bool {
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].contains(&host)
}
