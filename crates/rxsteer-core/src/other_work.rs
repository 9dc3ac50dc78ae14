//! The other work of CPUs: the time that the kernel counts as busy, without the time spent on packets.
//!
//! The kernel counts ticks of 10 ms, so shares are taken over a second.

use crate::cpu::CpuId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The period for computing shares, in nanoseconds.
const OVER_NS: u64 = 1_000_000_000;

/// A tick of `/proc/stat` (USER_HZ), in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// The readings of the last second.
#[derive(Clone, Debug, Default)]
pub struct OtherWork {
    readings: VecDeque<Reading>,
}

#[derive(Clone, Debug)]
struct Reading {
    at_ns: u64,
    /// By CPU id: the time when it was not idle.
    busy_ns: Vec<u64>,
    /// By CPU id: the time spent on packets.
    ours_ns: Vec<u64>,
}

impl OtherWork {
    /// Adds a reading at `now_ns`: the text of `/proc/stat`, and by CPU id the nanoseconds spent on packets so far.
    /// Returns, by CPU id, the share of the time since a reading about a second ago that was spent on other work. The
    /// result is empty for the first reading, and `None` if the text can't be parsed.
    pub fn read(&mut self, now_ns: u64, stat: &str, ours_ns: Vec<u64>) -> Option<Vec<f64>> {
        let now = Reading { at_ns: now_ns, busy_ns: busy_ns(stat)?, ours_ns };
        let shares = self.readings.front().map_or_else(Vec::new, |then| now.other_since(then));
        self.readings.push_back(now);
        while self.readings.get(1).is_some_and(|second| now_ns - second.at_ns >= OVER_NS) {
            self.readings.pop_front();
        }
        Some(shares)
    }
}

impl Reading {
    fn other_since(&self, then: &Reading) -> Vec<f64> {
        let over_ns = self.at_ns.saturating_sub(then.at_ns).max(1) as f64;
        let grown = |now: &[u64], then: &[u64], cpu: usize| {
            let at = |values: &[u64]| values.get(cpu).copied().unwrap_or(0);
            at(now).saturating_sub(at(then))
        };
        let other = |cpu| {
            let busy = grown(&self.busy_ns, &then.busy_ns, cpu);
            let other = busy.saturating_sub(grown(&self.ours_ns, &then.ours_ns, cpu));
            (other as f64 / over_ns).min(1.0)
        };
        (0..self.busy_ns.len()).map(other).collect()
    }
}

/// By CPU id: nanoseconds when the CPU was not idle, from the text of `/proc/stat`: lines
/// `cpuN user nice system idle iowait irq softirq steal guest …` in ticks (proc_stat(5)). User time includes guest time.
fn busy_ns(stat: &str) -> Option<Vec<u64>> {
    let mut busy = Vec::new();
    for line in stat.lines() {
        let Some((id, ticks)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let Ok(id) = id.parse::<usize>() else { continue };
        let ticks: Vec<u64> =
            ticks.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
            return None;
        };
        if id > CpuId::MAX.index() {
            continue;
        }
        if busy.len() <= id {
            busy.resize(id + 1, 0);
        }
        busy[id] = (user + nice + system + irq + softirq + steal) * TICK_NS;
    }
    (!busy.is_empty()).then_some(busy)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn proc_stat_is_read_by_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 200 4 5 6 7 8\ncpu3 10 0 0 5 5 0 0 0 0 0\n\
                    cpu70000 1 1 1 1 1 1 1 1\nintr 1\n";
        assert_eq!(busy_ns(stat), Some(vec![21 * TICK_NS, 0, 0, 10 * TICK_NS]));
        assert_eq!(busy_ns("cpu0 1 2\n"), None);
        assert_eq!(busy_ns(""), None);
    }

    #[test]
    fn other_time_is_what_packets_did_not_take() {
        let mut other = OtherWork::default();
        let stat = |ticks: [u64; 2]| {
            let [first, second] = ticks;
            alloc::format!("cpu0 {first} 0 0 0 0 0 0 0\ncpu1 0 0 0 9 9 0 {second} 0\n")
        };
        assert_eq!(other.read(0, &stat([0, 50]), vec![0, 0]), Some(vec![]), "the first");
        let ms = 1_000_000;
        let shares = other.read(1000 * ms, &stat([80, 50]), vec![300 * ms, 0]);
        assert_eq!(shares, Some(vec![0.5, 0.0]));
        let shares = other.read(2000 * ms, &stat([80, 150]), vec![300 * ms, 0]);
        assert_eq!(shares, Some(vec![0.25, 0.5]), "since the first");
        let shares = other.read(2100 * ms, &stat([80, 150]), vec![300 * ms, 0]);
        assert_eq!(shares, Some(vec![0.0, 1.0 / 1.1]), "since a second ago and not before");
        assert_eq!(other.read(2200 * ms, "", vec![]), None);
    }
}
