//! The types of published figures, for both lists of rows.

/// One row of a table about requests and answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Transactions per second.
    pub tps: f64,
    /// The load of all CPUs together, in per cent.
    pub cpu_percent: f64,
}

/// The latency that the client measures, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyUs {
    /// Half of the transactions took at most this long.
    pub p50: f64,
    /// 90 % took at most this long.
    pub p90: f64,
    /// 99 % took at most this long.
    pub p99: f64,
    /// Standard deviation.
    pub std_dev: f64,
}
