//! Settings, compiled as in `compile.rs` of rxsteer-xdp.

use super::world::{CPUS, FLOW_LOG, QUEUES};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::{
    STEER_BOUND, STEER_CPU_DESIRED, STEER_CPU_GENERATION, STEER_CPU_LINGER, STEER_MAX_RULES,
    STEER_NONE, STEER_RFS, STEER_RPS,
};
use rxsteer_bpf_native::policy::{Act, NO_CPU, Row, Rules};
use rxsteer_core::{CpuId, CpuSet, SteerConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    None,
    Rps,
    Bound,
    Rfs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    /// The general map, and the maps of single queues.
    map: Vec<u16>,
    own: [Option<Vec<u16>>; QUEUES as usize],
    bound: [Option<u16>; QUEUES as usize],
    pub(crate) offline: Option<u16>,
    /// Rings of another size are created in the other generation.
    pub(crate) queue_size: u32,
}

/// Some CPUs, in ascending order.
fn map(rng: &mut ChaCha8Rng) -> Vec<u16> {
    let count = rng.random_range(1..=CPUS as usize);
    let mut map: Vec<u16> =
        (0..CPUS as u16).collect::<Vec<_>>().sample(rng, count).copied().collect();
    map.sort_unstable();
    map
}

impl Settings {
    pub(crate) fn random(rng: &mut ChaCha8Rng) -> Settings {
        let policies = [Policy::None, Policy::Rps, Policy::Rps, Policy::Bound, Policy::Rfs];
        Settings {
            policy: *policies.choose(rng).expect("there are some"),
            map: map(rng),
            own: std::array::from_fn(|_| rng.random_ratio(1, 4).then(|| map(rng))),
            bound: std::array::from_fn(|_| {
                rng.random_ratio(3, 4).then(|| rng.random_range(0..CPUS as u16))
            }),
            // A receiving CPU cannot be offline.
            offline: rng.random_ratio(1, 6).then_some(CPUS as u16 - 1),
            queue_size: if rng.random_ratio(1, 4) { rng.random_range(0..3) } else { 0 },
        }
    }

    pub(crate) fn is_online(&self, cpu: u16) -> bool {
        self.offline != Some(cpu)
    }

    fn maps(&self) -> impl Iterator<Item = &Vec<u16>> {
        self.own.iter().flatten().chain([&self.map])
    }

    fn map_of(&self, queue: u32) -> &Vec<u16> {
        self.own[queue as usize].as_ref().unwrap_or(&self.map)
    }

    /// `Settings::has_passed_flows`.
    pub(crate) fn passes_frames(&self) -> bool {
        matches!(self.policy, Policy::None | Policy::Bound)
    }

    /// `Settings::can_be_unguarded`.
    pub(crate) fn can_be_unguarded(&self) -> bool {
        match self.policy {
            Policy::None | Policy::Bound => true,
            Policy::Rps => self.maps().flatten().all(|cpu| self.is_online(*cpu)),
            Policy::Rfs => false,
        }
    }

    /// `Settings::is_boundary_slot`.
    pub(crate) fn is_boundary_slot(&self, queue: u32, slot: u32) -> bool {
        let cpu_of = |hash: u64| (hash * self.map_of(queue).len() as u64) >> 32;
        let first = u64::from(slot) << (32 - FLOW_LOG);
        let last = (u64::from(slot + 1) << (32 - FLOW_LOG)) - 1;
        self.policy == Policy::Rps && cpu_of(first) != cpu_of(last)
    }

