//! Predicts this machine by the simulator with calibrated costs, then measures it.
//!
//! ```text
//!   calibration ─► predict(): the simulator, for loads that were not calibrated ─► a file, written first
//!                                                      │
//!                  measure(): interleaved rounds ──────┴─► predicted beside measured beside a null model
//! ```
//!
//! The *null model* needs no simulator: whatever the method, all packets cost what they cost one CPU without steering, so the rate is
//! the offered one up to that CPU's limit. A prediction that is no better than that is no evidence for the simulator.

mod rows;

use crate::error::{LabError, Result};
use crate::experiment::{Figure, Machine, Method};
use crate::forwarding::{End, Forwarding};
use crate::rounds::{Rounds, interleaved};
use rxsteer_sim::RunResult;
use rxsteer_sim::result::CpuResult;
use rxsteer_sim::seeds::{Plan, run_seeds};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use rows::Load;

/// A prediction.
#[derive(Debug, Clone, Serialize)]
pub struct Prediction {
    /// The method of steering, over CPUs `cpus`.
    pub method: Method,
    /// The CPUs to which packets are steered.
    pub cpus: Vec<usize>,
    /// The load.
    #[serde(flatten)]
    pub load: Load,
    /// Forwarded packets a second, as the simulator predicts.
    pub predicted: f64,
    /// The same, as the null model has it.
    pub null: f64,
}

/// A prediction beside what was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The prediction.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Forwarded packets a second, as measured; `None` if no round has a figure.
    pub measured: Option<Figure>,
    /// The prediction's error: 0.1 is a tenth too much.
    pub error: Option<f64>,
    /// The null model's error.
    pub null_error: Option<f64>,
}

/// The errors of all rows, without their signs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Errors {
    /// Their mean.
    pub mean: f64,
    /// The worst.
    pub worst: f64,
    /// Of the pairs of methods whose measured intervals under the same load do not overlap, the share that is in the right order.
    /// `None` without such pairs.
    pub right_order: Option<f64>,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct Validation {
    /// The machine.
    pub machine: Machine,
    /// Rounds that were begun.
    pub rounds: usize,
    /// Whether it was a short run, whose figures decide nothing.
    pub quick: bool,
    /// Whether it was interrupted.
    pub partial: bool,
    /// Steal time while it ran, in percent of all CPUs.
    pub steal_percent: f64,
    /// Rows in the order of their predictions.
    pub rows: Vec<Row>,
    /// The simulator's errors; `None` if nothing was measured.
    pub simulator: Option<Errors>,
    /// The null model's.
    pub null: Option<Errors>,
    /// Pairs of methods whose measured intervals under the same load do not overlap.
    pub distinct_pairs: usize,
    /// Why measurements have no figure.
    pub failures: Vec<String>,
}

/// Predicts every row.
///
/// `text` is the scenario of a calibration, `name` its name in messages.
///
/// # Errors
///
/// If the scenario can't be read, lacks a cost set, or has no traffic `transit`; with the line.
pub fn predict(text: &str, name: &str, quick: bool, stop: &AtomicBool) -> Result<Vec<Prediction>> {
    let unreadable = |why: String| LabError::Scenario { why };
    let base =
        rxsteer_sim::file::read(text, name, &[]).map_err(|why| unreadable(why.to_string()))?;
    let costs = base.costs;
    let alone = |load: &Load| {
        costs.receive
            + costs.protocol
            + costs.transmit
            + costs.protocol_byte * f64::from(load.length)
    };
    let capacity = 1e9 / alone(&Load::calibrated());
    let mut predictions = Vec::new();
    for (method, load) in rows::all(capacity, quick) {
        let (set, policy) = method.simulated();
        let simulate = |rate: f64| -> Result<Option<Simulated>> {
            let mut sets = vec![
                ("steering.policy", policy.to_owned()),
                ("traffic.transit.flows", load.flows.to_string()),
                ("traffic.transit.frame_bytes", load.length.to_string()),
                ("traffic.transit.rate", format!("{rate:.0}")),
                ("duration", if quick { "40ms" } else { "120ms" }.to_owned()),
                ("warm_up", if quick { "10ms" } else { "20ms" }.to_owned()),
            ];
            if policy != "none" {
                sets.push(("costs.set", set.to_owned()));
            }
            let sets: Vec<_> =
                sets.into_iter().map(|(path, value)| (path.to_owned(), value)).collect();
            let scenario = rxsteer_sim::file::read(text, name, &sets)
                .map_err(|why| unreadable(why.to_string()))?;
            // The hash of a flow depends on the seed; few flows spread over the CPUs by chance.
            let seeds = if quick { 1 } else { 3 };
            let plan = Plan { first_seed: 1, seeds, threads: NonZeroUsize::MIN };
            let runs = run_seeds(&scenario, plan, &|| {}, stop)
                .map_err(|why| unreadable(format!("the simulator refuses it: {why}")))?;
            Ok((!runs.stopped).then(|| Simulated::of(&runs.cells[0])))
        };
        // More than any method forwards, if frames are made as fast as they are taken.
        let rate = if load.rate > 0.0 { load.rate } else { 4.0 * capacity };
        let Some(predicted) = closed_loop(rate, simulate)? else { break };
        predictions.push(Prediction {
            method,
            cpus: vec![0, 1],
            load,
            predicted,
            null: rate.min(capacity),
        });
    }
    Ok(predictions)
}

