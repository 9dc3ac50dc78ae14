//! Rates between two readings of the same instance.

use crate::Delay;
use crate::status::{Counts, Status};
use rxsteer_core::counters::LiveCounter;
use serde::{Deserialize, Serialize};

/// The rates of the receiving side, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RxRates {
    /// Packets received.
    pub packets: f64,
    /// Bits received.
    pub bits: f64,
}

/// The events per second on one CPU, or on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuRates {
    /// The CPU; not used in totals.
    pub cpu: u16,
    /// What it received.
    #[serde(flatten)]
    pub received: RxRates,
    /// Packets that were delivered on it.
    pub delivered: f64,
    /// Packets that were dropped.
    pub dropped: f64,
    /// Packets whose flow moved to another CPU.
    pub moves: f64,
    /// Packets that the order guard deferred.
    pub deferred: f64,
    /// The median delay from arrival to delivery in nanoseconds, if there were samples.
    pub delay_p50_ns: Option<u64>,
    /// The delay that 99 % of the samples did not exceed, in nanoseconds.
    pub delay_p99_ns: Option<u64>,
}

/// The rates of one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceRates {
    /// Its name.
    pub name: String,
    /// What it received.
    #[serde(flatten)]
    pub received: RxRates,
}

/// All rates between two readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The time between the readings, in nanoseconds.
    pub interval_ns: u64,
    /// For each interface that is in both readings.
    pub interfaces: Vec<InterfaceRates>,
    /// For each CPU in the later reading.
    pub cpus: Vec<CpuRates>,
    /// For all CPUs together.
    pub totals: CpuRates,
}

impl Rates {
    /// The rate per second of a count, from the counts and times of two readings.
    #[must_use]
    pub fn per_second(&self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 * 1e9 / self.interval_ns.max(1) as f64
    }

    /// The rates between two readings; `None` if they are from different runs, or of the same time.
    #[must_use]
    pub fn between(before: &Status, now: &Status) -> Option<Rates> {
        let interval_ns = now.running_ns.checked_sub(before.running_ns).filter(|ns| *ns > 0)?;
        if (before.pid, &before.socket) != (now.pid, &now.socket) {
            return None;
        }
        let empty = Rates { interval_ns, ..Rates::default() };
        let per_second = |before, now| empty.per_second(before, now);
        let received = |before: &dyn Fn(LiveCounter) -> u64, now: &dyn Fn(LiveCounter) -> u64| {
            let rate = |counter| per_second(before(counter), now(counter));
            RxRates { packets: rate(LiveCounter::Received), bits: rate(LiveCounter::Bytes) * 8.0 }
        };
        let interfaces = now.interfaces.iter().filter_map(|known| {
            let same = |other: &&crate::InterfaceStatus| {
                (&other.name, other.ifindex) == (&known.name, known.ifindex)
            };
            let earlier = before.interfaces.iter().find(same)?;
            let received = received(&|counter| earlier.counts.get(counter), &|counter| {
                known.counts.get(counter)
            });
            Some(InterfaceRates { name: known.name.clone(), received })
        });
        let rates = |cpu: u16, before: &Counts, now: &Counts, delay: Option<Delay>| {
            let quantile = |share| delay.as_ref().and_then(|delay| delay.quantile(share));
            let rate = |counter| per_second(before.rx.get(counter), now.rx.get(counter));
            CpuRates {
                cpu,
                received: received(&|counter| before.rx.get(counter), &|counter| {
                    now.rx.get(counter)
                }),
                delivered: per_second(before.delivered, now.delivered),
                dropped: per_second(before.drops.total(), now.drops.total()),
                moves: rate(LiveCounter::Moves),
                deferred: rate(LiveCounter::Deferred),
                delay_p50_ns: quantile(0.5),
                delay_p99_ns: quantile(0.99),
            }
        };
        let none = Counts::default();
        let mut all = Delay::default();
        let cpus = now.cpus.iter().map(|on| {
            let earlier = before.cpus.iter().find(|earlier| earlier.cpu == on.cpu);
            let delay = on.delay.as_ref().map(|delay| {
                let before = earlier.and_then(|earlier| earlier.delay.as_ref());
                before.map_or_else(|| delay.clone(), |before| delay.since(before))
            });
            if let Some(delay) = &delay {
                all.add(delay);
            }
            rates(on.cpu, earlier.map_or(&none, |earlier| &earlier.counts), &on.counts, delay)
        });
        let cpus = cpus.collect();
        let totals = rates(0, &before.totals, &now.totals, Some(all));
        Some(Rates { interval_ns, interfaces: interfaces.collect(), cpus, totals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn rates_are_differences_by_time() {
        let before = sample();
        let mut now = before.clone();
        now.running_ns += 500_000_000;
        let count = |counter| match counter {
            LiveCounter::Received => 100,
            LiveCounter::Bytes => 6400,
            _ => 0,
        };
        now.cpus[0].counts.rx.add(count);
        now.interfaces[0].counts.add(count);
        now.totals.rx.add(count);
        now.cpus[1].counts.delivered += 90;
        now.cpus[1].counts.drops.ring_full += 10;
        now.totals.delivered += 90;
        let rates = Rates::between(&before, &now).unwrap();
        let received = RxRates { packets: 200.0, bits: 102_400.0 };
        assert_eq!((rates.interfaces[0].received, rates.cpus[0].received), (received, received));
        assert_eq!((rates.cpus[1].delivered, rates.cpus[1].dropped), (180.0, 20.0));
        assert_eq!((rates.totals.received, rates.totals.delivered), (received, 180.0));
    }

    #[test]
    fn another_run_or_the_same_moment_has_no_rates() {
        let before = sample();
        assert_eq!(Rates::between(&before, &before), None);
        let mut other = before.clone();
        (other.pid, other.running_ns) = (before.pid + 1, before.running_ns + 1);
        assert_eq!(Rates::between(&before, &other), None);
        assert_eq!(Rates::between(&other, &before), None);
    }
}
