//! Interleaved rounds: everything is measured once per round, in random order, so that all measurements meet the same state of the
//! machine.

use crate::cpu_use::Snapshot;
use crate::error::{LabError, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

/// All measurements.
#[derive(Debug, Clone)]
pub(crate) struct Rounds<T> {
    /// One series for each thing that was measured.
    pub(crate) series: Vec<Series<T>>,
    /// Rounds that were completed.
    pub(crate) complete: usize,
    /// Whether it was interrupted.
    pub(crate) partial: bool,
    /// Steal time, in percent of all CPUs.
    pub(crate) steal_percent: f64,
}

/// The measurements of one thing.
#[derive(Debug, Clone)]
pub(crate) struct Series<T> {
    /// By round, including an incomplete one; `None` if it could not be measured.
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
        complete: 0,
        partial: false,
        steal_percent: 0.0,
    };
    let begin = Snapshot::now()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut order: Vec<usize> = (0..names.len()).collect();
    let mut first_failure: Option<LabError> = None;
    let mut done = 0;
    'rounds: for round in 0..rounds {
        order.shuffle(&mut rng);
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
                Ok(sample) => series.samples[round] = Some(sample),
                // An interrupt from a terminal also ends the programs that were measured.
                Err(_) if stop.load(Ordering::Relaxed) => break 'rounds,
                Err(error) => {
                    series.failures.push(error.to_string());
                    first_failure.get_or_insert(error);
                }
            }
            done += 1;
        }
        result.complete += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_round_is_not_complete_and_its_figures_are_kept() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let stop = AtomicBool::new(false);
        let count = std::cell::Cell::new(0);
        let measure = |_| {
            count.set(count.get() + 1);
            stop.store(count.get() == 4, Ordering::Relaxed);
            Ok(count.get())
        };
        let rounds = interleaved(&names, 5, &stop, |_, _, _| (), measure).unwrap();
        assert_eq!((rounds.complete, rounds.partial), (1, true));
        let figures: usize = rounds.series.iter().map(|series| series.figures().len()).sum();
        assert_eq!(figures, 4);
    }
}
