//! What was run, and what came of it; everything that is printed or written is made from this.

use super::from::FromFiles;
use crate::Outcome;
use rxsteer_sim::compare::Difference;
use rxsteer_sim::metric::{Metric, Subject};
use rxsteer_sim::scenario::Interrupts;
use rxsteer_sim::summary::{Summary, summarize};
use rxsteer_sim::{RunResult, Scenario};

/// One column: a policy, and the results of its seeds.
pub(crate) struct Cell {
    /// The policy, as people write it.
    pub(crate) label: String,
    /// Without faults; those differ by seed.
    pub(crate) scenario: Scenario,
    /// In the order of seeds.
    pub(crate) runs: Vec<RunResult>,
}

/// All of it.
pub(crate) struct Results {
    /// The scenario's name.
    pub(crate) name: String,
    /// The scenario's text.
    pub(crate) text: String,
    /// What was recorded, where that was sent.
    pub(crate) from: Option<FromFiles>,
    /// Options that changed it.
    pub(crate) settings: Vec<String>,
    pub(crate) first_seed: u64,
    /// Seeds that were asked for.
    pub(crate) seeds: u32,
    pub(crate) faults: u32,
    /// At least one.
    pub(crate) cells: Vec<Cell>,
    /// Against the first cell; empty unless there are several.
    pub(crate) differences: Vec<Difference>,
    pub(crate) interrupted: bool,
}

impl Cell {
    /// A figure by seed, where it is there.
    pub(crate) fn values(&self, metric: &Metric, of: Subject) -> Vec<f64> {
        self.runs.iter().filter_map(|run| metric.value(&self.scenario, run, of)).collect()
    }

    /// A figure over all seeds.
    pub(crate) fn summary(&self, metric: &Metric, of: Subject) -> Option<Summary> {
        summarize(&self.values(metric, of))
    }

    /// The mean of the metric of that name; 0 where there is none.
    pub(crate) fn mean(&self, name: &str, of: Subject) -> f64 {
        let metric = Metric::named(name);
        metric.and_then(|metric| self.summary(metric, of)).map_or(0.0, |results| results.mean)
    }

    /// Runs that measured all they were to.
    pub(crate) fn done(&self) -> usize {
        let whole_ns = self.scenario.measured_ns();
        self.runs.iter().filter(|run| run.measured_ns == whole_ns).count()
    }

    /// Packets that came out of order, of all seeds.
    pub(crate) fn reordered(&self) -> u64 {
        self.runs.iter().map(|run| run.reordered).sum()
    }

    /// Whether order is kept or was not promised: it can't be kept where interrupts are spread.
    pub(crate) fn order_holds(&self) -> bool {
        self.reordered() == 0 || self.is_spread()
    }

    /// Whether a card's interrupts go to several CPUs in turn.
    pub(crate) fn is_spread(&self) -> bool {
        self.scenario.nics.iter().any(|nic| matches!(nic.interrupts, Interrupts::Spread(_)))
    }

    /// Seeds whose packets do not add up.
    pub(crate) fn lost_count(&self) -> Vec<u64> {
        self.runs.iter().filter(|run| !run.account.adds_up()).map(|run| run.seed).collect()
    }
}

impl Results {
    /// What is simulated; the cells differ in policy only.
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.cells[0].scenario
    }

    /// Whether no run was done, and the runs of the cells are those that were given up.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.interrupted && self.cells.iter().all(|cell| cell.done() == 0)
    }

    /// Whether order and conservation held everywhere.
    pub(crate) fn outcome(&self) -> Outcome {
        let held = |cell: &Cell| cell.order_holds() && cell.lost_count().is_empty();
        if !self.cells.iter().all(held) || !self.issues().is_empty() {
            Outcome::Findings
        } else if self.interrupted {
            Outcome::Interrupted
        } else {
            Outcome::Success
        }
    }

    /// Damage of what was recorded.
    fn issues(&self) -> &[String] {
        self.from.as_ref().map_or(&[], |from| &from.issues)
    }

    /// What to say on standard error about what went wrong.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.issues().to_vec();
        for cell in &self.cells {
            let label = &cell.label;
            if !cell.order_holds() {
                let seeds = cell.runs.iter().filter(|run| run.reordered > 0).map(|run| run.seed);
                notes.push(format!(
                    "{} packets were processed out of order under {label} (seed {}). That is a bug in \
                     rxsteer: please report it with this command line.",
                    cell.reordered(),
                    listed(seeds)
                ));
            }
            let lost = cell.lost_count();
            if !lost.is_empty() {
                notes.push(format!(
                    "packets do not add up under {label} (seed {}; the first: {:?}). That is a bug in \
                     rxsteer: please report it with this command line.",
                    listed(lost.into_iter()),
                    cell.runs.iter().map(|run| run.account).find(|account| !account.adds_up())
                ));
            }
        }
        notes
    }
}

/// The first few seeds.
fn listed(seeds: impl Iterator<Item = u64>) -> String {
    let seeds: Vec<String> = seeds.take(5).map(|seed| seed.to_string()).collect();
    seeds.join(", ")
}
