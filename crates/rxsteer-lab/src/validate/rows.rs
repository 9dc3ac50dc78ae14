//! What is predicted: loads and methods that a calibration does not measure.

use crate::calibrate::{INLINE_FLOWS, INLINE_LENGTH, METHODS};
use crate::experiment::Method;
use serde::Serialize;
use std::fmt;

/// A load of a router.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Offered frames a second; 0: as fast as they are taken.
    pub rate: f64,
    /// The number of flows.
    pub flows: u32,
    /// Bytes of a frame.
    pub length: u32,
}

impl Load {
    /// The load of a calibration.
    pub(super) fn calibrated() -> Load {
        Load { rate: 0.0, flows: INLINE_FLOWS, length: INLINE_LENGTH }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rate > 0.0 {
            write!(out, "{:.0} packets/s", self.rate)?;
        } else {
            write!(out, "as fast as taken")?;
        }
        write!(out, ", {} flows, {} bytes", self.flows, self.length)
    }
}

/// Rows to predict. `capacity` is what one CPU forwards without steering, in packets a second.
///
/// With steering, packets go to CPUs 0 and 1; a calibration sends them to one. So each row with steering is a load that was not calibrated.
pub(super) fn all(capacity: f64, quick: bool) -> Vec<(Method, Load)> {
    let base = Load::calibrated();
    let offered = |share: f64| Load { rate: (capacity * share).round(), ..base };
    let mut rows = Vec::new();
    let mut add = |methods: &[Method], loads: &[Load]| {
        rows.extend(loads.iter().flat_map(|load| methods.iter().map(|method| (*method, *load))));
    };
    let steered = METHODS;
    let with_none = [&[Method::None][..], &METHODS].concat();
    if quick {
        add(&with_none, &[offered(0.8)]);
        return rows;
    }
    add(&with_none, &[offered(0.6), offered(0.95), offered(1.2), offered(1.6)]);
    add(&steered, &[base]);
    add(&with_none, &[8, 256, 2048].map(|flows| Load { flows, ..base }));
    add(&with_none, &[256, 1024].map(|length| Load { length, ..base }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_thirty_and_none_was_calibrated() {
        let rows = all(1e6, false);
        assert!(rows.len() >= 30, "{}", rows.len());
        assert!(!rows.contains(&(Method::None, Load::calibrated())));
        for (index, row) in rows.iter().enumerate() {
            assert!(!rows[..index].contains(row), "{row:?} twice");
        }
    }
}
