//! The router of sparse-patch, fitted to the ten runs each way of every row of the column "Original Kernel".
//!
//! The objective compares distributions, not only means: the runs of a row and direction are sorted, and the simulated
//! runs are averaged in as many groups as there are published runs. The differences are squared, in per cent of the
//! row's published mean. This is the squared Wasserstein distance; it includes the mean, the spread, the best and the
//! worst run.
//!
//! The rows may not determine the values, so there are many searches, which begin at the best of many random points.
//! Results that ten runs cannot distinguish from the best one stay in the fit, and reports run them as well.

use super::{End, FitError, Part, SEED, simplex};
use crate::published::fitted_rows::{SPARSE_ORIGINAL, SPARSE_RUNS};
use crate::published::machine::router::{self, VALUES, Way};
use crate::seeds::{Plan, run_cells};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_core::Policy;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;

/// The range of the random points, which are uniform in the logarithms of the values, in the order of [`VALUES`]: a
/// third to three times what a board of 25 MHz needs for the published rates if one CPU forwards alone, and any loss by
/// SMT and caches.
const DRAWN_FROM: [(f64, f64); 6] =
    [(40e3, 400e3), (20e3, 180e3), (6.0, 54.0), (0.4, 1.0), (10e3, 2500e3), (1.0, 100.0)];

/// How many random points there are, and how many of them begin a search.
const DRAWN: usize = 100;
const STARTS: usize = 10;

/// Seeds for each random point, for each step of a search, and for the comparison of results.
const DRAWN_SEEDS: u32 = 10;
const SEARCH_SEEDS: u32 = 20;
const END_SEEDS: u32 = 100;

const NEARNESS: f64 = 1e-2;
const MAX_EVALUATIONS: u32 = 60;

/// The simulated rates in Mbit/s, by row and direction, of each seed.
type Rates = Vec<Vec<f64>>;

pub(super) fn parts() -> Result<BTreeMap<String, Part>, FitError> {
    let mut runs = 0;
    let mut evaluate = |values: &[f64], seeds| {
        runs += seeds * CELLS as u32;
        rates(values, seeds)
    };
    let mut drawn = Vec::new();
    for point in points() {
        drawn.push((objective(&evaluate(&point, DRAWN_SEEDS)?), point));
    }
    drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ends = Vec::new();
    for (_, start) in &drawn[..STARTS] {
        let found = simplex::minimize(start, NEARNESS, MAX_EVALUATIONS, |values| {
            Ok::<f64, FitError>(objective(&evaluate(values, SEARCH_SEEDS)?))
        })?;
        let rates = evaluate(&found.values, END_SEEDS)?;
        let names = VALUES.iter().map(|name| (*name).to_owned());
        let value = names.zip(found.values).collect();
        ends.push((End { least: readable(objective(&rates)), value }, readable(chance(&rates))));
    }
    ends.sort_by(|a, b| a.0.least.total_cmp(&b.0.least));
    let (best, chance) = ends.remove(0);
    let part = Part {
        objective: "squared Wasserstein distance of the runs of each row and direction, original kernel, in per cent of \
                    the row's mean; the mean over all; see src/fit/sparse.rs"
            .to_owned(),
        least: best.least,
        runs,
        chance: Some(chance),
        value: best.value,
        other: ends.into_iter().map(|(end, _)| end).collect(),
    };
    Ok(BTreeMap::from([("original".to_owned(), part)]))
}

/// Points all over [`DRAWN_FROM`], always the same ones.
fn points() -> Vec<[f64; 6]> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut point =
        || DRAWN_FROM.map(|(least, most)| rng.random_range(least.ln()..most.ln()).exp());
    (0..DRAWN).map(|_| point()).collect()
}

/// Three digits, as a file holds it.
fn readable(value: f64) -> f64 {
    format!("{value:.3}").parse().unwrap_or(value)
}

/// Each row, there and back.
const CELLS: usize = 2 * SPARSE_ORIGINAL.len();

