//! Moves of buckets at simulated times, under policies with `balance`.

use super::World;
use super::backlogs::Seen;
use super::calendar::Other;
use crate::rebalance::{FlowRate, Interval, Rebalancer};
use crate::scenario::{Load, Share, Steering};
use rxsteer_core::balance::Counted;
use rxsteer_core::{Balance, Balancer, CpuLoad, Move};
use std::sync::Arc;

/// How often to check whether the policy has buckets by now.
const CHECK_INTERVAL_NS: u64 = 100_000_000;

/// What was counted until the last interval.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// The policy's own balancer, and its settings.
    balancer: Option<(Balance, Balancer)>,
    since_ns: u64,
    /// By CPU: the time for packets, other time, and packets.
    before: Vec<[f64; 3]>,
}

impl World<'_> {
    /// Notes the end of the interval that begins now, if the scenario ever has buckets.
    pub(super) fn note_interval(&mut self) {
        let settings = |steering: &Steering| steering.policy.balance().is_some();
        let later = self.scenario.events.iter().any(|event| match &event.what {
            crate::scenario::EventKind::Steering(steering) => settings(steering),
            _ => false,
        });
        let now = self.steering.policy.balance();
        if now.is_some() || later {
            let interval_ns = now.map(|balance| u64::from(balance.interval_ms) * 1_000_000);
            self.calendar
                .note(self.now + interval_ns.unwrap_or(CHECK_INTERVAL_NS), Other::MoveBuckets);
        }
    }

    /// Ends an interval: buckets move, and the next interval begins.
    pub(super) fn end_interval(&mut self) {
        self.note_interval();
        let Some(balance) = self.steering.policy.balance().copied() else { return };
        let Some(counted) = self.plan.bucket_counts() else { return };
        let loads = self.loads();
        let elapsed_ns = self.now - std::mem::replace(&mut self.buckets.since_ns, self.now);
        let moves = match self.rebalancer.take() {
            Some(rebalancer) => {
                let moves = self.find_moves(rebalancer, &loads, &counted, elapsed_ns);
                self.rebalancer = Some(rebalancer);
                moves
            }
            None => self.own_moves(&balance, &loads, &counted, elapsed_ns),
        };
        if moves.is_empty() {
            return;
        }
        self.plan = Arc::new(self.plan.moved(&moves));
        for (producer, core) in (0u16..).zip(&mut self.steerings) {
            core.change(&self.plan, &mut Seen { backlogs: &mut self.backlogs, producer });
        }
    }

    fn own_moves(
        &mut self,
        balance: &Balance,
        loads: &[CpuLoad],
        counted: &Counted,
        elapsed_ns: u64,
    ) -> Vec<Move> {
        match &mut self.buckets.balancer {
            Some((settings, balancer)) if settings == balance => {
                balancer.interval(self.plan.bucket_table(), loads, counted, elapsed_ns)
            }
            // The first interval of a run counts from the beginning of the run, as in a program that starts.
            own => {
                let buckets = usize::from(balance.buckets);
                let none = Counted::new(buckets, counted.packets.len() - buckets);
                let begins = own.is_none() && self.now == elapsed_ns;
                let mut balancer = Balancer::new(balance, if begins { &none } else { counted });
                let table = self.plan.bucket_table();
                let moves = if begins {
                    balancer.interval(table, loads, counted, elapsed_ns)
                } else {
                    Vec::new()
                };
                *own = Some((*balance, balancer));
                moves
            }
        }
    }

    fn find_moves(
        &self,
        rebalancer: &mut dyn Rebalancer,
        loads: &[CpuLoad],
        counted: &Counted,
        elapsed_ns: u64,
    ) -> Vec<Move> {
        let rates = self.rates();
        let speeds: Vec<f64> = self.cpus.iter().map(|cpu| cpu.speed).collect();
        rebalancer.moves(&Interval {
            now_ns: self.now,
            elapsed_ns,
            table: self.plan.bucket_table(),
            loads,
            counted,
            rates: &rates,
            speeds: &speeds,
        })
    }

    /// What the CPUs that can have buckets have done since the last call.
    fn loads(&mut self) -> Vec<CpuLoad> {
        let now: Vec<[f64; 3]> =
            self.cpus.iter().map(|cpu| [cpu.ours_ns, cpu.other_ns, cpu.processed as f64]).collect();
        let before = std::mem::replace(&mut self.buckets.before, now);
        let now = &self.buckets.before;
        let load = |cpu: rxsteer_core::CpuId| {
            let then = before.get(cpu.index()).copied().unwrap_or_default();
            let grown = |part: usize| (now[cpu.index()][part] - then[part]) as u64;
            CpuLoad { cpu, ours_ns: grown(0), other_ns: grown(1), packets: grown(2) }
        };
        self.plan.bucket_cpus().into_iter().map(load).collect()
    }

    /// The packets per second of each flow with a constant rate, as specified in the scenario.
    fn rates(&self) -> Vec<FlowRate> {
        let mut rates = Vec::new();
        for (traffic, source) in self.scenario.traffic.iter().zip(&self.sources) {
            let Load::Constant(constant) = &traffic.load else { continue };
            if traffic.start_ns > self.now {
                continue;
            }
            let weight = |rank: u32| match constant.share {
                Share::Equal => 1.0,
                Share::Zipf(exponent) => f64::from(rank).powf(-exponent),
            };
            let all: f64 = (1..=source.flows).map(weight).sum();
            rates.extend((0..source.flows).map(|flow| FlowRate {
                hash: self.flows[(source.first_flow + flow) as usize].hash,
                per_second: constant.rate * weight(flow + 1) / all,
            }));
        }
        rates
    }
}
