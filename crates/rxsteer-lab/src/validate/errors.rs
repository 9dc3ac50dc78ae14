//! The errors of the predictions, compared with those of the null model.

use super::{Expected, Figure, Load, Row};
use serde::Serialize;

/// If the ends of a reference's interval have a larger ratio than this, the machine is too noisy for a verdict.
const MAX_NOISE: f64 = 1.25;

/// The error that the goals allow a single row.
const QUARTER: f64 = 0.25;

/// Whether the measurement is precise enough to judge an error of a quarter.
fn is_precise(figure: &Figure) -> bool {
    [figure.low, figure.high].iter().all(|end| (end / figure.median - 1.0).abs() <= QUARTER)
}

/// Absolute errors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Their mean.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// Rows with an error of at most a quarter.
    pub within_quarter: usize,
    /// The same among the rows that were measured to within a quarter ([`Score::precise`]).
    pub precise_within_quarter: usize,
    /// Of the pairs of methods whose measured intervals under the same load do not overlap, how many are predicted in
    /// the right order.
    pub right_order: usize,
}

/// The errors of one figure over all rows that have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// What is predicted: throughput, p50 or p99.
    pub what: &'static str,
    /// Whether the predictions are adjusted to the speed of the machine during the measurement.
    pub adjusted: bool,
    /// Rows.
    pub rows: usize,
    /// Rows whose measured interval has both ends within a quarter of its median. The others can neither confirm nor
    /// refute a prediction to within a quarter.
    pub precise: usize,
    /// The simulator's errors.
    pub simulator: Errors,
    /// The null model's errors.
    pub null: Errors,
    /// Rows in which the simulator is closer than the null model by more than a hundredth of the figure.
    pub nearer: usize,
    /// Rows in which the null model is closer by that much.
    pub farther: usize,
    /// Pairs of methods whose measured intervals under the same load do not overlap.
    pub pairs: usize,
}

