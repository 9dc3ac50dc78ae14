//! How much time real-time threads leave to ordinary processes of their CPU.
//!
//! Up to Linux 6.11, the kernel stops real-time threads for the rest of each period once they have run for
//! `sched_rt_runtime_us` of `sched_rt_period_us` (-1: never). From 6.12 on, a deadline server runs ordinary processes
//! that got no time for most of a second: 50 ms of each 1000 ms, unless debugfs has another value (sched(7),
//! kernel/sched/deadline.c).

use crate::files;
use crate::kernel_version::KernelVersion;
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;
use std::path::Path;

/// The first kernel with the deadline server.
const FAIR_SERVER: KernelVersion = KernelVersion::new(6, 12);
/// What its deadline server grants by default.
const FAIR_SERVER_PERMILLE: u32 = 50;
/// The settings of the servers: a folder for each CPU.
const SERVERS: &str = "/sys/kernel/debug/sched/fair_server";

/// The limits of real-time threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RealTime {
    /// `kernel.sched_rt_runtime_us`; -1: no limit.
    pub runtime_us: Option<i64>,
    /// `kernel.sched_rt_period_us`.
    pub period_us: Option<i64>,
    /// What the deadline server grants ordinary processes, in thousandths of a CPU: the smallest value of all CPUs, if
    /// debugfs shows it.
    pub server_permille: Option<u32>,
    /// Whether this process may change the scheduling class of threads (CAP_SYS_NICE).
    pub may_schedule: Option<bool>,
}

impl RealTime {
    /// Reads the limits of this host.
    pub fn read() -> RealTime {
        let sets = capabilities(None).ok();
        RealTime {
            runtime_us: files::number("/proc/sys/kernel/sched_rt_runtime_us"),
            period_us: files::number("/proc/sys/kernel/sched_rt_period_us"),
            server_permille: servers(Path::new(SERVERS)),
            may_schedule: sets.map(|sets| sets.effective.contains(CapabilitySet::SYS_NICE)),
        }
    }

    /// How much a CPU whose real-time threads never sleep leaves to ordinary processes, in thousandths; 0: nothing.
    pub fn left_permille(&self, version: Option<KernelVersion>) -> u32 {
        let is_new = version.is_some_and(|version| version >= FAIR_SERVER);
        let by_server =
            self.server_permille.unwrap_or(if is_new { FAIR_SERVER_PERMILLE } else { 0 });
        let by_throttling = match (self.runtime_us, self.period_us) {
            (Some(runtime), Some(period)) if !is_new && runtime >= 0 && period > runtime => {
                u32::try_from((period - runtime) * 1000 / period).unwrap_or(0)
            }
            _ => 0,
        };
        by_server.max(by_throttling)
    }
}

/// The smallest value that a server grants.
fn servers(folder: &Path) -> Option<u32> {
    let of_cpu = |cpu: &Path| {
        let runtime: u64 = files::number(cpu.join("runtime"))?;
        let period: u64 = files::number(cpu.join("period"))?;
        u32::try_from(runtime * 1000 / period.max(1)).ok()
    };
    let cpus = std::fs::read_dir(folder).ok()?.flatten();
    cpus.filter_map(|cpu| of_cpu(&cpu.path())).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(runtime: i64, server: Option<u32>, version: (u32, u32)) -> u32 {
        let limits = RealTime {
            runtime_us: Some(runtime),
            period_us: Some(1_000_000),
            server_permille: server,
            may_schedule: Some(true),
        };
        limits.left_permille(Some(KernelVersion::new(version.0, version.1)))
    }

    #[test]
    fn old_kernels_throttle_and_new_ones_have_a_server() {
        assert_eq!(left(950_000, None, (6, 1)), 50);
        assert_eq!(left(-1, None, (6, 1)), 0);
        assert_eq!(left(1_000_000, None, (6, 11)), 0);
        assert_eq!(left(-1, None, (6, 12)), 50, "the server does not go by that");
        assert_eq!(left(950_000, Some(0), (6, 12)), 0, "it is switched off");
        assert_eq!(left(950_000, Some(100), (6, 18)), 100);
        assert_eq!(RealTime::default().left_permille(None), 0, "nothing is known");
    }

    #[test]
    fn servers_are_read_and_the_least_counts() {
        let folder = std::env::temp_dir().join(format!("rxsteer-servers-{}", std::process::id()));
        for (cpu, runtime) in [("cpu0", "50000000"), ("cpu1", "20000000")] {
            std::fs::create_dir_all(folder.join(cpu)).unwrap();
            std::fs::write(folder.join(cpu).join("runtime"), runtime).unwrap();
            std::fs::write(folder.join(cpu).join("period"), "1000000000\n").unwrap();
        }
        let least = servers(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((least, servers(&folder)), (Some(20), None));
    }
}
