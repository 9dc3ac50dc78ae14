//! Variants that take turns, round after round.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::left_out::measured;
use crate::{Case, Gate, NoGate, Quartiles};

/// The shortest time of the calls between two reads of the clock, so that the read has no noticeable cost.
const MIN_STRETCH: Duration = Duration::from_micros(200);
/// How often a slice is repeated if the gate rejects it; after that its round has no figure for the case.
const RETRIES: u32 = 4;
/// How often, and for how long, a slice waits for the gate to open.
const WAITS: u32 = 10;
const WAIT: Duration = Duration::from_millis(30);

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many turns every case has.
    pub rounds: usize,
    /// The length of a turn.
    pub slice: Duration,
    /// The gate for slices, or why there is none.
    pub gate: Result<Gate, NoGate>,
    /// Determines the order of the turns.
    pub seed: u64,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each case, in the order of the cases.
    pub measured: Vec<Measured>,
    /// Statistics of the slices.
    pub slices: Slices,
}

/// The figures of one case.
#[derive(Clone, Debug)]
pub struct Measured {
    /// [`Case::group`].
    pub group: &'static str,
    /// [`Case::name`].
    pub name: &'static str,
    /// [`Case::baseline`].
    pub baseline: bool,
    /// Time per item, over the rounds; `None` if no slice passed the gate.
    pub ns: Option<Quartiles>,
    /// One comparison for each other baseline of the group.
    pub against: Vec<Against>,
}

/// A case's time compared with a baseline's, round by round.
#[derive(Clone, Debug)]
pub struct Against {
    /// The name of the baseline.
    pub baseline: &'static str,
    /// Below 1 the case is faster; `None` if no round has both.
    pub ratio: Option<Quartiles>,
    /// The case's time minus the baseline's, in nanoseconds per item; `None` if no round has both.
    pub more_ns: Option<Quartiles>,
}

/// Counts of slices.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// Slices that count.
    pub kept: u32,
    /// Slices that were discarded, because the gate was closed after them.
    pub thrown_away: u32,
    /// How often a slice had to wait, because the gate was closed before it.
    pub waits: u32,
    /// Turns without a figure after all retries.
    pub given_up: u32,
    /// The times that the gate measured; `None` without a gate.
    pub one_way_ns: Option<Quartiles>,
}

/// Runs all cases with the parameters of `plan`. Before each round of a group, `progress` is called with a description.
pub fn measure(cases: &mut [Case], plan: &Plan, progress: &mut dyn FnMut(&str)) -> Report {
    let mut order = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut gated = GatedRun {
        gate: plan.gate.as_ref().ok(),
        slices: Slices::default(),
        seen: Vec::new(),
        wait: WAIT,
    };
    let groups = groups_of(cases);

    let stretches: Vec<u64> = cases.iter_mut().map(calls_per_stretch).collect();
    let mut figures = vec![Vec::with_capacity(plan.rounds); cases.len()];
    for round in 1..=plan.rounds {
        for (group, members) in &groups {
            progress(&format!("round {round} of {}: {group}", plan.rounds));
            let mut turns = members.clone();
            turns.shuffle(&mut order);
            for turn in turns {
                let case = &mut cases[turn];
                figures[turn].push(gated.slice(|| timed(case, stretches[turn], plan.slice)));
            }
        }
    }

    let measured = (0..cases.len()).map(|at| summed_up(at, cases, &figures)).collect();
    gated.slices.one_way_ns = Quartiles::of(&gated.seen);
    Report { measured, slices: gated.slices }
}

/// The groups in the order of their first case, with the indices of their cases.
fn groups_of(cases: &[Case]) -> Vec<(&'static str, Vec<usize>)> {
    let mut groups: Vec<(&'static str, Vec<usize>)> = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        match groups.iter_mut().find(|(group, _)| *group == case.group) {
            Some((_, members)) => members.push(at),
            None => groups.push((case.group, vec![at])),
        }
    }
    groups
}

/// The number of calls that take long enough for a read of the clock. The calls made to find it are the case's warm-up.
fn calls_per_stretch(case: &mut Case) -> u64 {
    let mut calls = 1_u64;
    loop {
        let start = Instant::now();
        for _ in 0..calls {
            black_box((case.run)());
        }
        if start.elapsed() >= MIN_STRETCH {
            return calls;
        }
        calls *= 2;
    }
}

/// Runs a case for one slice, and returns the time of one item.
fn timed(case: &mut Case, calls: u64, slice: Duration) -> f64 {
    let (mut stretches, mut counts) = (0_u64, Duration::ZERO);
    let start = Instant::now();
    loop {
        counts += measured(|| {
            for _ in 0..calls {
                black_box((case.run)());
            }
        });
        stretches += 1;
        if start.elapsed() >= slice {
            break;
        }
    }
    counts.as_nanos() as f64 / (stretches * calls * case.per_iter) as f64
}

