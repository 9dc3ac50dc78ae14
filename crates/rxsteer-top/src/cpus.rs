//! The rows of CPUs, from two readings.

use rxsteer_core::counters::{LiveCounter, LiveCpuCounter};
use rxsteer_host::{CpuLoad, Load};
use rxsteer_status::{CpuStatus, Rates, Status};

/// What one CPU did between two readings; rates are per second, and unknown at the first reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuRow {
    /// The CPU.
    pub cpu: u16,
    /// Packets it received.
    pub received: Option<f64>,
    /// Their bits.
    pub bits: Option<f64>,
    /// Packets that its stack or its worker processed: delivered by steering, or passed where they were received.
    pub processed: Option<f64>,
    /// Packets dropped.
    pub dropped: Option<f64>,
    /// Packets whose flow moved to another CPU.
    pub moves: Option<f64>,
    /// Packets that the order guard deferred.
    pub deferred: Option<f64>,
    /// Packets that wait for it now: its backlog.
    pub waiting: u64,
    /// In shadow mode: packets that would have been sent to it.
    pub would: Option<f64>,
    /// The median delay from arrival to delivery, in nanoseconds.
    pub delay_p50_ns: Option<u64>,
    /// The delay that 99 % of the samples did not exceed, in nanoseconds.
    pub delay_p99_ns: Option<u64>,
    /// How it spent its time, if the kernel reports it.
    pub time: Option<Time>,
}

/// Shares of a CPU's time, from 0 to 1; the rest is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    /// In softirqs.
    pub softirq: f64,
    /// The thread that empties the CPU's ring and passes packets to the stack (`rxsteer run`).
    pub ring: f64,
    /// Everything else that is not idle: applications, and the rest of the kernel.
    pub application: f64,
}

impl Time {
    /// The idle share.
    #[must_use]
    pub fn idle(&self) -> f64 {
        (1.0 - self.softirq - self.ring - self.application).max(0.0)
    }

    /// From the kernel's ticks between two readings, and the share of time that the ring's thread ran.
    fn of(load: &CpuLoad, ring: f64) -> Option<Time> {
        let ticks = load.ticks;
        if ticks.all == 0 {
            return None;
        }
        let share = |part: u64| part as f64 / ticks.all as f64;
        let softirq = share(ticks.softirq);
        let rest = share(ticks.all.saturating_sub(ticks.softirq + ticks.idle));
        // The kernel includes the thread's time in the rest, in ticks, so the two can differ a little.
        let ring = ring.clamp(0.0, rest);
        Some(Time { softirq, ring, application: rest - ring })
    }
}

/// The row of each CPU. `load` is what the CPUs did between the readings.
pub(crate) fn rows(
    before: Option<&Status>,
    now: &Status,
    rates: Option<&Rates>,
    load: Option<&Load>,
) -> Vec<CpuRow> {
    let row = |cpu: &CpuStatus| {
        let then = before.and_then(|before| before.cpus.iter().find(|then| then.cpu == cpu.cpu));
        let rate = rates.and_then(|rates| rates.cpus.iter().find(|rate| rate.cpu == cpu.cpu));
        let passed =
            |cpu: Option<&CpuStatus>| cpu.map_or(0, |cpu| cpu.counts.rx.get(LiveCounter::Passed));
        let ran = |cpu: Option<&CpuStatus>| {
            cpu.map_or(0, |cpu| cpu.thread.get(LiveCpuCounter::ThreadRan))
        };
        // Nanoseconds per second.
        let ring = rates.map_or(0.0, |rates| rates.per_second(ran(then), ran(Some(cpu))) / 1e9);
        let load =
            load.and_then(|load| load.cpus.iter().find(|load| load.cpu == u32::from(cpu.cpu)));
        CpuRow {
            cpu: cpu.cpu,
            received: rate.map(|rate| rate.received.packets),
            bits: rate.map(|rate| rate.received.bits),
            processed: rates.zip(rate).map(|(rates, rate)| {
                rate.delivered + rates.per_second(passed(then), passed(Some(cpu)))
            }),
            dropped: rate.map(|rate| rate.dropped),
            moves: rate.map(|rate| rate.moves),
            deferred: rate.map(|rate| rate.deferred),
            waiting: cpu.counts.waiting,
            would: cpu.would.map(|now| {
                let then = then.and_then(|then| then.would).unwrap_or(now);
                rates.map_or(0.0, |rates| rates.per_second(then, now))
            }),
            delay_p50_ns: rate.and_then(|rate| rate.delay_p50_ns),
            delay_p99_ns: rate.and_then(|rate| rate.delay_p99_ns),
            time: load.and_then(|load| Time::of(load, ring)),
        }
    };
    now.cpus.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_host::Ticks;

    #[test]
    fn time_is_divided_without_rest() {
        let load = |softirq, idle, all| CpuLoad {
            ticks: Ticks { softirq, idle, all },
            ..CpuLoad::default()
        };
        let time = Time::of(&load(25, 25, 100), 0.3).unwrap();
        assert_eq!((time.softirq, time.ring, time.application), (0.25, 0.3, 0.2));
        assert!((time.idle() - 0.25).abs() < 1e-9);
        let time = Time::of(&load(25, 75, 100), 0.3).unwrap();
        assert_eq!((time.ring, time.application, time.idle()), (0.0, 0.0, 0.75));
        assert_eq!(Time::of(&load(0, 0, 0), 0.0), None);
    }
}
