//! The result of a run that has ended or was abandoned.

use super::World;
use super::latency::Times;
use super::packet::Role;
use super::threads::Thread;
use crate::result::{CpuResult, RunResult, TrafficResult};
use crate::scenario::Load;
use rxsteer_core::SteerCounts;

/// The counts of a traffic in the measured part.
#[derive(Debug)]
pub(crate) struct TrafficCount {
    first_flow: u32,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) latency: Times,
}

impl TrafficCount {
    pub(crate) fn new(first_flow: u32) -> TrafficCount {
        TrafficCount { first_flow, packets: 0, bytes: 0, lost: 0, latency: Times::new() }
    }
}

impl World<'_> {
    pub(super) fn finish(mut self, seed: u64) -> RunResult {
        for queue in 0..self.queues.len() {
            self.queues[queue].advance(self.now);
            self.lose_refused(queue as u32);
        }
        let mut account = self.account;
        account.arrived = self.queues.iter().map(|queue| queue.arrived).sum();
        let in_rings: u64 = self.queues.iter().map(|queue| queue.ring.len() as u64).sum();
        account.under_way = in_rings + self.backlogs.under_way();
        account.with_application = self.threads.iter().map(Thread::packets).sum::<usize>() as u64;
        let measured_ns = self.now - self.from_ns;
        debug_assert_eq!(
            self.working.iter().sum::<u32>() as usize,
            self.cpus.iter().filter(|cpu| cpu.is_working()).count(),
            "CPUs at work are counted by core"
        );
        // Of the work in hand, the part up to now counts.
        for cpu in 0..self.cpus.len() as u16 {
            self.count_work(cpu);
        }
        let mut steered = SteerCounts::default();
        for steering in &self.steerings {
            steered.merge(&steering.counts());
        }
        RunResult {
            seed,
            measured_ns,
            traffic: (0..self.results.len())
                .map(|index| self.traffic(index, measured_ns))
                .collect(),
            cpus: self
                .cpus
                .iter()
                .map(|cpu| {
                    let share = |ns: f64| ns / measured_ns as f64;
                    CpuResult {
                        receiving: share(cpu.busy.receiving),
                        protocol: share(cpu.busy.protocol),
                        application: share(cpu.busy.application),
                        packets: cpu.packets,
                    }
                })
                .collect(),
            account,
            steered,
            rules: self.rule_hits.rules,
            unmatched: self.rule_hits.unmatched,
            moves: self.moves,
            reordered: self.reordered,
            kicks: self.kicks,
            interrupts: self.interrupts,
            tx_full: self.tx_full,
            socket_full: self.socket_full,
        }
    }

    fn traffic(&self, index: usize, measured_ns: u64) -> TrafficResult {
        let count = &self.results[index];
        let traffic = &self.scenario.traffic[index];
        let seconds = measured_ns as f64 / 1e9;
        let end =
            self.results.get(index + 1).map_or(self.flows.len(), |next| next.first_flow as usize);
        let flows = &self.flows[count.first_flow as usize..end];
        let goals = flows.iter().filter(|flow| !matches!(flow.role, Role::Ack(_)));
        let arrived: Vec<f64> = goals.map(|flow| flow.arrived as f64).collect();
        let bits_per_second = count.bytes as f64 * 8.0 / seconds;
        let of_packets = |packets: f64| packets / count.packets.max(1) as f64 * bits_per_second;
        let is_requests = matches!(traffic.load, Load::Requests(_));
        TrafficResult {
            name: traffic.name.clone(),
            packets: count.packets,
            bits_per_second,
            flows: arrived.len() as u32,
            slowest_flow: of_packets(arrived.iter().copied().reduce(f64::min).unwrap_or(0.0)),
            fastest_flow: of_packets(arrived.iter().copied().reduce(f64::max).unwrap_or(0.0)),
            fairness: fairness(arrived.into_iter()),
            transactions_per_second: is_requests.then(|| count.packets as f64 / seconds),
            lost: count.lost,
            latency: count.latency.summary(),
        }
    }
}

/// Jain's index of fairness: the square of the sum, divided by the number times the sum of squares.
fn fairness(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
}

#[cfg(test)]
mod tests {
    use super::fairness;

    #[test]
    fn fairness_is_jains() {
        let index = |shares: &[f64]| fairness(shares.iter().copied());
        assert!((index(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((index(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((index(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
        assert!((index(&[]) - 1.0).abs() < 1e-12);
    }
}
