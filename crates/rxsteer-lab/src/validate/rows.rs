//! What to predict: loads and methods that a calibration does not measure.

use crate::calibrate::{CONNECTIONS, INLINE_FLOWS, INLINE_LENGTH, METHODS};
use crate::method::Method;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Load {
    /// Frames through a router.
    Forward(Frames),
    /// Requests and replies of one byte between two hosts on this machine.
    Requests(Calls),
}

/// Frames through a router.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Frames {
    /// Offered frames per second; 0: as fast as they are accepted.
    pub rate: f64,
    /// The number of flows.
    pub flows: u32,
    /// Bytes per frame.
    pub length: u32,
    /// Rules of a firewall that match nothing.
    pub rules: u32,
    /// The first CPU to which packets are steered; the last one is CPU 1.
    pub first_cpu: usize,
}

/// Requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Calls {
    /// TCP connections.
    pub connections: u32,
    /// Requests per second in an open loop; 0: a closed loop.
    pub rate: u32,
    /// The server's work for each request, in microseconds.
    pub work_us: u32,
}

impl Frames {
    /// The load of a calibration.
    pub(super) const CALIBRATED: Frames =
        Frames { rate: 0.0, flows: INLINE_FLOWS, length: INLINE_LENGTH, rules: 0, first_cpu: 0 };
}

impl Calls {
    /// The load of a calibration.
    pub(super) const CALIBRATED: Calls = Calls { connections: CONNECTIONS, rate: 0, work_us: 0 };

    pub(super) fn work(&self) -> Duration {
        Duration::from_micros(u64::from(self.work_us))
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Forward(load) => {
                if load.rate > 0.0 {
                    write!(out, "forward {:.0} packets/s", load.rate)?;
                } else {
                    write!(out, "forward as fast as taken")?;
                }
                write!(out, ", {} flows, {} bytes", load.flows, load.length)?;
                if load.rules > 0 {
                    write!(out, ", {} rules", load.rules)?;
                }
                if load.first_cpu > 0 {
                    write!(out, ", all to CPU {}", load.first_cpu)
                } else {
                    Ok(())
                }
            }
            Load::Requests(load) => {
                write!(out, "requests of {} connections", load.connections)?;
                if load.rate > 0 {
                    write!(out, ", {}/s", load.rate)?;
                }
                if load.work_us > 0 {
                    write!(out, ", {} µs of work", load.work_us)
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// The methods of requests.
pub(super) const OF_REQUESTS: [Method; 3] =
    [Method::None, Method::KernelRps, Method::Kernel("rps")];

/// The offered rates of open loops, as shares of what all CPUs answer under the slowest method. Closer to its capacity no
/// latency can be predicted: there a deviation of a few percent in the cost of a request multiplies the time that requests
/// wait for each other.
const OPEN_LOOPS: [f64; 2] = [0.3, 0.6];

/// Rows to predict. `capacity` is how many packets per second one CPU forwards without steering; `slowest` is how many
/// requests per second all CPUs answer under the slowest method.
///
/// The rows are chosen so that methods differ: one CPU has too much to do, or has a long path for each packet. With
/// steering, packets go to CPUs 0 and 1, or all to CPU 1 on a longer path than the calibrated one. So no row was
/// calibrated.
pub(super) fn all(capacity: f64, slowest: f64, quick: bool) -> Vec<(Method, Load)> {
    let base = Frames::CALIBRATED;
    let offered = |share: f64| Frames { rate: (capacity * share).round(), ..base };
    let mut rows = Vec::new();
    let mut add = |methods: &[Method], loads: &[Load]| {
        rows.extend(loads.iter().flat_map(|load| methods.iter().map(|method| (*method, *load))));
    };
    let with_none = [&[Method::None][..], &METHODS].concat();
    let requests = |connections: u32, share: f64, work_us: u32| {
        // Rounded to whole thousands, for readability.
        let rate = (slowest * share / 1000.0).round() as u32 * 1000;
        Load::Requests(Calls { connections, rate, work_us })
    };
    if quick {
        add(&with_none, &[Load::Forward(offered(0.8))]);
        add(&OF_REQUESTS, &[requests(10, 0.0, 0)]);
        return rows;
    }
    add(&with_none, &[offered(0.6), offered(1.2)].map(Load::Forward));
    add(&with_none, &[8, 2048].map(|flows| Load::Forward(Frames { flows, ..base })));
    add(&with_none, &[Load::Forward(Frames { length: 512, ..base })]);
    add(&with_none, &[Load::Forward(Frames { rules: 400, ..base })]);
    add(&METHODS, &[Load::Forward(Frames { rules: 100, first_cpu: 1, ..base })]);
    add(&OF_REQUESTS, &[10, 500].map(|connections| requests(connections, 0.0, 0)));
    add(&OF_REQUESTS, &[requests(CONNECTIONS, 0.0, 20)]);
    add(&OF_REQUESTS, &OPEN_LOOPS.map(|share| requests(200, share, 0)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_thirty_and_none_was_calibrated() {
        let rows = all(1e6, 1e5, false);
        assert!(rows.len() >= 30, "{}", rows.len());
        assert!(!rows.contains(&(Method::None, Load::Forward(Frames::CALIBRATED))));
        assert!(rows.iter().all(|row| row.1 != Load::Requests(Calls::CALIBRATED)));
        for (index, row) in rows.iter().enumerate() {
            assert!(!rows[..index].contains(row), "{row:?} twice");
        }
    }
}
