//! Whether the receiving CPUs have too much to do.

use crate::finding::Finding;
use crate::load::{CpuLoad, Load};
use std::time::Duration;

/// Below this many frames per second, their distribution is not conclusive.
const QUIET: f64 = 1000.0;

/// The finding for the load of a period; it never blocks anything.
pub fn load(load: &Load, time: Duration) -> Finding {
    let topic = "load";
    let total: u64 = load.cpus.iter().map(|cpu| u64::from(cpu.processed)).sum();
    let per_second = total as f64 / time.as_secs_f64().max(1e-9);
    let rate = format!("{per_second:.0} frames/s on this host");
    let Some(busiest) = load.cpus.iter().max_by_key(|cpu| cpu.processed) else {
        return Finding::note(
            topic,
            "unknown",
            "the kernel does not report what its CPUs received",
        );
    };
    let late: Vec<&CpuLoad> =
        load.cpus.iter().filter(|cpu| cpu.dropped > 0 || cpu.squeezed > 0).collect();
    if let Some(worst) = late.iter().max_by_key(|cpu| (cpu.dropped, cpu.squeezed)) {
        return Finding::note(
            topic,
            format!(
                "{rate}; CPU {} stopped {} times with work left over and dropped {} packets",
                worst.cpu, worst.squeezed, worst.dropped
            ),
            "that CPU does not keep up with what it receives; steering helps in this case",
        );
    }
    let share = 100.0 * f64::from(busiest.processed) / (total as f64).max(1.0);
    let shared = if per_second < QUIET {
        "too few to judge how CPUs share them".to_owned()
    } else {
        format!("{share:.0} % of them on CPU {}", busiest.cpu)
    };
    Finding::fine(topic, format!("{rate}, {shared}; none dropped or left over"))
}