/// A figure of a row: its name, its value in a prediction, and its measured value.
type Of = (&'static str, fn(&Expected) -> Option<f64>, fn(&Row) -> Option<Figure>);

const FIGURES: [Of; 3] = [
    ("throughput", |of| Some(of.rate), |row| row.measured.rate.filter(|_| !is_fixed(row))),
    ("p50", |of| of.p50, |row| row.measured.p50),
    ("p99", |of| of.p99, |row| row.measured.p99),
];

/// Whether the schedule fixes the number of requests, so that the rate is not a prediction.
fn is_fixed(row: &Row) -> bool {
    matches!(&row.prediction.load, Load::Requests(load) if load.rate > 0)
}

/// The scores of the predictions, and of the adjusted ones.
pub(super) fn scores(rows: &[Row]) -> Vec<Score> {
    let mut scores = Vec::new();
    for adjusted in [false, true] {
        scores.extend(FIGURES.iter().filter_map(|figure| score(rows, figure, adjusted)));
    }
    scores
}

fn score(rows: &[Row], (what, expected, measured): &Of, adjusted: bool) -> Option<Score> {
    // Rows that have the figure: the row, simulator, null model, measured.
    let all: Vec<(&Row, f64, f64, Figure)> = rows
        .iter()
        .filter_map(|row| {
            let (simulator, null) = if adjusted {
                (&row.adjusted, &row.adjusted_null)
            } else {
                (&row.prediction.predicted, &row.prediction.null)
            };
            Some((row, expected(simulator)?, expected(null)?, measured(row)?))
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let mut pairs = Vec::new();
    for a in &all {
        for b in &all {
            if a.0.prediction.load == b.0.prediction.load && a.3.high < b.3.low {
                pairs.push((a, b));
            }
        }
    }
    let error = |of: f64, figure: &Figure| (of / figure.median - 1.0).abs();
    let errors = |of: fn(&(&Row, f64, f64, Figure)) -> f64| {
        let each = || all.iter().map(|row| error(of(row), &row.3));
        Errors {
            mean: each().sum::<f64>() / all.len() as f64,
            worst: each().fold(0.0, f64::max),
            within_quarter: each().filter(|error| *error <= QUARTER).count(),
            precise_within_quarter: all
                .iter()
                .filter(|row| is_precise(&row.3) && error(of(row), &row.3) <= QUARTER)
                .count(),
            right_order: pairs.iter().filter(|(a, b)| of(a) < of(b)).count(),
        }
    };
    let nearer = |sign: f64| {
        let by = |row: &&(&Row, f64, f64, Figure)| {
            sign * (error(row.2, &row.3) - error(row.1, &row.3)) > 0.01
        };
        all.iter().filter(by).count()
    };
    Some(Score {
        what,
        adjusted,
        rows: all.len(),
        precise: all.iter().filter(|row| is_precise(&row.3)).count(),
        simulator: errors(|row| row.1),
        null: errors(|row| row.2),
        nearer: nearer(1.0),
        farther: nearer(-1.0),
        pairs: pairs.len(),
    })
}

/// Why the figures allow no verdict; `None` if they allow one.
pub(super) fn no_verdict(
    quick: bool,
    partial: bool,
    rounds: usize,
    steal_percent: f64,
    references: &[Option<Figure>; 2],
) -> Option<String> {
    let of_the_run = crate::experiment::no_verdict(quick, partial, rounds, steal_percent);
    if of_the_run.is_some() {
        return of_the_run;
    }
    for (name, reference) in ["forwarding", "requests"].iter().zip(references) {
        let Some(figure) = reference else {
            return Some(format!("the reference of {name} has no figure"));
        };
        let noise = figure.high / figure.low;
        if noise > MAX_NOISE {
            return Some(format!(
                "the reference of {name} spread by a factor of {noise:.2} over the rounds (its 95 % interval), more than {MAX_NOISE}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Calls, Frames, Measured, Method, Prediction};
    use super::*;

    fn expected(rate: f64) -> Expected {
        Expected { rate, p50: None, p99: None }
    }

    fn row(method: Method, predicted: f64, null: f64, measured: [f64; 2]) -> Row {
        Row {
            prediction: Prediction {
                method,
                load: Load::Forward(Frames::CALIBRATED),
                predicted: expected(predicted),
                null: expected(null),
            },
            adjusted: expected(0.9 * predicted),
            adjusted_null: expected(0.9 * null),
            measured: Measured { rate: Figure::of(&measured, "1/s"), ..Measured::default() },
        }
    }

    #[test]
    fn errors_are_without_sign_and_order_counts_distinct_pairs_only() {
        let rows = [
            row(Method::None, 110.0, 100.0, [99.0, 101.0]),
            row(Method::KernelRps, 150.0, 100.0, [199.0, 201.0]),
            // Overlaps with the previous one.
            row(Method::Kernel("rps"), 100.0, 100.0, [190.0, 210.0]),
        ];
        let scores = scores(&rows);
        let [first, adjusted] = scores[..] else { panic!("{scores:?}") };
        let Errors { mean, worst, within_quarter, right_order, .. } = first.simulator;
        assert!((mean - (0.1 + 0.25 + 0.5) / 3.0).abs() < 1e-9, "{first:?}");
        assert!((worst - 0.5).abs() < 1e-9, "{first:?}");
        // RPS is predicted above no steering, rxsteer is not.
        assert_eq!((within_quarter, right_order, first.pairs), (2, 1, 2));
        assert_eq!((first.precise, first.simulator.precise_within_quarter), (3, 2));
        // The null model predicts that all are equal, which is not an order.
        assert_eq!(first.null.right_order, 0);
        // It is right about no steering, as wrong about rxsteer, and wrong about RPS.
        assert_eq!((first.nearer, first.farther), (1, 1));
        // 99 instead of 110 beside 100.
        assert!(adjusted.adjusted && adjusted.simulator.mean > mean, "{adjusted:?}");
    }

    #[test]
    fn measurement_of_wide_interval_judges_no_prediction() {
        let rows = [
            row(Method::None, 110.0, 100.0, [60.0, 140.0]),
            row(Method::KernelRps, 150.0, 100.0, [99.0, 101.0]),
        ];
        let [first, _] = scores(&rows)[..] else { panic!() };
        assert_eq!((first.simulator.within_quarter, first.null.within_quarter), (1, 2));
        assert_eq!(first.precise, 1);
        let Score { simulator, null, .. } = first;
        assert_eq!((simulator.precise_within_quarter, null.precise_within_quarter), (0, 1));
    }

    #[test]
    fn rate_of_an_open_loop_is_no_prediction() {
        let mut open = row(Method::None, 1000.0, 1000.0, [999.0, 1001.0]);
        open.prediction.load = Load::Requests(Calls { rate: 1000, ..Calls::CALIBRATED });
        assert_eq!(scores(&[open]), []);
    }

    #[test]
    fn noisy_short_or_interrupted_runs_have_no_verdict() {
        let figure = |low, high| Figure::of(&[low, high], "1/s");
        let calm = [figure(100.0, 101.0), figure(10.0, 10.0)];
        let why = |partial, rounds, steal, references: &[Option<Figure>; 2]| {
            no_verdict(false, partial, rounds, steal, references).unwrap_or_default()
        };
        assert_eq!(why(false, 6, 1.0, &calm), "");
        assert!(why(true, 6, 1.0, &calm).contains("interrupted"));
        assert!(why(false, 5, 1.0, &calm).contains("too few"));
        assert!(why(false, 6, 9.0, &calm).contains("hypervisor"));
        assert!(why(false, 6, 1.0, &[figure(100.0, 130.0), calm[1]]).contains("of forwarding"));
        assert!(why(false, 6, 1.0, &[calm[0], None]).contains("of requests has no figure"));
    }
}
