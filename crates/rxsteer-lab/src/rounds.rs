//! Interleaved rounds: everything is measured once per round, in random order, so that all measurements meet the same state of the
//! machine.

use crate::error::{LabError, Result};
use crate::experiment::Snapshot;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was measured.
#[derive(Debug, Clone)]
pub(crate) struct Rounds<T> {
    /// By what was measured, the figures of the rounds in which it could be measured.
    pub(crate) samples: Vec<Vec<T>>,
    /// Rounds that were begun.
    pub(crate) begun: usize,
    /// Whether it was interrupted.
    pub(crate) partial: bool,
    /// Steal time, in percent of all CPUs.
    pub(crate) steal_percent: f64,
    /// Why measurements have no figure.
    pub(crate) failures: Vec<String>,
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
        samples: names.iter().map(|_| vec![]).collect(),
        begun: 0,
        partial: false,
        steal_percent: 0.0,
        failures: vec![],
    };
    let begin = Snapshot::now()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut order: Vec<usize> = (0..names.len()).collect();
    let mut first_failure: Option<LabError> = None;
    let mut done = 0;
    'rounds: for _ in 0..rounds {
        order.shuffle(&mut rng);
        result.begun += 1;
        for &index in &order {
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
            progress(done, names.len() * rounds, &names[index]);
            match measure(index) {
                Ok(sample) => result.samples[index].push(sample),
                // An interrupt from a terminal also ends the programs that were measured.
                Err(_) if stop.load(Ordering::Relaxed) => break 'rounds,
                Err(error) => {
                    result.failures.push(format!("{}: {error}", names[index]));
                    first_failure.get_or_insert(error);
                }
            }
            done += 1;
        }
    }
    if let Some(error) = first_failure
        && result.samples.iter().all(Vec::is_empty)
    {
        return Err(error);
    }
    result.partial = stop.load(Ordering::Relaxed);
    let cpus = begin.until(&Snapshot::now()?);
    result.steal_percent = cpus.iter().map(|cpu| cpu.steal).sum::<f64>() / cpus.len().max(1) as f64;
    Ok(result)
}