/// The published runs of a row and direction.
fn published(cell: usize) -> &'static [f64; SPARSE_RUNS] {
    const ROWS: &[crate::published::fitted_rows::SparseRow; 12] = &SPARSE_ORIGINAL;
    let row = &ROWS[cell / 2];
    if cell.is_multiple_of(2) { &row.there } else { &row.back }
}

fn rates(values: &[f64], seeds: u32) -> Result<Rates, FitError> {
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let plan = Plan { first_seed: SEED, seeds, threads };
    let cell = |cell: usize, _seed: u64| {
        let way = if cell.is_multiple_of(2) { Way::There } else { Way::Back };
        let connections = SPARSE_ORIGINAL[cell / 2].connections;
        router::scenario(values, connections, way, Policy::Rps)
    };
    let never = AtomicBool::new(false);
    let runs = run_cells(CELLS, plan, &cell, &|| {}, &never)?;
    Ok(runs.cells.iter().map(|runs| runs.iter().map(router::mbits).collect()).collect())
}

/// The mean of [`distance`] over all rows and directions.
fn objective(rates: &Rates) -> f64 {
    let of = |(cell, rates): (usize, &Vec<f64>)| distance(rates, published(cell));
    rates.iter().enumerate().map(of).sum::<f64>() / rates.len() as f64
}

/// The objective of the simulated machine if its own runs were the published ones, [`SPARSE_RUNS`] of them: a mean over
/// such measurements.
fn chance(rates: &Rates) -> f64 {
    let of = |rates: &Vec<f64>| {
        let measured = rates.chunks_exact(SPARSE_RUNS);
        let count = measured.len() as f64;
        measured.map(|measured| distance(rates, measured)).sum::<f64>() / count
    };
    rates.iter().map(of).sum::<f64>() / rates.len() as f64
}

/// The squared distance of two distributions, in per cent of the mean of `measured`. Each measured run corresponds to
/// the same number of simulated ones.
fn distance(simulated: &[f64], measured: &[f64]) -> f64 {
    let sorted = |runs: &[f64]| {
        let mut runs = runs.to_vec();
        runs.sort_by(f64::total_cmp);
        runs
    };
    let (simulated, measured) = (sorted(simulated), sorted(measured));
    let each = simulated.len() / measured.len();
    let mean = measured.iter().sum::<f64>() / measured.len() as f64;
    let squares = simulated.chunks_exact(each).zip(&measured).map(|(simulated, measured)| {
        let simulated = simulated.iter().sum::<f64>() / each as f64;
        (100.0 * (simulated - measured) / mean).powi(2)
    });
    squares.sum::<f64>() / measured.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_sees_mean_and_spread_and_not_the_order_of_runs() {
        let published = [9.0, 10.0, 11.0, 10.0];
        assert_eq!(distance(&[10.0, 11.0, 9.0, 10.0], &published), 0.0);
        // All runs are 1 more than the published ones: 10 % of their mean.
        assert!((distance(&[11.0, 12.0, 10.0, 11.0], &published) - 100.0).abs() < 1e-9);
        // The mean is right, and half of the runs are off by 1.
        assert!((distance(&[10.0; 8], &published) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn machine_measured_itself_differs_by_chance_alone() {
        let same: Rates = vec![vec![30.0; 20]; CELLS];
        assert_eq!(chance(&same), 0.0);
        let two: Rates = vec![[vec![20.0; 10], vec![40.0; 10]].concat(); CELLS];
        // Half of the simulated runs are 20 off: 20 over 20, and 20 over 40.
        assert!((chance(&two) - (5000.0 + 1250.0) / 2.0).abs() < 1e-9);
        assert!(objective(&same) > 0.0);
    }

    #[test]
    fn points_are_all_over_and_always_the_same() {
        let points = points();
        assert_eq!(points, super::points());
        for (axis, (least, most)) in DRAWN_FROM.into_iter().enumerate() {
            let middle = (least * most).sqrt();
            let above = points.iter().filter(|point| point[axis] > middle).count();
            assert!((30..=70).contains(&above), "{axis}: {above}");
            assert!(points.iter().all(|point| (least..most).contains(&point[axis])));
        }
    }
}
