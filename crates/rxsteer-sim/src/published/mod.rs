//! Published experiments and their predictions. The machine is fitted to the rows of a table without a mechanism,
//! then run with the mechanism, and the result is compared with the publication.
//!
//! ```text
//!   fitted_rows ─► crate::fit ─► fits/NAME.toml ─► machine ─► run with the policy ─┐
//!   predicted_rows ─────────────────────────────────────────────────────────────┴─► Report
//! ```
//!
//! Invariants: only reports use `predicted_rows`. A report states where the prediction misses, by how much, and
//! what the model lacks. It lists each constant that no fitted row determines, with its source.

pub(crate) mod experiment;
pub mod figures;
pub mod fitted_rows;
mod hand_off;
pub mod machine;
pub(crate) mod measured;
pub mod predicted_rows;
mod report;
mod rfs;
mod rps;
mod sparse;

pub use experiment::Experiment;
pub use report::{Report, Role, Row, Target};

use crate::fit::{self, FitError};
use crate::{RunResult, Scenario, engine};
use std::sync::atomic::AtomicBool;

/// The number of seeds of a report whose runs differ little: its figures are means over the seeds 1 to this
/// number.
pub const SEEDS: u64 = 3;

/// The largest factor by which a ratio of two simulated figures differed from the published one. A smaller difference
/// may not exist on a real machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownError {
    /// The metrics to which it applies.
    pub metrics: &'static [&'static str],
    /// The factor between the simulated and the published ratio.
    pub factor: f64,
    /// Where that factor was found.
    pub source: &'static str,
}

/// The known errors: the largest of all reports, over rows with a target and their latencies. A test compares them with
/// the reports.
pub const KNOWN_ERRORS: [KnownError; 3] = [
    KnownError {
        metrics: &["transactions_per_second", "bits_per_second", "packets_per_second"],
        factor: 1.181,
        source: "sparse-patch, one connection in slots",
    },
    KnownError {
        metrics: &["cpu_per_packet_ns"],
        factor: 1.738,
        source: "rps-slides, e1000 with RPS: CPU % per transaction",
    },
    KnownError {
        metrics: &["latency_p99_ns"],
        factor: 2.095,
        source: "rfs-commit, RPC test with RFS",
    },
];

/// The known error of a metric; `None` if it was never compared with a published figure.
#[must_use]
pub fn known_error(metric: &str) -> Option<&'static KnownError> {
    KNOWN_ERRORS.iter().find(|known| known.metrics.contains(&metric))
}

/// Runs an experiment on its fitted machine, and on others that the fitted rows allow. This takes a few seconds on one
/// core, and about twenty for sparse. When `stop` becomes true, the experiment ends without a report, since each figure
/// is a mean over whole runs.
///
/// # Errors
/// When the committed fit can't be read, or its machine can't be simulated; [`FitError::Stopped`] after `stop`.
pub fn report(experiment: Experiment, stop: &AtomicBool) -> Result<Report, FitError> {
    let fit = fit::committed(experiment)?;
    match experiment {
        Experiment::Sparse => sparse::report(fit, stop),
        Experiment::Rfs => rfs::report(fit, stop),
        Experiment::HandOff => hand_off::report(fit, stop),
        Experiment::Rps => rps::report(fit, stop),
    }
}

/// The mean of `figure` over runs of the scenario.
fn mean(runs: &[RunResult], figure: impl Fn(&RunResult) -> f64) -> f64 {
    runs.iter().map(figure).sum::<f64>() / runs.len() as f64
}

/// Runs the scenario with all seeds of a report.
fn runs(scenario: &Scenario, stop: &AtomicBool) -> Result<Vec<RunResult>, FitError> {
    let one = |seed| {
        let run = engine::run_unless(stop, scenario, seed)?;
        run.filter(|run| run.measured_ns == scenario.measured_ns()).ok_or(FitError::Stopped)
    };
    (1..=SEEDS).map(one).collect()
}
