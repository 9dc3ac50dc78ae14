//! The settings and results of all runs; everything that is printed or written is made from these.

use rxsteer_core::PacketRule;
use rxsteer_sim::compare::Difference;
use rxsteer_sim::costs::Cost;
use rxsteer_sim::metric::{Metric, Subject};
use rxsteer_sim::scenario::Interrupts;
use rxsteer_sim::sensitivity::Change;
use rxsteer_sim::summary::{Summary, summarize};
use rxsteer_sim::{RunResult, Scenario};
use serde_json::Value;
use std::path::Path;

/// One column: a policy, and the results of its seeds.
pub struct Cell {
    /// The policy in the syntax of `--policy`.
    pub label: String,
    /// The scenario without faults, which differ by seed.
    pub scenario: Scenario,
    /// The results in the order of seeds.
    pub runs: Vec<RunResult>,
}

/// What was recorded, and is the traffic of a scenario.
#[derive(Debug)]
pub struct Recording {
    /// What was read, as a JSON object.
    pub about: Value,
    /// Damaged files, of which the part before the damage was used.
    pub issues: Vec<String>,
}

/// How runs ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All runs are whole, and order and conservation held.
    Sound,
    /// They were interrupted.
    Interrupted,
    /// Something is wrong: [`Results::notes`] has what.
    Findings,
}

/// All results.
pub struct Results {
    /// The scenario's name.
    pub name: String,
    /// The scenario's text.
    pub text: String,
    /// The recording, if one was sent.
    pub from: Option<Recording>,
    /// The options that changed the scenario.
    pub settings: Vec<String>,
    /// The first seed; the others follow it.
    pub first_seed: u64,
    /// The number of seeds that were requested.
    pub seeds: u32,
    /// The number of random faults in each run.
    pub faults: u32,
    /// There is at least one cell.
    pub cells: Vec<Cell>,
    /// Differences from the first cell; empty unless there are several cells.
    pub differences: Vec<Difference>,
    /// The costs that are known to be not measured, without those that a user set.
    pub assumed: Vec<&'static Cost>,
    /// The first cell with one cost changed at a time, by `--sensitivity`.
    pub varied: Vec<Varied>,
    /// Whether the runs were interrupted.
    pub interrupted: bool,
}

/// The first cell's runs with one cost changed.
pub struct Varied {
    /// The cost.
    pub cost: &'static Cost,
    /// Its value.
    pub value: f64,
    /// How figures changed with it.
    pub changes: Vec<Change>,
}

impl Cell {
    /// The values of a figure for each seed that has it.
    pub fn values(&self, metric: &Metric, of: Subject) -> Vec<f64> {
        self.runs.iter().filter_map(|run| metric.value(&self.scenario, run, of)).collect()
    }

    /// A figure over all seeds.
    pub fn summary(&self, metric: &Metric, of: Subject) -> Option<Summary> {
        summarize(&self.values(metric, of))
    }

    /// The packets that `rule` matched, over the seeds that have it: those of faults differ by seed.
    pub fn matched(&self, rule: &PacketRule) -> Option<Summary> {
        let of_run = |run: &RunResult| {
            let found = run.rules.iter().find(|(of, _)| of == rule);
            found.map(|(_, packets)| *packets as f64)
        };
        summarize(&self.runs.iter().filter_map(of_run).collect::<Vec<f64>>())
    }

    /// The mean of the metric with this name; 0 if there is none.
    pub fn mean(&self, name: &str, of: Subject) -> f64 {
        let metric = Metric::named(name);
        metric.and_then(|metric| self.summary(metric, of)).map_or(0.0, |results| results.mean)
    }

    /// The number of runs that were measured completely.
    pub fn done(&self) -> usize {
        let whole_ns = self.scenario.measured_ns();
        self.runs.iter().filter(|run| run.measured_ns == whole_ns).count()
    }

    /// Packets that arrived out of order, in all seeds.
    pub fn reordered(&self) -> u64 {
        self.runs.iter().map(|run| run.reordered).sum()
    }

    /// Whether every flow kept its order.
    pub fn order_holds(&self) -> bool {
        self.reordered() == 0
    }

    /// Whether order was lost although it was promised; it cannot be kept if interrupts are spread.
    fn breaks_order(&self) -> bool {
        !self.order_holds() && !self.is_spread()
    }

    /// A message if the policy has RFS and nothing for RFS to follow.
    fn rfs_without_applications(&self) -> Option<String> {
        let forwards = self.scenario.traffic.iter().all(|traffic| traffic.out.is_some());
        (self.scenario.steering.mechanisms().rfs && forwards).then(|| {
            format!(
                "all traffic here is forwarded, so no application reads packets and RFS has no desired CPU \
                 to follow: {} decides as it would without RFS. Compare it on a scenario whose traffic ends here \
                 (no out).",
                self.label
            )
        })
    }

    /// Whether the interrupts of a NIC go to several CPUs in turn.
    pub fn is_spread(&self) -> bool {
        self.scenario.nics.iter().any(|nic| matches!(nic.interrupts, Interrupts::Spread(_)))
    }

    /// The seeds in which the packet counts do not add up.
    pub fn lost_count(&self) -> Vec<u64> {
        self.runs.iter().filter(|run| !run.account.adds_up()).map(|run| run.seed).collect()
    }
}

/// All rules before the policy that were active in a run, in order of activation.
pub fn rules(cells: &[Cell]) -> Vec<&PacketRule> {
    let mut rules: Vec<&PacketRule> = Vec::new();
    for (rule, _) in cells.iter().flat_map(|cell| &cell.runs).flat_map(|run| &run.rules) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

impl Results {
    /// The simulated scenario; the cells differ only in their policy.
    pub fn scenario(&self) -> &Scenario {
        &self.cells[0].scenario
    }

    /// Whether no run was finished, so that the cells contain unfinished runs.
    pub fn is_unfinished(&self) -> bool {
        self.interrupted && self.cells.iter().all(|cell| cell.done() == 0)
    }

    /// The scenario's name without folder and extension.
    pub fn short_name(&self) -> &str {
        let stem = Path::new(&self.name).file_stem();
        stem.and_then(|stem| stem.to_str()).unwrap_or(&self.name)
    }

    /// Whether order and conservation held everywhere.
    pub fn ending(&self) -> Ending {
        let held = |cell: &Cell| !cell.breaks_order() && cell.lost_count().is_empty();
        if !self.cells.iter().all(held) || !self.issues().is_empty() {
            Ending::Findings
        } else if self.interrupted {
            Ending::Interrupted
        } else {
            Ending::Sound
        }
    }

    /// Damage in the recorded files.
    fn issues(&self) -> &[String] {
        self.from.as_ref().map_or(&[], |from| &from.issues)
    }

    /// Messages about problems, for standard error.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.issues().to_vec();
        for cell in &self.cells {
            let label = &cell.label;
            notes.extend(cell.rfs_without_applications());
            if cell.breaks_order() {
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

/// The first five seeds as text.
fn listed(seeds: impl Iterator<Item = u64>) -> String {
    let seeds: Vec<String> = seeds.take(5).map(|seed| seed.to_string()).collect();
    seeds.join(", ")
}
