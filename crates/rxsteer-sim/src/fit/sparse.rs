//! The router of sparse-patch, fitted to the column "Original Kernel".
//!
//! The objective for each number of connections is the sum of three terms: the squared difference of both
//! directions' sum, in per cent; ten times the square of the part of that difference beyond 3 %; and with a small
//! weight each direction by itself, which distinguishes the costs of data and acknowledgements.

use super::{FitError, Part, SEED, simplex};
use crate::published::fitted_rows::SPARSE_ORIGINAL;
use crate::published::machine::router::{self, VALUES, Way};
use crate::seeds::{Plan, run_cells};
use rxsteer_core::Policy;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;

/// The number of seeds for each point of the search: chance changes the mean of a row by up to 2 %.
const SEEDS: u32 = 60;

/// The start of the search: the result of coarser searches on the same rows.
const START: [f64; 6] = [125e3, 59.8e3, 17.6, 0.633, 873e3, 8.53];

const NEARNESS: f64 = 5e-3;
const MOST_EVALUATIONS: u32 = 100;

/// The weight of a single direction relative to the sum.
const DIRECTION_WEIGHT: f64 = 0.025;
/// The difference of a row's sum, in per cent, beyond which it has more weight.
const LEEWAY: f64 = 3.0;

pub(super) fn parts() -> Result<BTreeMap<String, Part>, FitError> {
    let mut runs = 0;
    let found = simplex::minimize(&START, NEARNESS, MOST_EVALUATIONS, |values| {
        let rates = rates(values)?;
        runs += SEEDS * rates.len() as u32;
        Ok::<f64, FitError>(objective(&rates))
    })?;
    let names = VALUES.iter().map(|name| (*name).to_owned());
    let part = Part {
        objective:
            "squared differences of the sums of both directions, original kernel, in per cent; \
                    see src/fit/sparse.rs"
                .to_owned(),
        least: format!("{:.3e}", found.objective).parse().unwrap_or(found.objective),
        runs,
        value: names.zip(found.values).collect(),
    };
    Ok(BTreeMap::from([("original".to_owned(), part)]))
}

/// The mean rate of each row there and back, one after the other, in Mbit/s.
fn rates(values: &[f64]) -> Result<Vec<f64>, FitError> {
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let plan = Plan { first_seed: SEED, seeds: SEEDS, threads };
    let cell = |cell: usize, _seed: u64| {
        let way = if cell.is_multiple_of(2) { Way::There } else { Way::Back };
        let connections = SPARSE_ORIGINAL[cell / 2].connections;
        router::scenario(values, connections, way, Policy::Rps)
    };
    let never = AtomicBool::new(false);
    let runs = run_cells(2 * SPARSE_ORIGINAL.len(), plan, &cell, &|| {}, &never)?;
    let mean = |runs: &Vec<crate::RunResult>| {
        runs.iter().map(router::mbits).sum::<f64>() / runs.len() as f64
    };
    Ok(runs.cells.iter().map(mean).collect())
}

fn objective(rates: &[f64]) -> f64 {
    let rows = SPARSE_ORIGINAL.iter().zip(rates.chunks_exact(2));
    rows.map(|(row, rates)| {
        let off = |simulated: f64, published: f64| 100.0 * (simulated / published - 1.0);
        let sum = off(rates[0] + rates[1], row.there + row.back);
        let beyond = (sum.abs() - LEEWAY).max(0.0);
        let ways = off(rates[0], row.there).powi(2) + off(rates[1], row.back).powi(2);
        sum.powi(2) + 10.0 * beyond.powi(2) + DIRECTION_WEIGHT * ways
    })
    .sum()
}