fn summed_up(at: usize, cases: &[Case], figures: &[Vec<Option<f64>>]) -> Measured {
    let case = &cases[at];
    let against = cases
        .iter()
        .enumerate()
        .filter(|(other, theirs)| theirs.baseline && theirs.group == case.group && *other != at)
        .map(|(other, theirs)| Against {
            baseline: theirs.name,
            ratio: Quartiles::of_pairs(&figures[at], &figures[other], |mine, base| mine / base),
            more_ns: Quartiles::of_pairs(&figures[at], &figures[other], |mine, base| mine - base),
        })
        .collect();
    let kept: Vec<f64> = figures[at].iter().copied().flatten().collect();
    Measured {
        group: case.group,
        name: case.name,
        baseline: case.baseline,
        ns: Quartiles::of(&kept),
        against,
    }
}

/// Checks the gate, and counts the results.
struct GatedRun<'plan> {
    gate: Option<&'plan Gate>,
    slices: Slices,
    seen: Vec<f64>,
    wait: Duration,
}

impl GatedRun<'_> {
    /// Takes a slice before and after which the gate is open, or `None` if all tries failed.
    fn slice(&mut self, mut take: impl FnMut() -> f64) -> Option<f64> {
        for _ in 0..=RETRIES {
            if !self.opens() {
                continue;
            }
            let figure = take();
            if self.is_open() {
                self.slices.kept += 1;
                return Some(figure);
            }
            self.slices.thrown_away += 1;
        }
        self.slices.given_up += 1;
        None
    }

    /// Waits for the gate to open; returns false if it stays closed.
    fn opens(&mut self) -> bool {
        for _ in 0..WAITS {
            if self.is_open() {
                return true;
            }
            self.slices.waits += 1;
            thread::sleep(self.wait);
        }
        false
    }

    fn is_open(&mut self) -> bool {
        let Some(gate) = self.gate else { return true };
        let Some(now) = gate.one_way_ns() else { return false };
        self.seen.push(now);
        now <= gate.limit_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    fn case(
        group: &'static str,
        name: &'static str,
        baseline: bool,
        calls: &Rc<Cell<u64>>,
    ) -> Case {
        let calls = Rc::clone(calls);
        let run = Box::new(move || {
            calls.set(calls.get() + 1);
            calls.get()
        });
        Case { group, name, baseline, per_iter: 1, run }
    }

    fn plan(gate: Result<Gate, NoGate>) -> Plan {
        Plan { rounds: 3, slice: Duration::from_millis(1), gate, seed: 1 }
    }

    #[test]
    fn every_case_has_its_turns_and_is_divided_by_every_baseline_of_its_group() {
        let calls = Rc::new(Cell::new(0));
        let mut cases = [
            case("a", "old", true, &calls),
            case("b", "alone", false, &calls),
            case("a", "older", true, &calls),
            case("a", "new", false, &calls),
        ];
        let mut seen = Vec::new();
        let report = measure(&mut cases, &plan(Err(NoGate::TurnedOff)), &mut |what| {
            seen.push(what.to_owned())
        });

        assert_eq!(seen.len(), 3 * 2);
        assert_eq!(seen[1], "round 1 of 3: b");
        assert_eq!(report.slices.kept, 3 * 4);
        assert!(report.slices.one_way_ns.is_none());
        assert!(report.measured.iter().all(|m| m.ns.is_some()));
        let divided_by = |at: usize| -> Vec<&str> {
            report.measured[at].against.iter().map(|against| against.baseline).collect()
        };
        assert_eq!(divided_by(0), ["older"]);
        assert_eq!(divided_by(1), [] as [&str; 0]);
        assert_eq!(divided_by(3), ["old", "older"]);
        assert!(calls.get() > 12);
    }

    #[test]
    fn gate_that_never_opens_leaves_no_figure_and_ends() {
        // Every pass takes some time, so a gate with a limit of 0 stays closed.
        let Ok(gate) = Gate::find(0.0) else { return };
        let mut gated = GatedRun {
            gate: Some(&gate),
            slices: Slices::default(),
            seen: Vec::new(),
            wait: Duration::ZERO,
        };
        assert_eq!(gated.slice(|| unreachable!("the gate was shut")), None);
        assert_eq!((gated.slices.kept, gated.slices.given_up), (0, 1));
        assert_eq!(gated.slices.waits, WAITS * (RETRIES + 1));
    }
}
