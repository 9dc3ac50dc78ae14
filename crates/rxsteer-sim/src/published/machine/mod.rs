//! The machines of the published experiments as [`Scenario`]s: constants with their sources, and the values that
//! fits find.
//!
//! Invariant: no code here uses the rows that are predicted (`tests/published.rs`).
//!
//! [`Scenario`]: crate::Scenario

pub mod forwarder;
pub mod router;
pub mod server;

use rxsteer_core::{CpuId, CpuSet};

/// A value that no fitted row determines, with its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    /// The meaning of the value.
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// The unit.
    pub unit: &'static str,
    /// The source; `assumed` without one.
    pub source: &'static str,
    /// The least and the highest value that the publications allow. Only for a constant from predicted figures, which
    /// reports vary.
    pub range: Option<(f64, f64)>,
}

impl Constant {
    const fn new(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Constant {
        Constant { name, value, unit, source, range: None }
    }

    /// A constant from predicted figures, which allow a range.
    const fn with_range(self, least: f64, most: f64) -> Constant {
        Constant { range: Some((least, most)), ..self }
    }

    /// The value, then the ends of its range, if it has one.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let ends = self.range.into_iter().flat_map(|(least, most)| [least, most]);
        std::iter::once(self.value).chain(ends)
    }
}

/// A cache line modified by another core takes about 75 cycles if the cache is shared.
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

/// The work of a woken CPU before it processes its backlog, and the delay of the inter-processor interrupt.
const WOKEN: Constant = Constant::new("being woken", 1000.0, "ns", "assumed");
const WAKE_DELAY: Constant = Constant::new("wake-up on its way", 2000.0, "ns", "assumed");
const INTERRUPT: Constant = Constant::new("interrupt", 2000.0, "ns", "assumed");

/// CPU ids from `from` up to `end`, which is excluded.
///
/// # Panics
/// When the range is empty; the machines here all have CPUs.
fn cpus(from: u16, end: u16) -> CpuSet {
    CpuSet::new((from..end).filter_map(CpuId::new)).expect("a published machine has CPUs")
}
