//! Measures what a packet costs on this machine, and writes it as a scenario for the simulator.
//!
//! No single cost can be measured directly. What can be measured is the time per frame of a CPU that is busy all the
//! time, for paths of different lengths through a router. The costs are differences of such times.
//!
//! ```text
//!   CPU 0: make a frame, receive it ─► entry ─► route ─► send ─► the next host        no steering, "inline"
//!                                        │        └ dropped: `Route`
//!                                        └ dropped: `Entry`
//!   CPU 0: make, receive, steer, hand off ─► CPU 1: entry ─► route ─► send           a method to CPU 1
//! ```
//!
//! Requests and replies are measured as a whole: the time of all CPUs per request while they are all busy, and the
//! duration of one under a light load. Both hosts are on this machine, so this includes the client's work.
//!
//! CPUs that share a core or a cache slow each other down. So the times are also measured while the other CPU is busy,
//! and all are converted to those of a CPU whose neighbour is idle.
//!
//! Invariant: the costs of a method add up to its three measured times; see [`CostSet::of`].

mod cells;
mod pauses;
mod scenario;

use crate::error::Result;
use crate::experiment::Machine;
use crate::method::Method;
use crate::rounds::{Rounds, interleaved};
use cells::{Cell, Once};
use serde::Serialize;
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;

pub(crate) use cells::LIGHT;
pub use cells::{CONNECTIONS, INLINE_FLOWS, INLINE_LENGTH, METHODS, RULES};
pub(crate) use pauses::{Pauses, WATCHED, paused};
pub use scenario::{CostSet, Steered};
pub(crate) use scenario::{requests_set, rules_set};

/// The result of a calibration.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// The machine.
    pub machine: Machine,
    /// Rounds that were completed; an interrupted one is in the figures, but not here.
    pub rounds: usize,
    /// Whether it was interrupted; if so, there is no scenario.
    pub partial: bool,
    /// Whether it was a short run, whose figures are not conclusive.
    pub quick: bool,
    /// Steal time while it ran, in percent of all CPUs.
    pub steal_percent: f64,
    /// The measured times.
    pub times: Vec<Time>,
    /// The scenario, as TOML; empty if not every time could be measured.
    pub scenario: String,
    /// Why measurements have no figure.
    pub failures: Vec<String>,
}

/// A time of one CPU for one frame.
#[derive(Debug, Clone, Serialize)]
pub struct Time {
    /// What it contains.
    pub what: String,
    /// Its median over the rounds, in nanoseconds.
    pub median_ns: f64,
    /// The lower quartile.
    pub lower_ns: f64,
    /// The upper quartile.
    pub upper_ns: f64,
    /// The share of the time in which the other CPU was busy, as a mean.
    pub other_busy: f64,
    /// The median over the rounds of the 99th percentile of the time from request to reply; `None` for frames.
    pub p99_ns: Option<f64>,
    /// The number of rounds with a figure.
    pub rounds: usize,
}

impl Time {
    /// The time of these figures; `None` without any.
    fn of(what: String, figures: &[Once]) -> Option<Time> {
        let sorted = |mut of: Vec<f64>| {
            of.sort_by(f64::total_cmp);
            of
        };
        let times = sorted(figures.iter().map(|once| once.ns).collect());
        let tails = sorted(figures.iter().filter_map(|once| once.p99_ns).collect());
        // Linear interpolation between the two nearest figures, the default of most statistics programs (R's type 7).
        let quantile = |of: &[f64], share: f64| -> Option<f64> {
            let place = share * (of.len().checked_sub(1)?) as f64;
            let (low, part) = (place.floor() as usize, place.fract());
            let next = of[(low + 1).min(of.len() - 1)];
            Some(of[low] + part * (next - of[low]))
        };
        Some(Time {
            what,
            median_ns: quantile(&times, 0.5)?,
            lower_ns: quantile(&times, 0.25)?,
            upper_ns: quantile(&times, 0.75)?,
            other_busy: figures.iter().map(|once| once.other_busy).sum::<f64>()
                / times.len() as f64,
            p99_ns: quantile(&tails, 0.5),
            rounds: times.len(),
        })
    }
}

/// Measures in `rounds` interleaved rounds; `quick`: with few frames. `progress` is called before each measurement with the number of
/// those that are done, the number of all, and what is measured next.
///
/// # Errors
///
/// If nothing at all could be measured: the first failure.
pub fn calibrate(
    rounds: usize,
    quick: bool,
    stop: &AtomicBool,
    progress: impl FnMut(usize, usize, &str),
) -> Result<Calibration> {
    let cells = cells::all();
    let names: Vec<String> = cells.iter().map(Cell::name).collect();
    let pauses = RefCell::new(Pauses::default());
    let measure = |index: usize| {
        let figure = cells[index].measure(quick)?;
        pauses.borrow_mut().watch(WATCHED)?;
        Ok(figure)
    };
    let measured = interleaved(&names, rounds, stop, progress, measure)?;
    let failures = measured.failures(&names);
    let Rounds { series, complete, partial, steal_percent } = measured;
    let times: Vec<Option<Time>> =
        names.iter().zip(&series).map(|(name, of)| Time::of(name.clone(), &of.figures())).collect();
    let machine = Machine::here();
    let all: Option<Vec<&Time>> = times.iter().map(Option::as_ref).collect();
    let scenario = match all {
        Some(all) if !partial => {
            scenario::text(&machine, (&cells, &all), &pauses.borrow().kinds(), rounds, quick)
        }
        _ => String::new(),
    };
    Ok(Calibration {
        machine,
        rounds: complete,
        partial,
        quick,
        steal_percent,
        times: times.into_iter().flatten().collect(),
        scenario,
        failures,
    })
}

/// The programs that calibration and validation start.
pub const PROGRAMS: &[&str] = &["ip", "ethtool", "sysctl", "nft"];

/// Whether this machine can be calibrated; the reason if not.
#[must_use]
pub fn unavailable() -> Option<String> {
    if crate::online_cpus() < 2 {
        return Some("it requires two CPUs".to_owned());
    }
    crate::missing(PROGRAMS)
}

impl Method {
    /// Its name in calibrations, and the corresponding policy in the simulator.
    #[must_use]
    pub fn simulated(&self) -> (&'static str, &'static str) {
        match self {
            Method::KernelRps => ("kernel-rps", "rps"),
            Method::Kernel(policy)
            | Method::KernelUncounted(policy)
            | Method::KernelRuled(policy) => (policy, policy),
            _ => ("none", "none"),
        }
    }
}
