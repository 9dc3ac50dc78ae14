//! Many seeds, on all CPUs.

use crate::summary::Summary;
use crate::violation::{Fault, Violation};
use crate::{Options, run};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds a thread takes at a time.
const CHUNK: u64 = 8;

/// The progress of a search, for display.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// Runs done.
    #[must_use]
    pub fn done(&self) -> u64 {
        // ORDER: Relaxed; the number is only for display.
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs every seed of `seeds` on `threads` threads. The result depends neither on the number of threads nor on their
/// speed: every seed below one that finds something is run.
///
/// # Errors
/// The [`Violation`] of the lowest seed.
pub fn search(
    seeds: Range<u64>,
    options: &Options,
    threads: usize,
    progress: &Progress,
) -> Result<Summary, Violation> {
    let next = AtomicU64::new(seeds.start);
    // Seeds from here on no longer need to be run.
    let end = AtomicU64::new(seeds.end);
    let total = Mutex::new((Summary::default(), None::<Violation>));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut sum = Summary::default();
                // ORDER: Relaxed, here and below; the counters distribute work, and results pass through the lock.
                loop {
                    let from = next.fetch_add(CHUNK, Ordering::Relaxed);
                    if from >= end.load(Ordering::Relaxed) {
                        break;
                    }
                    for seed in from..(from + CHUNK).min(seeds.end) {
                        if seed >= end.load(Ordering::Relaxed) {
                            break;
                        }
                        match run_caught(seed, options) {
                            Ok(summary) => sum.merge(&summary),
                            Err(violation) => {
                                end.fetch_min(seed, Ordering::Relaxed);
                                let mut total = lock(&total);
                                if total.1.as_ref().is_none_or(|lowest| seed < lowest.seed) {
                                    total.1 = Some(violation);
                                }
                            }
                        }
                        progress.0.fetch_add(1, Ordering::Relaxed);
                    }
                }
                lock(&total).0.merge(&sum);
            });
        }
    });
    let (sum, lowest) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    lowest.map_or(Ok(sum), Err)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A panic counts as a violation of its seed.
fn run_caught(seed: u64, options: &Options) -> Result<Summary, Violation> {
    catch_unwind(AssertUnwindSafe(|| run(seed, options))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let fault = Fault::Panicked(text.unwrap_or_else(|| "without a word".to_owned()));
        Err(Violation::new(seed, options, fault))
    })
}
