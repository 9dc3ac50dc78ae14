//! Parallel runs: every seed of every cell, on as many threads as the host has CPUs.
//!
//! A *cell* is one column of an experiment: a scenario under one policy. Each thread takes the next run that no
//! other thread has taken, so a slow cell delays no other. The results do not depend on the threads: a run depends
//! only on its scenario and seed, and the results are sorted by cell and seed.
//!
//! Runs are taken seed by seed, with all cells of a seed before the next seed. So the results after a stop can be
//! compared in pairs. Only results are kept; the memory of a run is freed at its end.

use crate::{RunResult, Scenario, engine};
use rxsteer_core::ConfigError;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The seeds, and the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first seed; the others follow it.
    pub first_seed: u64,
    /// The number of seeds.
    pub seeds: u32,
    /// The number of threads; the results do not depend on it.
    pub threads: NonZeroUsize,
}

/// The results of all cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// By cell, the results in the order of seeds: all of them, unless the runs were stopped.
    pub cells: Vec<Vec<RunResult>>,
    /// Whether the runs were stopped before the end. Each result is then complete, but results are missing, and
    /// not for the same seeds in each cell.
    pub stopped: bool,
    /// By cell, the measurements of abandoned runs, each over its [`RunResult::measured_ns`]. Empty unless the
    /// runs were stopped.
    pub unfinished: Vec<Vec<RunResult>>,
}

/// Runs `scenario` with each seed; see [`run_cells`].
///
/// # Errors
/// When the core refuses the configuration of the steering.
pub fn run_seeds(
    scenario: &Scenario,
    plan: Plan,
    progress: &(dyn Fn() + Sync),
    stop: &AtomicBool,
) -> Result<Runs, ConfigError> {
    run_cells(1, plan, &|_, _| scenario.clone(), progress, stop)
}

/// Runs every cell with every seed. `scenario_of` returns the scenario for a cell's number and a seed; it may
/// differ from seed to seed (faults). The thread that did a run calls `progress` after it. When `stop` becomes
/// true no further run begins, and the present runs are abandoned.
///
/// # Errors
/// When the core refuses a configuration of the steering: the first one in the order of runs. No further run
/// begins then.
pub fn run_cells(
    cells: usize,
    plan: Plan,
    scenario_of: &(dyn Fn(usize, u64) -> Scenario + Sync),
    progress: &(dyn Fn() + Sync),
    stop: &AtomicBool,
) -> Result<Runs, ConfigError> {
    let halt = Halt { stop, refused: AtomicBool::new(false) };
    let run = |number: usize| {
        let seed = plan.first_seed.wrapping_add((number / cells) as u64);
        let scenario = scenario_of(number % cells, seed);
        let result = engine::run_unless(stop, &scenario, seed);
        if result.is_err() {
            halt.refuse();
        }
        progress();
        let is_whole = |it: &RunResult| it.measured_ns == scenario.measured_ns();
        result.transpose().map(|result| result.map(|it| (is_whole(&it), it)))
    };
    let all = cells * plan.seeds as usize;
    let done = share_out(all, plan.threads, &|| halt.is_due(), &run);
    let mut by_cell = vec![Vec::with_capacity(plan.seeds as usize); cells];
    let mut unfinished = vec![Vec::new(); cells];
    for (number, result) in done {
        // A run that was abandoned during its warm-up has no measurements.
        let Some(result) = result else { continue };
        let (is_whole, result) = result?;
        let goal = if is_whole { &mut by_cell } else { &mut unfinished };
        goal[number % cells].push(result);
    }
    let stopped = by_cell.iter().map(Vec::len).sum::<usize>() < all;
    Ok(Runs { cells: by_cell, stopped, unfinished })
}

/// The reasons to begin no further run.
struct Halt<'a> {
    stop: &'a AtomicBool,
    /// Set when the core refused a configuration.
    refused: AtomicBool,
}

impl Halt<'_> {
    fn refuse(&self) {
        // ORDER: Relaxed; the flag is a request and carries no data.
        self.refused.store(true, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        // ORDER: Relaxed; the flags are requests and carry no data.
        self.stop.load(Ordering::Relaxed) || self.refused.load(Ordering::Relaxed)
    }
}

