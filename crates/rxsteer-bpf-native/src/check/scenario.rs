//! A machine, its interfaces and its settings, chosen at random.

use crate::policy::{NO_CPU, Rules, Sizes};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_core::{CpuId, CpuSet, Policy, SlotOrder, SockFlowTable, SteerConfig};

/// A policy without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is steered.
    None,
    /// By hash.
    Rps,
    /// By queue.
    Bound,
    /// By sparse slot, else by hash.
    Sparse,
    /// By wish, else by hash.
    Rfs,
    /// By wish, else by sparse slot, else by hash.
    RfsSparse,
}

impl Kind {
    /// Every kind, in the order of `enum steer_policy`.
    pub const ALL: [Kind; 6] =
        [Kind::None, Kind::Rps, Kind::Bound, Kind::Sparse, Kind::Rfs, Kind::RfsSparse];

    /// Whether the core guards its decisions, so that it can be changed without a transition.
    pub(crate) fn can_change(self) -> bool {
        !matches!(self, Kind::None | Kind::Bound)
    }
}

/// An RX queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// The CPU that receives it.
    pub(crate) src: u16,
    pub(crate) device: u16,
    /// Which queue of its device it is.
    pub(crate) number: u16,
}

/// What does not change, and the present settings.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) queues: Vec<Queue>,
    pub(crate) ring_size: u32,
    pub(crate) flow_log: u32,
    /// Every CPU packets can be sent to.
    pub(crate) possible: CpuSet,
    pub(crate) config: SteerConfig,
    /// CPUs whose second ring is in use.
    pub(crate) second_bank: Vec<u16>,
    pub(crate) local_by_ring: bool,
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).expect("ids are small here")
}

/// So many CPUs of `of` at most.
fn some(dice: &mut ChaCha8Rng, of: &[u16], most: usize) -> Vec<u16> {
    let count = dice.random_range(1..=most.min(of.len()));
    of.sample(dice, count).copied().collect()
}

impl Scenario {
    /// A scenario for a policy. CPUs that packets can be sent to are among `cpus`.
    #[must_use]
    pub fn new(kind: Kind, cpus: &[u16], dice: &mut ChaCha8Rng) -> Scenario {
        let possible = some(dice, cpus, 12);
        let receiving = some(dice, &possible, 3);
        let mut queues = Vec::new();
        for device in 0..dice.random_range(1..4) {
            for number in 0..dice.random_range(1..4) {
                let src = *receiving.choose(dice).unwrap_or(&receiving[0]);
                queues.push(Queue { src, device, number });
            }
        }
        let possible = CpuSet::new(possible.iter().map(|id| cpu(*id))).expect("there is one");
        let receivers = queues.iter().map(|queue| cpu(queue.src)).collect();
        let mut config = SteerConfig::new(Policy::None, possible.clone(), receivers);
        config.possible = Some(possible.clone());
        config.devices = queues.iter().map(|queue| queue.device).collect();
        let flow_log = dice.random_range(0..7);
        config.flow_cnt = Some(1 << flow_log);
        config.slot_order = SlotOrder::Ascending;
        config.sock_flow_entries = 16 << dice.random_range(0..6);
        config.flow_limit = dice.random_ratio(1, 2).then(|| 1 << dice.random_range(0..9));
        let ring_size = dice.random_range(8..80);
        let local_by_ring = !kind.can_change() && dice.random_ratio(1, 4);
        let mut scenario = Scenario {
            kind,
            queues,
            ring_size,
            flow_log,
            possible,
            config,
            second_bank: Vec::new(),
            local_by_ring,
        };
        scenario.change(dice);
        scenario
    }

    /// Other CPUs, other CPUs offline, other loops, other banks; also, where the core can do it at
    /// once, another policy of its kind.
    pub(crate) fn change(&mut self, dice: &mut ChaCha8Rng) {
        let all: Vec<u16> = self.possible.iter().map(CpuId::get).collect();
        let loops = dice.random_range(1..=5);
        let map = some(dice, &all, 8);
        self.config.cpus = CpuSet::new(map.iter().map(|id| cpu(*id))).expect("there is one");
        // A CPU that receives is not offline.
        let receives = |id: &u16| self.queues.iter().any(|queue| queue.src == *id);
        let idle: Vec<u16> = all.iter().copied().filter(|id| !receives(id)).collect();
        self.config.offline = None;
        if !idle.is_empty() && dice.random_ratio(1, 2) {
            self.config.offline = CpuSet::new(some(dice, &idle, 3).iter().map(|id| cpu(*id)));
        }
        self.config.policy = match self.kind {
            Kind::None => Policy::None,
            Kind::Bound => self.bindings(dice, &all),
            // The core's rps has no guard; its rfs without wishes is rps with one.
            Kind::Rps | Kind::Rfs => Policy::Rfs,
            Kind::Sparse => Policy::Sparse(loops),
            Kind::RfsSparse => Policy::RfsSparse(loops),
        };
        self.second_bank = all.into_iter().filter(|_| dice.random_ratio(1, 3)).collect();
    }

