//! The machines of the published experiments, as [`Scenario`]s: constants with their sources, and the values
//! that fits find.
//!
//! What must hold: nothing here knows the rows that are predicted (`tests/published_split.rs`).
//!
//! [`Scenario`]: crate::Scenario

pub mod forwarder;
pub mod router;
pub mod server;

use rxsteer_core::{CpuId, CpuSet};

/// A value that no fitted row determines, and where it is from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub value: f64,
    /// In what.
    pub unit: &'static str,
    /// Who says so; `assumed` without a source.
    pub source: &'static str,
}

impl Constant {
    const fn new(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Constant {
        Constant { name, value, unit, source }
    }
}

/// A line modified by another core takes about 75 cycles where the cache is shared.
const LINE_SHARED: Constant = Constant::new(
    "cache line from another core of the socket",
    29.0,
    "ns",
    "75 cycles at 2.6 GHz: Intel, Performance Analysis Guide for Core i7 and Xeon 5500",
);

const LINE_REMOTE: Constant = Constant::new(
    "cache line from another socket",
    100.0,
    "ns",
    "the same guide: 100 to 300 cycles in the cache there; the upper end, as lines are modified",
);

/// What a CPU that is woken does before its backlog, and how long the inter-processor interrupt takes.
const WOKEN: Constant = Constant::new("being woken", 1000.0, "ns", "assumed");
const WAKE_DELAY: Constant = Constant::new("wake-up on its way", 2000.0, "ns", "assumed");
const INTERRUPT: Constant = Constant::new("interrupt", 2000.0, "ns", "assumed");

/// CPU ids `from` up to `end`, which is not one of them.
///
/// # Panics
/// When there is none; the machines here all have some.
fn cpus(from: u16, end: u16) -> CpuSet {
    CpuSet::new((from..end).filter_map(CpuId::new)).expect("a published machine has CPUs")
}
