//! Predicts the performance of this machine with the simulator and calibrated costs, then measures it.
//!
//! ```text
//!   calibration ─► predict(): the simulator, for loads that were not calibrated ─► a file, written first
//!                                                      │
//!   interleaved rounds: every row, and two references ─┴─► predicted beside measured beside a null model
//! ```
//!
//! A *null model* needs no simulator and does not distinguish methods: whatever the method, a packet costs as much as
//! it costs one CPU without steering, and a request as much as without steering. A prediction that is not better than
//! that is no evidence for the simulator.
//!
//! A *reference* is a calibrated load that is measured again in each round. The machine may be faster or slower than
//! during the calibration; the references show by how much. After the measurement, everything is predicted once more
//! with that speed: these predictions are *adjusted*, and shown together with the first ones. The same applies to the
//! null model.

mod errors;
mod rows;
mod simulated;

use crate::calibrate::{Pauses, WATCHED, paused, requests_set};
use crate::error::{LabError, Result};
use crate::experiment::{Figure, Machine};
use crate::forwarding::{End, Forwarding};
use crate::method::Method;
use crate::requests::Requests;
use crate::rounds::{Rounds, interleaved};
use serde::Serialize;
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use errors::{Errors, Score};
pub use rows::{Calls, Frames, Load};
use simulated::Model;

/// The expected figures of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Expected {
    /// Forwarded packets or transactions a second.
    pub rate: f64,
    /// The median latency of requests in microseconds; `None` for packets.
    pub p50: Option<f64>,
    /// The latency that 99 % of the requests do not exceed.
    pub p99: Option<f64>,
}

/// A prediction.
#[derive(Debug, Clone, Serialize)]
pub struct Prediction {
    /// The method of steering.
    pub method: Method,
    /// The load.
    pub load: Load,
    /// The simulator's prediction.
    pub predicted: Expected,
    /// The null model's prediction.
    pub null: Expected,
}

/// The measured figures of a row.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Measured {
    /// Forwarded packets or transactions a second; `None` if no round has a figure.
    pub rate: Option<Figure>,
    /// The median latency in microseconds.
    pub p50: Option<Figure>,
    /// The 99th percentile of latencies in microseconds.
    pub p99: Option<Figure>,
}

/// A prediction and the measured figures.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The prediction.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// The prediction adjusted to the speed of the machine during the measurement.
    pub adjusted: Expected,
    /// The null model with the same adjustment.
    pub adjusted_null: Expected,
    /// The measured figures.
    pub measured: Measured,
}

/// The speed of the machine, as a share of its speed during the calibration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speeds {
    /// The speed of one CPU that forwards without steering.
    pub forwarding: f64,
    /// The speed of all CPUs with requests without steering.
    pub requests: f64,
}