    /// Changes that are the C side's own affair: which rings are in use, and whether local packets go
    /// through one.
    pub(crate) fn switch_rings(&mut self, dice: &mut ChaCha8Rng) {
        let all = self.possible.iter().map(CpuId::get);
        self.second_bank = all.filter(|_| dice.random_ratio(1, 3)).collect();
        self.local_by_ring = dice.random();
    }

    /// Some queues' numbers are bound, on every device that has them.
    fn bindings(&self, dice: &mut ChaCha8Rng, all: &[u16]) -> Policy {
        let mut bindings = Vec::new();
        for number in 0..4 {
            let id = *all.choose(dice).unwrap_or(&all[0]);
            if dice.random_ratio(1, 4) {
                continue;
            }
            let of_number = (0..).zip(&self.queues).filter(|(_, queue)| queue.number == number);
            bindings.extend(of_number.map(|(queue, _): (u16, _)| (queue, cpu(id))));
        }
        Policy::Bound(bindings)
    }

    /// Sizes of the tables.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let highest = self.possible.highest();
        let sources = self.queues.iter().map(|queue| u32::from(queue.src) + 1).max();
        let slots = (highest.index() as u32 + 1) * 8;
        Sizes {
            cpus: highest.index() as u32 + 1,
            sources: sources.unwrap_or(1),
            tables: self.queues.len() as u32,
            flow_log: self.flow_log,
            sock_entries: self.config.sock_flow_entries,
            wish_mask: SockFlowTable::wish_mask(highest),
            // Few chains: long ones are what is worth a test.
            chains_log: (slots / 4).next_power_of_two().trailing_zeros().max(4),
            limit_lines: self.config.flow_limit.unwrap_or(0).div_ceil(64).max(1),
        }
    }

    /// The devices: how many RX queues each has, and the flow table of the first.
    #[must_use]
    pub fn devices(&self) -> Vec<(u16, u32)> {
        let mut devices: Vec<(u16, u32)> = Vec::new();
        for (table, queue) in (0..).zip(&self.queues) {
            match devices.get_mut(usize::from(queue.device)) {
                Some(device) => device.0 += 1,
                None => devices.push((1, table)),
            }
        }
        devices
    }

    fn is_online(&self, id: CpuId) -> bool {
        self.possible.contains(id)
            && !self.config.offline.as_ref().is_some_and(|offline| offline.contains(id))
    }

    /// What the C side is told.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let mut rules = Rules {
            policy: self.kind as u32,
            loops: self.config.policy.loops().map_or(0, u32::from),
            ring_size: self.ring_size,
            flow_limit: self.config.flow_limit.map_or(0, |buckets| buckets.ilog2() + 1),
            inactive_after: rxsteer_core::sparse::INACTIVE_AFTER_NS,
            local_by_ring: u32::from(self.local_by_ring),
            map_len: self.config.cpus.len() as u32,
            map: [NO_CPU; 1024],
            bound: [NO_CPU; 1024],
            cpu: [0; 1024],
        };
        for (place, id) in rules.map.iter_mut().zip(self.config.cpus.iter()) {
            *place = if self.is_online(id) { id.get() } else { NO_CPU };
        }
        for id in self.possible.iter() {
            let second = self.second_bank.contains(&id.get());
            rules.cpu[id.index()] = u8::from(self.is_online(id)) | u8::from(second) << 1;
        }
        if let Policy::Bound(bindings) = &self.config.policy {
            for (queue, id) in bindings.iter().filter(|(_, id)| self.is_online(*id)) {
                let number = self.queues[usize::from(*queue)].number;
                rules.bound[usize::from(number)] = id.get();
            }
        }
        rules
    }
}
