//! The shape of published figures, for both lists of them.

/// One line of a table about requests and answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Transactions per second.
    pub tps: f64,
    /// How busy all CPUs together were, per cent.
    pub cpu_percent: f64,
}

/// Latency as the client sees it, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyUs {
    /// Half of the transactions took no longer.
    pub p50: f64,
    /// 90 % took no longer.
    pub p90: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// Standard deviation.
    pub std_dev: f64,
}