/// What the simulator says about an offered rate, as means over seeds.
#[derive(Debug, Clone, Copy)]
struct Simulated {
    /// Forwarded packets a second.
    forwarded: f64,
    /// The share of the time in which CPU 0 is busy.
    busy: f64,
}

impl Simulated {
    fn of(runs: &[RunResult]) -> Simulated {
        let mean =
            |of: fn(&RunResult) -> f64| runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64;
        Simulated {
            forwarded: mean(|run| {
                let packets = run.traffic.first().map_or(0, |traffic| traffic.packets);
                packets as f64 * 1e9 / run.measured_ns as f64
            }),
            busy: mean(|run| run.cpus.first().map_or(1.0, CpuResult::busy)),
        }
    }
}

/// Forwarded packets a second when a source on CPU 0 offers `rate`, but has only the time that CPU 0 is not busy with packets: it
/// makes no more than CPU 0 can receive. `None` if it was interrupted.
fn closed_loop(
    rate: f64,
    simulate: impl Fn(f64) -> Result<Option<Simulated>>,
) -> Result<Option<f64>> {
    /// Busier than that, CPU 0 has no time to make more frames.
    const FULL: f64 = 0.99;
    let Some(offered) = simulate(rate)? else { return Ok(None) };
    if offered.busy < FULL {
        return Ok(Some(offered.forwarded));
    }
    // The highest rate with which it is not full, to a hundredth.
    let (mut low, mut high, mut forwarded) = (0.0, rate, 0.0);
    while high - low > 0.01 * high {
        let middle = f64::midpoint(low, high);
        let Some(tried) = simulate(middle)? else { return Ok(None) };
        if tried.busy < FULL {
            (low, forwarded) = (middle, tried.forwarded);
        } else {
            high = middle;
        }
    }
    Ok(Some(forwarded))
}

/// Measures every prediction, in interleaved rounds. `progress` is called before each measurement with the number of those that are
/// done, the number of all, and what is measured next.
///
/// # Errors
///
/// If nothing at all could be measured: the first failure.
pub fn measure(
    predictions: Vec<Prediction>,
    rounds: usize,
    quick: bool,
    stop: &AtomicBool,
    progress: impl FnMut(usize, usize, &str),
) -> Result<Validation> {
    let names: Vec<String> = predictions.iter().map(Prediction::name).collect();
    let time = if quick { Duration::from_millis(100) } else { Duration::from_millis(600) };
    let once = |index: usize| -> Result<f64> {
        let Prediction { method, cpus, load, predicted, .. } = &predictions[index];
        let forwarding = Forwarding {
            method: *method,
            cpus,
            flows: load.flows,
            length: load.length,
            rate: load.rate,
            frames: (predicted.max(10_000.0) * time.as_secs_f64()) as u64,
            end: End::NextHost,
            nat: false,
            busy: 0,
            queues: 1,
            beside: None,
        };
        Ok(forwarding.measure()?.forwarded)
    };
    let measured = interleaved(&names, rounds, stop, progress, once)?;
    let failures = measured.failures(&names);
    let Rounds { series, begun, partial, steal_percent } = measured;
    let rows: Vec<Row> = predictions
        .into_iter()
        .zip(&series)
        .map(|(prediction, series)| {
            let measured = Figure::of(&series.figures(), "packets/s");
            let error = |of: f64| measured.map(|measured| of / measured.median - 1.0);
            let (error, null_error) = (error(prediction.predicted), error(prediction.null));
            Row { prediction, measured, error, null_error }
        })
        .collect();
    let pairs = distinct_pairs(&rows);
    Ok(Validation {
        machine: Machine::here(),
        rounds: begun,
        quick,
        partial,
        steal_percent,
        simulator: Errors::of(&rows, &pairs, |row| row.error, |row| row.prediction.predicted),
        null: Errors::of(&rows, &pairs, |row| row.null_error, |row| row.prediction.null),
        distinct_pairs: pairs.len(),
        rows,
        failures,
    })
}