/// Distributes the pieces of work 0 to `count` over `threads`. Each thread takes the next piece until `halted`.
/// Returns the results in order.
fn share_out<T: Send>(
    count: usize,
    threads: NonZeroUsize,
    halted: &(dyn Fn() -> bool + Sync),
    work: &(dyn Fn(usize) -> T + Sync),
) -> Vec<(usize, T)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let take = || {
        while !halted() {
            // ORDER: Relaxed; it only matters that no two threads get the same number.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            // A poisoned lock means that a thread panicked; the scope will panic as well.
            let Ok(mut done) = done.lock() else { break };
            done.push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.get().min(count) {
            scope.spawn(take);
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_unstable_by_key(|(number, _)| *number);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;
    use crate::sample::scenario;
    use rxsteer_core::{Policy, Slots};
    use std::time::Duration;

    #[test]
    fn work_is_done_once_each_and_comes_in_order() {
        for threads in [1, 2, 7] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let times: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            let done = share_out(100, threads, &|| false, &|number| {
                times[number].fetch_add(1, Ordering::Relaxed);
                number * number
            });
            assert_eq!(done, (0..100).map(|number| (number, number * number)).collect::<Vec<_>>());
            assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn stop_lets_nothing_begin() {
        let stop = AtomicBool::new(false);
        let halted = || stop.load(Ordering::Relaxed);
        let done = share_out(100, NonZeroUsize::MIN, &halted, &|number| {
            stop.store(number == 4, Ordering::Relaxed);
            number
        });
        assert_eq!(done.len(), 5);
        assert!(share_out(100, NonZeroUsize::MIN, &halted, &|number| number).is_empty());
    }

    fn runs(threads: usize, after: usize) -> Runs {
        let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let plan = Plan { first_seed: 7, seeds: 4, threads: NonZeroUsize::new(threads).unwrap() };
        let policies = [Policy::Rps, Policy::Sparse(Slots::of(4))];
        let scenario_of = |cell: usize, seed: u64| {
            let mut scenario = scenario();
            scenario.steering.policy = policies[cell].clone();
            faults::add(&scenario, seed, 2)
        };
        let progress = || {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            stop.fetch_or(done == after, Ordering::Relaxed);
        };
        run_cells(2, plan, &scenario_of, &progress, &stop).unwrap()
    }

    #[test]
    fn threads_change_nothing_and_seeds_and_cells_do() {
        let one = runs(1, usize::MAX);
        assert!(!one.stopped);
        for threads in [2, 5] {
            assert_eq!(runs(threads, usize::MAX), one, "{threads} threads");
        }
        for cell in &one.cells {
            assert_eq!(cell.iter().map(|run| run.seed).collect::<Vec<_>>(), [7, 8, 9, 10]);
            assert_ne!(cell[0].traffic, cell[1].traffic);
        }
        assert_ne!(one.cells[0], one.cells[1]);
    }

    #[test]
    fn what_was_done_before_a_stop_is_there() {
        let all = runs(1, usize::MAX);
        let some = runs(1, 5);
        assert!(some.stopped);
        assert_eq!(
            (some.cells[0].as_slice(), some.cells[1].as_slice()),
            (&all.cells[0][..3], &all.cells[1][..2])
        );
    }

    #[test]
    fn run_that_is_given_up_returns_what_it_measured() {
        let mut scenario = scenario();
        // The duration is days, so the stop comes first.
        scenario.duration_ns = 1_000_000_000_000_000;
        let plan = Plan { first_seed: 1, seeds: 2, threads: NonZeroUsize::MIN };
        let stopped_after = |pause: Duration| {
            let stop = AtomicBool::new(false);
            let runs = std::thread::scope(|scope| {
                let runs = scope.spawn(|| run_seeds(&scenario, plan, &|| {}, &stop).unwrap());
                std::thread::sleep(pause);
                stop.store(true, Ordering::Relaxed);
                runs.join().unwrap()
            });
            assert!(runs.stopped && runs.cells[0].is_empty());
            runs.unfinished.concat()
        };
        // The warm-up, which is not measured, usually ends at once; on a busy host it takes longer.
        let mut pauses = (4..14).map(|log| Duration::from_millis(1 << log));
        let unfinished =
            pauses.find_map(|pause| Some(stopped_after(pause)).filter(|u| !u.is_empty()));
        let unfinished = unfinished.expect("something is measured within seconds");
        let [run] = unfinished.as_slice() else { panic!("{unfinished:?}") };
        assert!(run.measured_ns < scenario.measured_ns());
        assert!(run.account.adds_up() && run.traffic[0].packets > 0, "{run:?}");
        // Up to the stop, the run equals a run that ends at that time.
        scenario.duration_ns = scenario.warm_up_ns + run.measured_ns;
        let whole = engine::run(&scenario, 1).unwrap();
        assert_eq!(whole.account.arrived, run.account.arrived);
        assert!(run.cpus.iter().all(|cpu| cpu.busy() <= 1.0 + 1e-9), "{:?}", run.cpus);
    }

    #[test]
    fn refused_configuration_ends_it() {
        let plan = Plan { first_seed: 0, seeds: 50, threads: NonZeroUsize::MIN };
        let mut bad = scenario();
        bad.steering.flow_cnt = Some(0);
        bad.steering.policy = Policy::Sparse(Slots::of(4));
        let stop = AtomicBool::new(false);
        assert!(run_seeds(&bad, plan, &|| {}, &stop).is_err());
    }
}
