//! Configurations, and the parts of them that can be changed at run time.

use crate::rng::SeededRng;
use rxsteer_core::matching::{Action, RulePolicy};
use rxsteer_core::policy::Front;
use rxsteer_core::{
    Balance, CpuId, CpuSet, Fallback, FlowHash, Move, PacketRule, Policy, Slots, SteerConfig,
};

/// What stays the same during a run.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The possible CPUs, ascending.
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) queues: u16,
    pub(crate) producers: u16,
}

impl Shape {
    pub(crate) fn new(rng: &mut SeededRng) -> Shape {
        let count = rng.between(1, 8);
        // Ids are sparse on some hosts.
        let gap = rng.pick(&[1, 1, 1, 3, 8]);
        let mut next = if gap == 1 { 0 } else { rng.below(gap) };
        let cpus = (0..count).filter_map(|_| {
            let cpu = CpuId::new(next as u16);
            next += rng.between(1, gap);
            cpu
        });
        let cpus = cpus.collect();
        let producers = rng.between(1, 3);
        let queues = rng.between(producers, 6) as u16;
        Shape { cpus, queues, producers: producers as u16 }
    }

    /// The RX queues of a producer.
    pub(crate) fn queues_of(&self, producer: u16) -> impl Iterator<Item = u16> {
        (producer..self.queues).step_by(usize::from(self.producers))
    }

    /// The first configuration of a run.
    pub(crate) fn first_config(&self, rng: &mut SeededRng) -> SteerConfig {
        let receiving = (0..self.queues).map(|_| rng.pick(&self.cpus)).collect();
        let mut config = SteerConfig::new(self.policy(rng), self.some_cpus(rng), receiving);
        config.devices = (0..self.queues).map(|_| rng.below(3) as u16).collect();
        config.possible = CpuSet::new(self.cpus.iter().copied());
        config.fallback = rng.pick(&[Fallback::Hash, Fallback::Hash, Fallback::Local]);
        config.rfs_cpus = rng.chance(48).then(|| self.some_cpus(rng));
        config.sock_flow_entries = entries(rng);
        config.flow_cnt = Some(flow_cnt(rng));
        config.flow_limit = flow_limit(rng);
        config
    }

    /// Changes one or several settings of `config`.
    pub(crate) fn change(&self, rng: &mut SeededRng, config: &mut SteerConfig) {
        loop {
            match rng.below(11) {
                0..=2 => config.policy = self.policy(rng),
                3 => config.cpus = self.some_cpus(rng),
                4 => {
                    let queues = (0..self.queues).filter(|_| rng.chance(96));
                    let queues: Vec<u16> = queues.collect();
                    config.rps_maps = queues
                        .into_iter()
                        .map(|queue| (queue.into(), self.some_cpus(rng)))
                        .collect();
                }
                5 => config.flow_cnt = Some(flow_cnt(rng)),
                6 => config.sock_flow_entries = entries(rng),
                7 => config.fallback = rng.pick(&[Fallback::Hash, Fallback::Local]),
                8 => config.rfs_cpus = rng.chance(160).then(|| self.some_cpus(rng)),
                9 => config.packet_rules = self.rules(rng),
                _ => config.flow_limit = flow_limit(rng),
            }
            if rng.chance(160) {
                break;
            }
        }
        if !config.mechanisms().maps {
            config.rps_maps.clear();
        }
    }

    /// Returns no rules before the policy, or some. What they match makes no difference here, since each packet has the
    /// number of its rule.
    fn rules(&self, rng: &mut SeededRng) -> Vec<PacketRule> {
        let action = |rng: &mut SeededRng| match rng.below(6) {
            0 => Action::Local,
            1 => Action::Pass,
            2 | 3 => Action::Policy(rng.pick(&RulePolicy::ALL)),
            _ => Action::Cpus(self.some_cpus(rng)),
        };
        (0..rng.below(4)).map(|_| PacketRule { terms: vec![], action: action(rng) }).collect()
    }

    /// Any of the policies.
    fn policy(&self, rng: &mut SeededRng) -> Policy {
        match rng.below(8) {
            0 => Policy::None,
            1 => Policy::Rps,
            2 => self.bound(rng),
            3 => Policy::Sparse(slots(rng)),
            4 => Policy::Rfs,
            5 => Policy::RfsSparse(slots(rng)),
            _ => {
                let slots = rng.chance(128).then(|| slots(rng));
                let buckets = rng.pick(&[256, 256, 1024]);
                let front = Front { rfs: rng.chance(64), slots };
                Policy::Balance(front, Balance { buckets, ..Balance::default() })
            }
        }
    }

    /// Moves of some buckets of `table`: as load might decide, to any CPU.
    pub(crate) fn moves(&self, rng: &mut SeededRng, table: &[CpuId]) -> Vec<Move> {
        let mut moves = Vec::new();
        // Neighbours move together, so that whole CPUs are emptied at times.
        let first = rng.below(table.len() as u32) as usize;
        let count = rng.pick(&[1, 4, 64, 1024]);
        for (bucket, from) in table.iter().enumerate().skip(first).take(count) {
            moves.push(Move {
                bucket: bucket as u16,
                from: *from,
                to: rng.pick(&self.cpus),
                from_percent: 0,
                to_percent: 0,
                large: FlowHash::NONE,
            });
        }
        moves
    }

    /// A policy under which a flow's CPU never changes.
    pub(crate) fn quiet_policy(&self, rng: &mut SeededRng) -> Policy {
        match rng.below(3) {
            0 => Policy::None,
            1 => Policy::Rps,
            _ => self.bound(rng),
        }
    }

    fn bound(&self, rng: &mut SeededRng) -> Policy {
        let first = rng.below(u32::from(self.queues)) as u16;
        let bound: Vec<u16> =
            (first..self.queues).filter(|queue| *queue == first || rng.chance(128)).collect();
        Policy::Bound(bound.into_iter().map(|queue| (queue.into(), rng.pick(&self.cpus))).collect())
    }

    fn some_cpus(&self, rng: &mut SeededRng) -> CpuSet {
        let cpus = self.cpus.iter().copied().filter(|_| rng.chance(160)).collect::<Vec<_>>();
        CpuSet::new(cpus).or_else(|| CpuSet::new([rng.pick(&self.cpus)])).expect("one at least")
    }
}

/// Small, so that flows collide.
fn flow_cnt(rng: &mut SeededRng) -> u32 {
    rng.pick(&[1, 2, 3, 4, 16, 64, 200, 1024])
}

fn entries(rng: &mut SeededRng) -> u32 {
    rng.pick(&[1, 8, 64, 1000, 4096])
}

fn flow_limit(rng: &mut SeededRng) -> Option<u32> {
    rng.pick(&[None, None, None, Some(1), Some(16), Some(100)])
}

/// Settings of sparse slots: often with admission, of few packets since runs are short.
fn slots(rng: &mut SeededRng) -> Slots {
    let after = if rng.chance(128) { 1 } else { rng.between(2, 9) as u8 };
    Slots { loops: rng.between(1, 5) as u8, after }
}