impl Prediction {
    /// What is predicted, for progress and messages.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}, {}", String::from(self.method), self.load)
    }
}

/// Pairs of rows with the same load whose measured intervals do not overlap; the first one is the slower.
fn distinct_pairs(rows: &[Row]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (a, first) in rows.iter().enumerate() {
        for (b, second) in rows.iter().enumerate() {
            let (Some(of_a), Some(of_b)) = (first.measured, second.measured) else { continue };
            if first.prediction.load == second.prediction.load && of_a.high < of_b.low {
                pairs.push((a, b));
            }
        }
    }
    pairs
}

impl Errors {
    fn of(
        rows: &[Row],
        pairs: &[(usize, usize)],
        error: impl Fn(&Row) -> Option<f64>,
        figure: impl Fn(&Row) -> f64,
    ) -> Option<Errors> {
        let errors: Vec<f64> = rows.iter().filter_map(|row| error(row).map(f64::abs)).collect();
        let right = pairs.iter().filter(|(a, b)| figure(&rows[*a]) < figure(&rows[*b])).count();
        (!errors.is_empty()).then(|| Errors {
            mean: errors.iter().sum::<f64>() / errors.len() as f64,
            worst: errors.iter().copied().fold(0.0, f64::max),
            right_order: (!pairs.is_empty()).then(|| right as f64 / pairs.len() as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: Method, predicted: f64, null: f64, measured: [f64; 2]) -> Row {
        let figure = Figure::of(&measured, "packets/s").unwrap();
        Row {
            prediction: Prediction {
                method,
                cpus: vec![0, 1],
                load: Load::calibrated(),
                predicted,
                null,
            },
            measured: Some(figure),
            error: Some(predicted / figure.median - 1.0),
            null_error: Some(null / figure.median - 1.0),
        }
    }

    #[test]
    fn source_makes_no_more_than_its_cpu_has_time_for() {
        // A CPU that is full at 1000 packets a second, behind which half of them are lost.
        let simulate = |rate: f64| {
            Ok(Some(Simulated { forwarded: rate / 2.0, busy: (rate / 1000.0).min(1.0) }))
        };
        assert_eq!(closed_loop(800.0, simulate).unwrap(), Some(400.0));
        let full = closed_loop(4000.0, simulate).unwrap().unwrap();
        assert!((480.0..=495.0).contains(&full), "{full}");
        assert_eq!(closed_loop(800.0, |_| Ok(None)).unwrap(), None);
    }

    #[test]
    fn errors_are_without_sign_and_order_counts_distinct_pairs_only() {
        let rows = [
            row(Method::None, 110.0, 100.0, [99.0, 101.0]),
            row(Method::KernelRps, 150.0, 100.0, [199.0, 201.0]),
            // Overlaps with the one before.
            row(Method::Kernel("rps"), 100.0, 100.0, [190.0, 210.0]),
        ];
        let pairs = distinct_pairs(&rows);
        assert_eq!(pairs, [(0, 1), (0, 2)]);
        let errors =
            Errors::of(&rows, &pairs, |row| row.error, |row| row.prediction.predicted).unwrap();
        assert!((errors.mean - (0.1 + 0.25 + 0.5) / 3.0).abs() < 1e-9, "{errors:?}");
        assert!((errors.worst - 0.5).abs() < 1e-9, "{errors:?}");
        // RPS is predicted above no steering, rxsteer is not.
        assert_eq!(errors.right_order, Some(0.5));
        let null = Errors::of(&rows, &pairs, |row| row.null_error, |row| row.prediction.null);
        // The null model says that all are equal, which is no order.
        assert_eq!(null.unwrap().right_order, Some(0.0));
    }
}