impl Speeds {
    /// The speed during the calibration.
    pub const CALIBRATED: Speeds = Speeds { forwarding: 1.0, requests: 1.0 };
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct Validation {
    /// The machine.
    pub machine: Machine,
    /// Rounds that were completed; an interrupted one is in the figures, but not here.
    pub rounds: usize,
    /// Whether it was a short run, whose figures are not conclusive.
    pub quick: bool,
    /// Whether it was interrupted.
    pub partial: bool,
    /// Steal time while it ran, in percent of all CPUs.
    pub steal_percent: f64,
    /// The machine's speed during the measurement.
    pub speeds: Speeds,
    /// The share of the time in which a busy CPU was paused: during the calibration, and during the measurement.
    pub paused: [f64; 2],
    /// The references: forwarded packets, and requests.
    pub references: [Option<Figure>; 2],
    /// Rows in the order of their predictions.
    pub rows: Vec<Row>,
    /// The errors of the predictions and of the null model, by predicted figure.
    pub scores: Vec<Score>,
    /// Why the figures allow no verdict; `None` if they allow one.
    pub no_verdict: Option<String>,
    /// Why measurements have no figure.
    pub failures: Vec<String>,
}

/// Predicts every row.
///
/// `text` is the scenario of a calibration, `name` its name in messages. `None` if it was interrupted.
///
/// # Errors
///
/// If the scenario can't be read, lacks a cost set, or has no traffic `transit`; with the line.
pub fn predict(
    text: &str,
    name: &str,
    quick: bool,
    stop: &AtomicBool,
) -> Result<Option<Vec<Prediction>>> {
    let model = Model::new(text, name, Speeds::CALIBRATED, quick, stop)?;
    let mut predictions = Vec::new();
    for (method, load) in rows::all(model.capacity()?, model.slowest_calls()?, quick) {
        let Some(predicted) = model.expect(method, &load)? else { return Ok(None) };
        predictions.push(Prediction { method, load, predicted, null: model.null(&load)? });
    }
    Ok(Some(predictions))
}

/// Measures every prediction, in interleaved rounds. `progress` is called before each measurement with the number of those that are
/// done, the number of all, and what is measured next.
///
/// `text` and `name` are those of [`predict`].
///
/// # Errors
///
/// If nothing at all could be measured: the first failure. If the scenario can't be read.
pub fn measure(
    predictions: Vec<Prediction>,
    (text, name): (&str, &str),
    rounds: usize,
    quick: bool,
    stop: &AtomicBool,
    progress: impl FnMut(usize, usize, &str),
) -> Result<Validation> {
    let model = Model::new(text, name, Speeds::CALIBRATED, quick, stop)?;
    let (capacity, calls) = (model.capacity()?, model.calls(Method::None)?);
    let reference = |load, rate| Prediction {
        method: Method::None,
        load,
        predicted: Expected { rate, p50: None, p99: None },
        null: Expected { rate, p50: None, p99: None },
    };
    let mut all = predictions;
    let count = all.len();
    all.push(reference(Load::Forward(Frames::CALIBRATED), capacity));
    all.push(reference(Load::Requests(Calls::CALIBRATED), calls));
    let names: Vec<String> = all.iter().map(Prediction::name).collect();
    let watched = RefCell::new(Pauses::default());
    let once = |index: usize| {
        let once = all[index].measure(quick)?;
        watched.borrow_mut().watch(WATCHED)?;
        Ok(once)
    };
    let measured = interleaved(&names, rounds, stop, progress, once)?;
    let failures = measured.failures(&names);
    let Rounds { series, complete, partial, steal_percent } = measured;
    let mut figures: Vec<Measured> =
        series.iter().map(|series| Measured::of(&series.figures())).collect();
    let references = [figures[count].rate, figures[count + 1].rate];
    figures.truncate(count);
    all.truncate(count);
    let speed = |of: Option<Figure>, calibrated: f64| {
        of.map_or(1.0, |figure| (figure.median / calibrated).clamp(0.1, 10.0))
    };
    let speeds = Speeds {
        forwarding: speed(references[0], capacity),
        requests: speed(references[1], calls),
    };
    // Even if an interrupt ended the measurement, the existing figures must be compared.
    let go_on = AtomicBool::new(false);
    let pauses = watched.into_inner().kinds();
    let paused = [model.paused(), paused(&pauses)];
    let now = Model::new(text, name, speeds, quick, &go_on)?.with_pauses(pauses);
    let rows = all
        .into_iter()
        .zip(figures)
        .map(|(prediction, measured)| {
            let Prediction { method, load, predicted, .. } = prediction;
            let adjusted = now.expect(method, &load)?.unwrap_or(predicted);
            let adjusted_null = now.null(&load)?;
            Ok(Row { prediction, adjusted, adjusted_null, measured })
        })
        .collect::<Result<Vec<Row>>>()?;
    let no_verdict = errors::no_verdict(quick, partial, complete, steal_percent, &references);
    Ok(Validation {
        machine: Machine::here(),
        rounds: complete,
        quick,
        partial,
        steal_percent,
        speeds,
        paused,
        references,
        scores: errors::scores(&rows),
        rows,
        no_verdict,
        failures,
    })
}

/// The figures of one round.
#[derive(Debug, Clone, Copy)]
struct Once {
    rate: f64,
    /// p50 and p99 in microseconds.
    latency: Option<[f64; 2]>,
}

impl Measured {
    fn of(figures: &[Once]) -> Measured {
        let figure = |of: &dyn Fn(&Once) -> Option<f64>, unit| {
            Figure::of(&figures.iter().filter_map(of).collect::<Vec<_>>(), unit)
        };
        Measured {
            rate: figure(&|once| Some(once.rate), "1/s"),
            p50: figure(&|once| once.latency.map(|[p50, _]| p50), "µs"),
            p99: figure(&|once| once.latency.map(|[_, p99]| p99), "µs"),
        }
    }
}

impl Prediction {
    /// A description, for progress and messages.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}, {}", String::from(self.method), self.load)
    }

    /// Measures it once.
    fn measure(&self, quick: bool) -> Result<Once> {
        match &self.load {
            Load::Forward(load) => {
                let time = Duration::from_millis(if quick { 100 } else { 300 });
                let cpus: Vec<usize> = (load.first_cpu..=1).collect();
                let forwarding = Forwarding {
                    method: self.method,
                    cpus: &cpus,
                    flows: load.flows,
                    length: load.length,
                    rate: load.rate,
                    frames: (self.predicted.rate.max(10_000.0) * time.as_secs_f64()) as u64,
                    end: End::NextHost,
                    nat: false,
                    rules: load.rules,
                    busy: 0,
                    queues: 1,
                    beside: None,
                };
                Ok(Once { rate: forwarding.measure()?.forwarded, latency: None })
            }
            Load::Requests(load) => {
                let Calls { connections, rate, .. } = *load;
                // Rare and long pauses decide the p99 of latencies.
                let time = Duration::from_millis(if quick { 100 } else { 1000 });
                let requests =
                    Requests { method: self.method, connections, rate, work: load.work(), time };
                let answered = requests.measure()?;
                let latency = Some([answered.p50 / 1e3, answered.p99 / 1e3]);
                Ok(Once { rate: answered.rate, latency })
            }
        }
    }
}
