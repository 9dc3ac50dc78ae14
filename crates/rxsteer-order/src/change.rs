//! Configurations, and what can be changed in one at run time.

use crate::dice::Dice;
use rxsteer_core::{CpuId, CpuSet, Fallback, Policy, SteerConfig};

/// What stays as it is throughout a run.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The possible CPUs, ascending.
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) queues: u16,
    pub(crate) producers: u16,
}

impl Shape {
    pub(crate) fn new(dice: &mut Dice) -> Shape {
        let count = dice.between(1, 8);
        // Ids are sparse on some hosts.
        let gap = dice.pick(&[1, 1, 1, 3, 8]);
        let mut next = if gap == 1 { 0 } else { dice.below(gap) };
        let cpus = (0..count).filter_map(|_| {
            let cpu = CpuId::new(next as u16);
            next += dice.between(1, gap);
            cpu
        });
        let cpus = cpus.collect();
        let producers = dice.between(1, 3);
        let queues = dice.between(producers, 6) as u16;
        Shape { cpus, queues, producers: producers as u16 }
    }

    /// The RX queues of a producer.
    pub(crate) fn queues_of(&self, producer: u16) -> impl Iterator<Item = u16> {
        (producer..self.queues).step_by(usize::from(self.producers))
    }

    /// The configuration a run begins with.
    pub(crate) fn first_config(&self, dice: &mut Dice) -> SteerConfig {
        let receiving = (0..self.queues).map(|_| dice.pick(&self.cpus)).collect();
        let mut config = SteerConfig::new(self.policy(dice), self.some_cpus(dice), receiving);
        config.devices = (0..self.queues).map(|_| dice.below(3) as u16).collect();
        config.possible = CpuSet::new(self.cpus.iter().copied());
        config.fallback = dice.pick(&[Fallback::Hash, Fallback::Hash, Fallback::Local]);
        config.rfs_cpus = dice.chance(48).then(|| self.some_cpus(dice));
        config.sock_flow_entries = entries(dice);
        config.flow_cnt = Some(flow_cnt(dice));
        config.flow_limit = flow_limit(dice);
        config
    }

    /// Changes one thing of `config`, or several.
    pub(crate) fn change(&self, dice: &mut Dice, config: &mut SteerConfig) {
        loop {
            match dice.below(10) {
                0..=2 => config.policy = self.policy(dice),
                3 => config.cpus = self.some_cpus(dice),
                4 => {
                    let queues = (0..self.queues).filter(|_| dice.chance(96));
                    let queues: Vec<u16> = queues.collect();
                    config.rps_maps = queues
                        .into_iter()
                        .map(|queue| (queue.into(), self.some_cpus(dice)))
                        .collect();
                }
                5 => config.flow_cnt = Some(flow_cnt(dice)),
                6 => config.sock_flow_entries = entries(dice),
                7 => config.fallback = dice.pick(&[Fallback::Hash, Fallback::Local]),
                8 => config.rfs_cpus = dice.chance(160).then(|| self.some_cpus(dice)),
                _ => config.flow_limit = flow_limit(dice),
            }
            if dice.chance(160) {
                break;
            }
        }
        if !config.policy.has_maps() {
            config.rps_maps.clear();
        }
    }

    /// Any of the six.
    fn policy(&self, dice: &mut Dice) -> Policy {
        match dice.below(6) {
            0 => Policy::None,
            1 => Policy::Rps,
            2 => self.bound(dice),
            3 => Policy::Sparse(dice.between(1, 5) as u8),
            4 => Policy::Rfs,
            _ => Policy::RfsSparse(dice.between(1, 5) as u8),
        }
    }

    /// A policy by which a flow's CPU never changes.
    pub(crate) fn quiet_policy(&self, dice: &mut Dice) -> Policy {
        match dice.below(3) {
            0 => Policy::None,
            1 => Policy::Rps,
            _ => self.bound(dice),
        }
    }

    fn bound(&self, dice: &mut Dice) -> Policy {
        let first = dice.below(u32::from(self.queues)) as u16;
        let bound: Vec<u16> =
            (first..self.queues).filter(|queue| *queue == first || dice.chance(128)).collect();
        Policy::Bound(
            bound.into_iter().map(|queue| (queue.into(), dice.pick(&self.cpus))).collect(),
        )
    }

    fn some_cpus(&self, dice: &mut Dice) -> CpuSet {
        let cpus = self.cpus.iter().copied().filter(|_| dice.chance(160)).collect::<Vec<_>>();
        CpuSet::new(cpus).or_else(|| CpuSet::new([dice.pick(&self.cpus)])).expect("one at least")
    }
}

/// Small, so that flows collide.
fn flow_cnt(dice: &mut Dice) -> u32 {
    dice.pick(&[1, 2, 3, 4, 16, 64, 200, 1024])
}

fn entries(dice: &mut Dice) -> u32 {
    dice.pick(&[1, 8, 64, 1000, 4096])
}

fn flow_limit(dice: &mut Dice) -> Option<u32> {
    dice.pick(&[None, None, None, Some(1), Some(16), Some(100)])
}
