//! Runs the rounds: each cell is measured once per round, in random order, so that all methods meet the same state of
//! the machine.

use super::figures::{Against, Figure, against};
use super::{CpuUse, Experiment, Load, Machine, Method, Metric, Published, Sample, Scale};
use crate::cards::chosen_cards;
use crate::error::Result;
use crate::rounds::{Rounds, Series, interleaved};
use rxsteer_sim::compare::holm;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// The result of an experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Its name.
    pub experiment: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// The published experiment that it repeats.
    pub source: &'static str,
    /// The method with which the others are compared.
    pub baseline: Method,
    /// Its metrics; methods are compared by the first one.
    pub metrics: &'static [Metric],
    /// The command that makes this report.
    pub command: String,
    /// Whether it was a short run, whose figures are not conclusive.
    pub quick: bool,
    /// Whether it was interrupted; then the figures are those of the rounds until then.
    pub partial: bool,
    /// The machine.
    pub machine: Machine,
    /// The steered interface and its peer, if they are interfaces of this machine instead of a veth pair.
    pub interfaces: Option<[String; 2]>,
    /// Rounds that were completed; an interrupted one is in the figures, but not here.
    pub rounds: usize,
    /// Steal time while it ran, in percent of all CPUs.
    pub steal_percent: f64,
    /// The cells.
    pub rows: Vec<Row>,
    /// Published figures and the corresponding measured ones.
    pub published: Vec<Published>,
    /// The conclusion.
    pub verdict: Verdict,
    /// What could not be measured, and why.
    pub skipped: Vec<Skipped>,
}

/// A cell of a report.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The method.
    pub method: Method,
    /// The load.
    pub load: &'static str,
    /// The metric by which methods are compared under this load.
    pub headline: &'static str,
    /// The figures by metric.
    pub metrics: BTreeMap<&'static str, Figure>,
    /// The headline metric compared with that of the baseline under the same load.
    pub against: Option<Against>,
    /// What was verified about the load in every round.
    pub checks: Vec<String>,
    /// Why rounds have no figure.
    pub failures: Vec<String>,
    /// How the CPUs spent their time, as means over the rounds.
    pub cpus: Vec<CpuUse>,
}

/// The conclusion of an experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Whether the figures allow one.
    pub given: bool,
    /// In sentences.
    pub text: Vec<String>,
}

/// Something that could not be measured.
#[derive(Debug, Clone, Serialize)]
pub struct Skipped {
    /// The experiment, method or load.
    pub what: String,
    /// What it needs.
    pub needs: String,
}

/// A method under a load, and its measurements.
struct Cell {
    method: Method,
    load: Load,
    series: Series<Sample>,
}

/// Runs an experiment. `progress` is called before each measurement with the number of those that are done, the number of all,
/// and what is measured next.
///
/// # Errors
///
/// If nothing at all could be measured: the first failure.
pub fn run(
    experiment: &dyn Experiment,
    scale: Scale,
    command: &str,
    stop: &AtomicBool,
    progress: impl FnMut(usize, usize, &str),
) -> Result<Report> {
    let mut skipped = experiment.not_measured(scale);
    let mut measured = Vec::new();
    for load in experiment.loads(scale) {
        for method in experiment.methods(scale) {
            let of_cards = (load.queues > 1 && chosen_cards().is_some())
                .then_some("veth pairs: interfaces of this machine keep their queues");
            match of_cards.or_else(|| experiment.excluded(&method, &load)) {
                Some(why) => skipped.push(Skipped {
                    what: format!("{} with {}", String::from(method), load.name),
                    needs: why.to_owned(),
                }),
                None => measured.push((method, load)),
            }
        }
    }
    let name =
        |(method, load): &(Method, Load)| format!("{}, {}", String::from(*method), load.name);
    let names: Vec<String> = measured.iter().map(name).collect();
    let once = |index: usize| {
        let (method, load) = &measured[index];
        experiment.measure(method, load, scale)
    };
    let Rounds { series, complete, partial, steal_percent } =
        interleaved(&names, scale.rounds, stop, progress, once)?;
    let cells: Vec<Cell> = measured
        .into_iter()
        .zip(series)
        .map(|((method, load), series)| Cell { method, load, series })
        .collect();
    let description = experiment.description();
    let baseline = experiment.methods(scale).first().copied().unwrap_or(Method::None);
    let rows = rows(experiment, baseline, &cells);
    let mut report = Report {
        experiment: description.name,
        about: description.about,
        source: description.source,
        baseline,
        metrics: description.metrics,
        command: command.to_owned(),
        quick: scale.quick,
        partial,
        machine: Machine::here(),
        interfaces: chosen_cards().map(|cards| [cards.steered.clone(), cards.peer.clone()]),
        rounds: complete,
        steal_percent: (10.0 * steal_percent).round() / 10.0,
        published: super::published::published_rows(description.name, &rows),
        rows,
        verdict: Verdict { given: false, text: vec![] },
        skipped,
    };
    report.verdict = super::verdict::conclude(&mut report);
    Ok(report)
}

