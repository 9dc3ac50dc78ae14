//! How each CPU spent its time during a measurement, from /proc/stat.

use crate::error::{LabError, Result, Tried};
use serde::Serialize;

/// The shares of one CPU's time, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CpuUse {
    /// Its number.
    pub cpu: usize,
    /// Processes, outside the kernel.
    pub user: f64,
    /// The kernel on behalf of processes, and its threads: CPUMAP and NAPI threads are among them.
    pub system: f64,
    /// Interrupts and soft interrupts.
    pub softirq: f64,
    /// Idle.
    pub idle: f64,
    /// Time that the hypervisor gave to others.
    pub steal: f64,
}

/// The counters of all CPUs at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Vec<Ticks>);

/// A CPU, and its ticks: user, nice, system, idle, iowait, irq, softirq, steal.
type Ticks = (usize, [u64; 8]);

impl Snapshot {
    pub(crate) fn now() -> Result<Snapshot> {
        let text = std::fs::read_to_string("/proc/stat").tried(|| "read /proc/stat".to_owned())?;
        Snapshot::parse(&text).ok_or_else(|| LabError::Unreadable {
            who: "/proc/stat".to_owned(),
            why: "it has no CPUs".to_owned(),
        })
    }

    /// Lines `cpuN user nice system idle iowait irq softirq steal …`, in ticks.
    fn parse(text: &str) -> Option<Snapshot> {
        let cpus: Vec<_> = text
            .lines()
            .filter_map(|line| {
                // The line without a number is the sum of all CPUs.
                let (cpu, counts) = line.strip_prefix("cpu")?.split_once(' ')?;
                let cpu = cpu.parse().ok()?;
                let mut words = counts.split_ascii_whitespace();
                let mut ticks = [0; 8];
                for tick in &mut ticks {
                    *tick = words.next()?.parse().ok()?;
                }
                Some((cpu, ticks))
            })
            .collect();
        (!cpus.is_empty()).then_some(Snapshot(cpus))
    }

    /// How the CPUs spent their time from `self` to `later`.
    pub(crate) fn until(&self, later: &Snapshot) -> Vec<CpuUse> {
        let shares = |((cpu, before), (_, after)): (&Ticks, &Ticks)| {
            let spent: Vec<f64> =
                before.iter().zip(after).map(|(b, a)| a.saturating_sub(*b) as f64).collect();
            let all = spent.iter().sum::<f64>().max(1.0);
            let percent = |kinds: &[usize]| {
                (1000.0 * kinds.iter().map(|kind| spent[*kind]).sum::<f64>() / all).round() / 10.0
            };
            CpuUse {
                cpu: *cpu,
                user: percent(&[0, 1]),
                system: percent(&[2]),
                idle: percent(&[3, 4]),
                softirq: percent(&[5, 6]),
                steal: percent(&[7]),
            }
        };
        self.0.iter().zip(&later.0).map(shares).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between() {
        let before =
            Snapshot::parse("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 10 100 0 0 0 0 0 0\n").unwrap();
        let after =
            Snapshot::parse("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 20 10 30 150 0 5 4 1 0 0\n").unwrap();
        let shares = before.until(&after);
        let expected =
            CpuUse { cpu: 0, user: 20.0, system: 20.0, softirq: 9.0, idle: 50.0, steal: 1.0 };
        assert_eq!(shares, [expected]);
        assert!(Snapshot::parse("intr 1 2 3").is_none());
    }
}
