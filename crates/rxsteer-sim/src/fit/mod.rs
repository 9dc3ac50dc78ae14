//! Finds the costs of published machines from the rows without the mechanism that is predicted.
//!
//! ```text
//!   published::fitted_rows ─► objective ◄─ run ◄─ published::machine ◄─ values ◄─ simplex ─► fits/NAME.toml
//! ```
//!
//! What must hold: nothing here, and nothing that builds the machines, knows the other rows
//! (`tests/published_split.rs`); the same fit gives the same file, to the digit.

mod hand_off;
mod rfs;
mod rps;
mod simplex;
mod sparse;

use crate::published::Experiment;
use crate::{RunResult, Scenario};
use rxsteer_core::ConfigError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The seed of all runs of a fit.
pub const SEED: u64 = 1;

/// The corners of the last simplex are nearer to each other than this share.
const NEARNESS: f64 = 2e-3;

/// Most runs of one part of a fit.
const MOST_RUNS: u32 = 150;

/// Why there is no fit, or no report that rests on one.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The core refuses the machine: a mistake in its constants.
    #[error("the machine of the published experiment can't be simulated: {0}")]
    Machine(#[from] ConfigError),
    /// A committed file is not what this version reads.
    #[error(
        "the committed fit of {0} can't be read: {1}; write it anew with rxsteer sim --fit {0}"
    )]
    Unreadable(Experiment, String),
}

/// The result of a fit: what is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// How it is made again.
    pub command: String,
    /// The seed of its runs.
    pub seed: u64,
    /// What was searched on its own, by name: one row of a table, say.
    pub part: BTreeMap<String, Part>,
}

/// What was found for one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What was made least, and what from.
    pub objective: String,
    /// How small it became.
    pub least: f64,
    /// How many runs that took.
    pub runs: u32,
    /// What was found, by name with its unit.
    pub value: BTreeMap<String, f64>,
}

impl Part {
    /// The value of that name; NaN where there is none, which no machine runs with.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.value.get(name).copied().unwrap_or(f64::NAN)
    }
}

impl Fit {
    /// The fit as a file.
    ///
    /// # Panics
    /// Never: what it has can be written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let body = toml::to_string(self).expect("tables, texts and numbers are TOML");
        format!(
            "# Costs of a published machine, found from the rows of the table without what is predicted.\n\
             # Made by the command below; written by hand it would be no fit.\n{body}"
        )
    }
}

/// Makes the fit: some seconds, on one core.
///
/// # Errors
/// [`FitError::Machine`].
pub fn make(experiment: Experiment) -> Result<Fit, FitError> {
    let part = match experiment {
        Experiment::Sparse => sparse::parts()?,
        Experiment::Rfs => rfs::parts()?,
        Experiment::HandOff => hand_off::parts()?,
        Experiment::Rps => rps::parts()?,
    };
    Ok(Fit { command: format!("rxsteer sim --fit {experiment}"), seed: SEED, part })
}

/// The fit that is committed.
///
/// # Errors
/// [`FitError::Unreadable`].
pub fn committed(experiment: Experiment) -> Result<Fit, FitError> {
    let text = committed_text(experiment);
    toml::from_str(text).map_err(|error| FitError::Unreadable(experiment, error.to_string()))
}

/// The committed file.
#[must_use]
pub fn committed_text(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Sparse => include_str!("../../fits/sparse.toml"),
        Experiment::Rfs => include_str!("../../fits/rfs.toml"),
        Experiment::HandOff => include_str!("../../fits/hand-off.toml"),
        Experiment::Rps => include_str!("../../fits/rps.toml"),
    }
}

/// One part: values by name with where the search begins, and what a run of a machine with them should show.
struct Search<'a> {
    objective: &'a str,
    start: &'a [(&'a str, f64)],
    machine: &'a dyn Fn(&[f64]) -> Scenario,
    compared: &'a dyn Fn(&RunResult) -> Vec<Compared>,
}

/// A figure as simulated and as published, and how far apart they may be by chance.
struct Compared {
    simulated: f64,
    published: f64,
    /// A share of what was published.
    tolerance: f64,
}

impl Compared {
    /// A mean of many: a run gives it within 1 %.
    fn mean(simulated: f64, published: f64) -> Compared {
        Compared { simulated, published, tolerance: 0.01 }
    }

    fn square(&self) -> f64 {
        ((self.simulated / self.published - 1.0) / self.tolerance).powi(2)
    }
}

impl Search<'_> {
    /// Makes the sum of squared differences least, each relative to its tolerance.
    fn part(&self) -> Result<Part, FitError> {
        let start: Vec<f64> = self.start.iter().map(|(_, start)| *start).collect();
        let found = simplex::minimize(&start, NEARNESS, MOST_RUNS, |values| {
            let result = crate::run(&(self.machine)(values), SEED)?;
            let squares = (self.compared)(&result).iter().map(Compared::square).sum();
            Ok::<f64, FitError>(squares)
        })?;
        let names = self.start.iter().map(|(name, _)| (*name).to_owned());
        Ok(Part {
            objective: self.objective.to_owned(),
            least: format!("{:.3e}", found.objective).parse().unwrap_or(found.objective),
            runs: found.evaluations,
            value: names.zip(found.values).collect(),
        })
    }
}
