//! The figures of published tables, computed from a run.

use crate::RunResult;

/// Transactions per second, of all traffic.
pub(crate) fn tps(result: &RunResult) -> f64 {
    result.traffic.iter().filter_map(|traffic| traffic.transactions_per_second).sum()
}

/// The load of all CPUs together, in per cent.
pub(crate) fn cpu_percent(result: &RunResult) -> f64 {
    let busy: f64 = result.cpus.iter().map(|cpu| cpu.busy()).sum();
    100.0 * busy / result.cpus.len() as f64
}

/// Packets per second that reached their destination.
pub(crate) fn packets_per_second(result: &RunResult) -> f64 {
    let packets: u64 = result.traffic.iter().map(|traffic| traffic.packets).sum();
    packets as f64 * 1e9 / result.measured_ns as f64
}
