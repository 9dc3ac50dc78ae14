//! Requests and replies between two hosts under a method: one measurement, for calibration and validation.

use crate::error::Result;
use crate::method::Method;
use crate::rr_load::{RrLoad, request_response};
use crate::testbed::{LinkOptions, Testbed};
use std::time::Duration;

/// Requests over TCP connections, one byte each, and how they are steered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    pub(crate) method: Method,
    pub(crate) connections: u32,
    /// Requests per second in an open loop; 0: a closed loop.
    pub(crate) rate: u32,
    /// The server's work for each request.
    pub(crate) work: Duration,
    pub(crate) time: Duration,
}

/// The result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    /// Transactions per second.
    pub(crate) rate: f64,
    /// Latencies in nanoseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// The time of all CPUs together for a transaction, in nanoseconds.
    pub(crate) cpu_ns: f64,
}

impl Requests {
    /// Sets everything up, measures, and removes everything.
    ///
    /// # Errors
    ///
    /// A setup error, or [`LabError::Load`](crate::LabError::Load) if the load was not as specified.
    pub(crate) fn measure(&self) -> Result<Answered> {
        let testbed = Testbed::hosts(LinkOptions::default())?;
        let applied = self.method.apply(&testbed, &["in0"])?;
        let load = RrLoad {
            connections: self.connections as usize,
            rate: self.rate,
            work: self.work,
            server_threads: 0,
            time: self.time,
        };
        let to = (testbed.receiver(), testbed.link().far.ipv4);
        let report = request_response(Some(testbed.sender()), Some(to), &load)?;
        applied.end()?;
        let rate = report.replies as f64 / report.took.as_secs_f64();
        let busy: f64 = report.cpus.iter().map(|cpu| 1.0 - cpu.idle / 100.0).sum();
        let quantile = |share| report.latency.value_at_quantile(share) as f64;
        Ok(Answered { rate, p50: quantile(0.5), p99: quantile(0.99), cpu_ns: busy * 1e9 / rate })
    }
}
