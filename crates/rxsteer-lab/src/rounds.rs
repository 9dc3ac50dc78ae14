//! Interleaved rounds: everything is measured once per round, in random order, so that all measurements meet the same state of the
//! machine.

use crate::cpu_use::Snapshot;
use crate::error::{LabError, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was measured.
#[derive(Debug, Clone)]
pub(crate) struct Rounds<T> {
    /// By what was measured.
    pub(crate) series: Vec<Series<T>>,
    /// Rounds that were begun.
    pub(crate) begun: usize,
    /// Whether it was interrupted.
    pub(crate) partial: bool,
    /// Steal time, in percent of all CPUs.
    pub(crate) steal_percent: f64,
}

/// The measurements of one thing.
#[derive(Debug, Clone)]
pub(crate) struct Series<T> {
    /// By round that was begun; `None` where it could not be measured.
    pub(crate) samples: Vec<Option<T>>,
    /// Why measurements have no figure.
    pub(crate) failures: Vec<String>,
}

impl<T: Copy> Series<T> {
    /// The figures of the rounds in which it could be measured.
    pub(crate) fn figures(&self) -> Vec<T> {
        self.samples.iter().flatten().copied().collect()
    }
}

impl<T> Rounds<T> {
    /// Why measurements have no figure, with the names of what was measured.
    pub(crate) fn failures(&self, names: &[String]) -> Vec<String> {
        let named = |(series, name): (&Series<T>, &String)| {
            series.failures.iter().map(|failure| format!("{name}: {failure}")).collect::<Vec<_>>()
        };
        self.series.iter().zip(names).flat_map(named).collect()
    }
}

/// Measures everything in `names` once per round. `progress` is called before each measurement with the number of those that are done,
/// the number of all, and what is measured next.
///
/// # Errors
///
/// If nothing at all could be measured: the first failure.
pub(crate) fn interleaved<T>(
    names: &[String],
    rounds: usize,
    stop: &AtomicBool,
    mut progress: impl FnMut(usize, usize, &str),
    measure: impl Fn(usize) -> Result<T>,
) -> Result<Rounds<T>> {
    let mut result = Rounds {
        series: names.iter().map(|_| Series { samples: vec![], failures: vec![] }).collect(),
        begun: 0,
        partial: false,
        steal_percent: 0.0,
    };
    let begin = Snapshot::now()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut order: Vec<usize> = (0..names.len()).collect();
    let mut first_failure: Option<LabError> = None;
    let mut done = 0;
    'rounds: for _ in 0..rounds {
        order.shuffle(&mut rng);
        result.begun += 1;
        for series in &mut result.series {
            series.samples.push(None);
        }
        for &index in &order {
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
            progress(done, names.len() * rounds, &names[index]);
            let series = &mut result.series[index];
            match measure(index) {
                Ok(sample) => series.samples[result.begun - 1] = Some(sample),
                // An interrupt from a terminal also ends the programs that were measured.
                Err(_) if stop.load(Ordering::Relaxed) => break 'rounds,
                Err(error) => {
                    series.failures.push(error.to_string());
                    first_failure.get_or_insert(error);
                }
            }
            done += 1;
        }
    }
    if let Some(error) = first_failure
        && result.series.iter().all(|series| series.samples.iter().all(Option::is_none))
    {
        return Err(error);
    }
    result.partial = stop.load(Ordering::Relaxed);
    let cpus = begin.until(&Snapshot::now()?);
    result.steal_percent = cpus.iter().map(|cpu| cpu.steal).sum::<f64>() / cpus.len().max(1) as f64;
    Ok(result)
}