fn rows(experiment: &dyn Experiment, baseline: Method, cells: &[Cell]) -> Vec<Row> {
    let description = experiment.description();
    let value = |cell: &Cell, round: usize, name: &str| -> Option<f64> {
        let sample = cell.series.samples.get(round)?.as_ref()?;
        sample.values.iter().find(|(of, _)| *of == name).map(|(_, value)| *value)
    };
    let baseline_of =
        |load: &Load| cells.iter().find(|cell| cell.load == *load && cell.method == baseline);
    let against_baseline = |cell: &Cell| {
        let base = baseline_of(&cell.load).filter(|_| cell.method != baseline)?;
        let headline = experiment.headline(&cell.load);
        let of = |cell, round| {
            Some(value(cell, round, headline.name)? + f64::from(u8::from(headline.may_be_zero)))
        };
        let pair = |round| Some((of(base, round)?, of(cell, round)?));
        let pairs: Vec<_> = (0..cell.series.samples.len()).filter_map(pair).collect();
        against(&pairs)
    };
    let mut compared: Vec<Option<Against>> = cells.iter().map(against_baseline).collect();
    let probabilities: Vec<f64> = compared.iter().flatten().map(|against| against.p).collect();
    let mut corrected = holm(&probabilities).into_iter();
    // The noise of a load: how far apart two series without steering may be, by the interval of their ratio.
    let noise: Vec<Option<f64>> = cells
        .iter()
        .map(|cell| {
            let again =
                cells.iter().position(|other| other.load == cell.load && other.method.is_again());
            again.and_then(|index| compared[index].as_ref()).map(Against::farthest)
        })
        .collect();
    for ((against, noise), cell) in compared.iter_mut().zip(noise).zip(cells) {
        if let Some(against) = against {
            let more_is_better = experiment.headline(&cell.load).more_is_better;
            against.conclude(corrected.next().unwrap_or(1.0), noise, more_is_better);
        }
    }
    cells
        .iter()
        .zip(compared)
        .map(|(cell, against)| {
            let samples: Vec<&Sample> = cell.series.samples.iter().flatten().collect();
            let figure = |metric: &Metric| {
                let values: Vec<f64> = (0..cell.series.samples.len())
                    .filter_map(|round| value(cell, round, metric.name))
                    .collect();
                Some((metric.name, Figure::of(&values, metric.unit)?))
            };
            let mut failures = cell.series.failures.clone();
            failures.dedup();
            Row {
                method: cell.method,
                load: cell.load.name,
                headline: experiment.headline(&cell.load).name,
                metrics: description.metrics.iter().filter_map(figure).collect(),
                against,
                checks: samples.first().map(|sample| sample.checks.clone()).unwrap_or_default(),
                failures,
                cpus: mean_use(&samples),
            }
        })
        .collect()
}

fn mean_use(samples: &[&Sample]) -> Vec<CpuUse> {
    let first = samples.first().map(|sample| sample.cpus.as_slice()).unwrap_or_default();
    let mean = |index: usize, of: fn(&CpuUse) -> f64| {
        let values: Vec<f64> =
            samples.iter().filter_map(|sample| sample.cpus.get(index).map(of)).collect();
        (10.0 * values.iter().sum::<f64>() / values.len().max(1) as f64).round() / 10.0
    };
    let of_cpu = |(index, cpu): (usize, &CpuUse)| CpuUse {
        cpu: cpu.cpu,
        user: mean(index, |cpu| cpu.user),
        system: mean(index, |cpu| cpu.system),
        softirq: mean(index, |cpu| cpu.softirq),
        idle: mean(index, |cpu| cpu.idle),
        steal: mean(index, |cpu| cpu.steal),
    };
    first.iter().enumerate().map(of_cpu).collect()
}
