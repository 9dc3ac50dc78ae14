//! Experiments that compare methods of packet steering on this machine.
//!
//! ```text
//!   list() ─► Experiment ─► loads × methods = cells ─► run(): rounds, each cell once per round, in random order
//!                                                        │   Method::apply, load, checks, Sample
//!                                                        ▼
//!                                                      Report: medians, intervals, the difference to no steering
//! ```
//!
//! An experiment checks that its load was as specified. A measurement whose check fails has no figure.

mod cpus;
mod figures;
mod flowstats;
mod forward;
mod machine;
mod order;
mod published;
mod rr;
mod run;
mod sparse;
mod userspace;
mod verdict;
mod workers;

pub use crate::cpu_use::CpuUse;
pub use crate::method::{Applied, Method};
pub use figures::{Against, Figure};
pub use machine::Machine;
pub use published::Published;
pub use run::{Report, Row, Skipped, Verdict, run};
pub use verdict::{MIN_ROUNDS, no_verdict};

use crate::Result;
use serde::Serialize;

/// Describes an experiment, for lists and reports.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Description {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures, in a sentence.
    pub about: &'static str,
    /// The published experiment that it repeats.
    pub source: &'static str,
    /// Its metrics. The first one is the headline: methods are compared by it, unless the load names another.
    pub metrics: &'static [Metric],
}

/// A figure that an experiment measures.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
pub struct Metric {
    /// Its name in reports.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Whether a larger figure is better.
    pub more_is_better: bool,
    /// Whether it is a count that may be 0. Ratios are then of 1 + count.
    pub may_be_zero: bool,
}

impl Metric {
    const fn more(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, more_is_better: true, may_be_zero: false }
    }

    const fn less(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, more_is_better: false, may_be_zero: false }
    }

    const fn fewer(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, more_is_better: false, may_be_zero: true }
    }
}

/// The size of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// A short run, which shows that everything works; its figures are not conclusive.
    pub quick: bool,
    /// How often each cell is measured.
    pub rounds: usize,
}

impl Scale {
    /// The short run.
    pub const QUICK: Scale = Scale { quick: true, rounds: 2 };
    /// The run whose figures can have a verdict.
    pub const FULL: Scale = Scale { quick: false, rounds: 9 };

    /// `short` in a quick run, otherwise `full`.
    pub fn pick<T>(self, short: T, full: T) -> T {
        if self.quick { short } else { full }
    }
}

/// The load of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Its name in reports.
    pub name: &'static str,
    /// The number of connections or flows.
    pub flows: u32,
    /// Whether the host in the middle translates addresses.
    pub nat: bool,
    /// Other processes that are busy on each CPU all the time.
    pub busy: usize,
    /// The number of RX queues.
    pub queues: usize,
    /// Requests per second in an open loop; 0: as fast as possible.
    pub rate: u32,
}

impl Load {
    /// A load of `flows` flows, without address translation and without other processes, into one RX queue.
    pub const fn new(name: &'static str, flows: u32) -> Load {
        Load { name, flows, nat: false, busy: 0, queues: 1, rate: 0 }
    }
}

/// One measurement of one cell.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The figures, by the name of their metric.
    pub values: Vec<(&'static str, f64)>,
    /// What was verified about the load.
    pub checks: Vec<String>,
    /// What each CPU did while it was measured.
    pub cpus: Vec<CpuUse>,
}

/// An experiment.
pub trait Experiment: Sync {
    /// Its name, description, source and metrics.
    fn description(&self) -> Description;

    /// The programs that it starts, as root; `None` if it requires neither programs nor root.
    fn programs(&self) -> Option<&'static [&'static str]>;

    /// What this machine lacks to run it, if anything.
    fn unavailable(&self) -> Option<String> {
        self.programs().and_then(crate::missing)
    }

    /// The loads, each of which is measured with each method.
    fn loads(&self, scale: Scale) -> Vec<Load>;

    /// The methods. The first one is the baseline for the others: no steering, for experiments with steering.
    fn methods(&self, scale: Scale) -> Vec<Method>;

    /// Why a method cannot be measured with a load, if so.
    fn excluded(&self, _method: &Method, _load: &Load) -> Option<&'static str> {
        None
    }

    /// The metric by which methods are compared under a load: the first one, unless the load defines another.
    fn headline(&self, _load: &Load) -> Metric {
        self.description().metrics[0]
    }

    /// Parts of the experiment that cannot be measured here, and what they need.
    fn not_measured(&self, _scale: Scale) -> Vec<Skipped> {
        vec![]
    }

    /// Measures a cell once. Everything that it sets up is removed when it returns.
    ///
    /// # Errors
    ///
    /// A setup error, or [`LabError::Load`](crate::LabError::Load) if the load was not as specified.
    fn measure(&self, method: &Method, load: &Load, scale: Scale) -> Result<Sample>;
}

/// All experiments, in the order in which they are listed.
pub fn list() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(sparse::Sparse),
        Box::new(rr::Rr::Echo),
        Box::new(rr::Rr::Rpc),
        Box::new(forward::Forward),
        Box::new(flowstats::FlowStats),
        Box::new(rr::Rr::Queues),
        Box::new(order::Order),
        Box::new(userspace::Userspace),
        Box::new(cpus::Cpus),
        Box::new(workers::Workers),
    ]
}
