//! Finds the costs of published machines from the rows without the mechanism that is predicted.
//!
//! ```text
//!   published::fitted_rows ─► objective ◄─ run ◄─ published::machine ◄─ values ◄─ simplex ─► fits/NAME.toml
//! ```
//!
//! Invariants: no code here, and no code that builds the machines, uses the other rows
//! (`tests/published.rs`). The same fit gives the same file, digit for digit.

mod hand_off;
mod rfs;
mod rps;
mod simplex;
mod sparse;

use crate::published::experiment::Experiment;
use crate::{RunResult, Scenario};
use rxsteer_core::ConfigError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The seed of all runs of a fit.
pub const SEED: u64 = 1;

/// The search ends when the corners of the simplex are closer together than this share.
const NEARNESS: f64 = 2e-3;

/// The largest number of runs for one part of a fit.
const MAX_RUNS: u32 = 150;

/// Why there is no fit, or no report based on one.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The core refuses the machine: its constants are wrong.
    #[error("the machine of the published experiment can't be simulated: {0}")]
    Machine(#[from] ConfigError),
    /// This version cannot read a committed file.
    #[error(
        "the committed fit of {0} can't be read: {1}; create it again with rxsteer sim --fit {0}"
    )]
    Unreadable(Experiment, String),
    /// The caller stopped the report before all its runs were done.
    #[error("the runs were stopped before all of them were done")]
    Stopped,
}

/// The result of a fit, as it is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// The command that makes the fit again.
    pub command: String,
    /// The seed of the runs.
    pub seed: u64,
    /// The separately searched parts, by name: for example one row of a table.
    pub part: BTreeMap<String, Part>,
}

/// The result of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The quantity that was minimised, and its inputs.
    pub objective: String,
    /// The minimum that was found.
    pub least: f64,
    /// The number of runs of the search.
    pub runs: u32,
    /// What the objective would be by chance alone: of the found machine against as many runs of itself as were
    /// published. Only for fits to single runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// The values that were found, by name with unit.
    pub value: BTreeMap<String, f64>,
    /// The results of searches from other starts, the best first. Only for fits from many starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other: Vec<End>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The objective there.
    pub least: f64,
    /// The values there, by name with unit.
    pub value: BTreeMap<String, f64>,
}

impl End {
    /// The value with this name; NaN if there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.value.get(name).copied().unwrap_or(f64::NAN)
    }
}

impl Part {
    /// The other results that the published runs cannot distinguish from the best one: their objective exceeds the
    /// minimum by no more than chance explains.
    pub fn equivalent(&self) -> impl Iterator<Item = &End> {
        let most = self.least + self.chance.unwrap_or(0.0);
        self.other.iter().filter(move |end| end.least <= most)
    }

    /// The value with this name; NaN if there is none. No machine runs with NaN.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.value.get(name).copied().unwrap_or(f64::NAN)
    }
}

impl Fit {
    /// The fit in the format of its file.
    ///
    /// # Panics
    /// Never: all of its contents can be written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let body = toml::to_string(self).expect("tables, texts and numbers are TOML");
        format!(
            "# Costs of a published machine, found from the rows of the table without what is predicted.\n\
             # Made by the command below; written by hand it would be no fit.\n{body}"
        )
    }
}

/// Makes the fit, which takes some seconds on one core, and some minutes for sparse.
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

/// The committed fit.
///
/// # Errors
/// [`FitError::Unreadable`].
pub fn committed(experiment: Experiment) -> Result<Fit, FitError> {
    let text = committed_text(experiment);
    toml::from_str(text).map_err(|error| FitError::Unreadable(experiment, error.to_string()))
}

/// The text of the committed file.
#[must_use]
pub fn committed_text(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Sparse => include_str!("../../fits/sparse.toml"),
        Experiment::Rfs => include_str!("../../fits/rfs.toml"),
        Experiment::HandOff => include_str!("../../fits/hand-off.toml"),
        Experiment::Rps => include_str!("../../fits/rps.toml"),
    }
}

/// One part: the named values with the start of the search, and the expected results of a run with these values.
struct Search<'a> {
    objective: &'a str,
    start: &'a [(&'a str, f64)],
    machine: &'a dyn Fn(&[f64]) -> Scenario,
    compared: &'a dyn Fn(&RunResult) -> Vec<Compared>,
}

/// A simulated figure, the published figure, and how much they may differ by chance.
struct Compared {
    simulated: f64,
    published: f64,
    /// As a share of the published figure.
    tolerance: f64,
}

impl Compared {
    /// A mean of many values: one run gives it within 1 %.
    fn mean(simulated: f64, published: f64) -> Compared {
        Compared { simulated, published, tolerance: 0.01 }
    }

    fn square(&self) -> f64 {
        ((self.simulated / self.published - 1.0) / self.tolerance).powi(2)
    }
}

impl Search<'_> {
    /// Minimises the sum of squared differences, each relative to its tolerance.
    fn part(&self) -> Result<Part, FitError> {
        let start: Vec<f64> = self.start.iter().map(|(_, start)| *start).collect();
        let found = simplex::minimize(&start, NEARNESS, MAX_RUNS, |values| {
            let result = crate::run(&(self.machine)(values), SEED)?;
            let squares = (self.compared)(&result).iter().map(Compared::square).sum();
            Ok::<f64, FitError>(squares)
        })?;
        let names = self.start.iter().map(|(name, _)| (*name).to_owned());
        Ok(Part {
            objective: self.objective.to_owned(),
            least: format!("{:.3e}", found.objective).parse().unwrap_or(found.objective),
            runs: found.evaluations,
            chance: None,
            value: names.zip(found.values).collect(),
            other: Vec::new(),
        })
    }
}