    /// The core's settings for a CPU that receives all queues; `None` if they depend on what applications do.
    pub(crate) fn core(&self, rx_cpu: u32) -> Option<SteerConfig> {
        let cpu = |id: u16| CpuId::new(id).expect("ids are small here");
        let set = |ids: &[u16]| CpuSet::new(ids.iter().map(|id| cpu(*id))).expect("there is one");
        let bound = (0..).zip(self.bound).filter_map(|(queue, to): (u16, _)| Some((queue, to?)));
        let bound: Vec<_> = bound.map(|(queue, to)| (queue.into(), cpu(to))).collect();
        let policy = match self.policy {
            Policy::Bound if !bound.is_empty() => rxsteer_core::Policy::Bound(bound),
            Policy::None | Policy::Bound => rxsteer_core::Policy::None,
            Policy::Rps => rxsteer_core::Policy::Rps,
            Policy::Rfs => return None,
        };
        let receivers = vec![cpu(rx_cpu as u16); QUEUES as usize];
        let mut config = SteerConfig::new(policy, set(&self.map), receivers);
        config.possible = Some(set(&(0..CPUS as u16).collect::<Vec<_>>()));
        config.offline = self.offline.map(|id| set(&[id]));
        config.sock_flow_entries = 16;
        let has_maps = self.policy == Policy::Rps;
        let own = (0..).zip(&self.own).filter_map(|(queue, map)| Some((queue, map.as_ref()?)));
        let own = own.filter(|_| has_maps);
        config.rps_maps = own.map(|(queue, map): (u16, _)| (queue.into(), set(map))).collect();
        Some(config)
    }

    /// Rules for an interface that flushes: frames that would pass go through the ring of the receiving CPU.
    pub(crate) fn flushing(generations: &[u32]) -> Rules {
        let none = Settings {
            policy: Policy::None,
            map: vec![0],
            own: Default::default(),
            bound: Default::default(),
            offline: None,
            queue_size: 0,
        };
        Rules { local_by_ring: 1, ..none.rules(generations, false) }
    }

    pub(crate) fn rules(&self, generations: &[u32], unguarded: bool) -> Rules {
        let is_uneven = |map: &Vec<u16>| !(1_usize << FLOW_LOG).is_multiple_of(map.len());
        let policy = match self.policy {
            Policy::None => STEER_NONE,
            Policy::Rps => STEER_RPS,
            Policy::Bound => STEER_BOUND,
            Policy::Rfs => STEER_RFS,
        };
        let boundary_slots = self.policy == Policy::Rps && self.maps().any(is_uneven);
        let mut rules = Rules {
            policy,
            loops: 0,
            after: 0,
            ring_size: 256,
            flow_limit: 0,
            inactive_after: 250,
            local_by_ring: 0,
            else_local: 0,
            by_queue: 1,
            no_hysteresis: u32::from(self.policy != Policy::Rfs),
            boundary_slots: boundary_slots.into(),
            unguarded: unguarded.into(),
            map_len: self.map.len() as u32,
            buckets: 0,
            first_bucket: 0,
            map: [NO_CPU; 8192],
            rows: [Row { first: 0, len: 0, number: 0, bound: NO_CPU }; 64],
            actions: [Act::default(); STEER_MAX_RULES as usize],
            cpu: [0; 1024],
        };
        let mut used = 0;
        let mut add = |map: &[u16]| {
            let first = used;
            for cpu in map {
                rules.map[used] = if self.is_online(*cpu) { *cpu } else { NO_CPU };
                used += 1;
            }
            first as u16
        };
        add(&self.map);
        for queue in 0..QUEUES as usize {
            let own = self.own[queue].as_ref();
            let bound = self.bound[queue].filter(|cpu| self.is_online(*cpu));
            rules.rows[queue] = Row {
                first: own.map_or(0, |map| add(map)),
                len: self.map_of(queue as u32).len() as u16,
                number: own.map_or(0, |_| queue as u16 + 1),
                bound: bound.unwrap_or(NO_CPU),
            };
        }
        for cpu in 0..CPUS as u16 {
            let in_map = self.maps().flatten().any(|mapped| *mapped == cpu);
            let bits = [
                (in_map && self.is_online(cpu), STEER_CPU_LINGER),
                (generations[usize::from(cpu)] != 0, STEER_CPU_GENERATION),
                (self.is_online(cpu), STEER_CPU_DESIRED),
            ];
            let bits = bits.into_iter().filter(|(is_set, _)| *is_set);
            rules.cpu[usize::from(cpu)] = bits.map(|(_, bit)| bit as u8).sum();
        }
        rules
    }
}
