//! The CPU maps of the RX queues, or the table of buckets that replaces them.

use crate::backlogs::Arrival;
use crate::balance::{BucketCounts, Buckets};
use crate::config::SteerConfig;
use crate::cpu::{CpuId, CpuSet};
use crate::rps::RpsMap;
use crate::sparse::Walk;
use crate::target::{Target, TargetRule};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// The CPU maps of the RX queues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Maps {
    pub(crate) maps: Box<[Map]>,
    /// The index in `maps` for each RX queue.
    pub(crate) of_queue: Box<[u16]>,
    /// If the map is a table of buckets: the counters of the buckets.
    pub(crate) counts: Option<Arc<BucketCounts>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) rps: RpsMap,
    /// The order in which slots are searched, for sparse flows.
    pub(crate) walk: Walk,
}

/// Picks the target from a map by the packet's hash.
#[inline(always)]
pub(crate) fn by_hash(packet: &Arrival) -> impl Fn(&Map) -> Target {
    let hash = packet.hash;
    move |map| Target { cpu: map.rps.cpu(hash), by: TargetRule::Hash }
}

impl Maps {
    pub(crate) fn new(
        config: &SteerConfig,
        usable: &dyn Fn(CpuId) -> bool,
        local: &[CpuId],
    ) -> Maps {
        let map = |cpus: &CpuSet, substitute| Map {
            rps: RpsMap::with_substitute(cpus, usable, substitute),
            walk: Walk::new(cpus.iter().filter(|cpu| usable(*cpu))),
        };
        // Queues received on different CPUs have different substitutes. If no CPU needs a substitute, the receiving CPU
        // does not matter.
        let key = |queue: u16| {
            let own = config.map_of(queue);
            (own, (!own.iter().all(usable)).then(|| local[usize::from(queue)]))
        };
        let mut keys: Vec<(&CpuSet, Option<CpuId>)> = Vec::new();
        let mut of_queue = vec![0u16; local.len()];
        for queue in 0..local.len() as u16 {
            let searched = key(queue);
            let known = keys.iter().position(|known| *known == searched);
            of_queue[usize::from(queue)] = known.unwrap_or(keys.len()) as u16;
            if known.is_none() {
                keys.push(searched);
            }
        }
        let maps: Vec<Map> =
            keys.iter().map(|(cpus, local)| map(cpus, local.unwrap_or(CpuId::NONE))).collect();
        Maps { maps: maps.into(), of_queue: of_queue.into(), counts: None }
    }

    /// One table of buckets for all queues. If no CPU of the map can be used, every bucket of a queue is on the CPU that
    /// receives it.
    pub(crate) fn of_buckets(
        config: &SteerConfig,
        is_usable: &dyn Fn(CpuId) -> bool,
        local: &[CpuId],
        buckets: &Buckets,
    ) -> Maps {
        let cpus = || config.cpus.iter().filter(|cpu| is_usable(*cpu));
        let map = |table| Map { rps: RpsMap::of_table(table), walk: Walk::new(cpus()) };
        let counts = Some(buckets.counts.clone());
        if cpus().next().is_some() {
            let maps = Box::new([map(buckets.table.clone())]);
            return Maps { maps, of_queue: vec![0; local.len()].into(), counts };
        }
        let table = |cpu: &CpuId| vec![*cpu; buckets.table.len()].into();
        let maps = local.iter().map(|cpu| map(table(cpu))).collect();
        Maps { maps, of_queue: (0..local.len() as u16).collect(), counts }
    }

    /// The target that the packet's hash picks from `map`, for `producer`. If the map is a table of buckets, the packet
    /// is counted.
    #[inline(always)]
    pub(crate) fn by_hash(&self, packet: &Arrival, map: &Map, producer: u16) -> Target {
        let index = map.rps.index(packet.hash);
        if let Some(counts) = &self.counts {
            counts.count(producer, index, packet.hash);
        }
        Target { cpu: map.rps.entry(index), by: TargetRule::Hash }
    }

    /// Counts a packet that another rule sends to `cpu`, if there are buckets.
    #[inline(always)]
    pub(crate) fn count_elsewhere(&self, producer: u16, cpu: CpuId) {
        if let Some(counts) = &self.counts {
            counts.count_elsewhere(producer, cpu);
        }
    }

    /// The map of the packet's queue, if a map can steer the packet.
    #[inline(always)]
    pub(crate) fn map(&self, packet: &Arrival) -> Option<&Map> {
        match self.of_queue.get(usize::from(packet.rx_queue)) {
            Some(map) if !packet.hash.is_none() => Some(&self.maps[usize::from(*map)]),
            _ => None,
        }
    }

    /// The map of a packet that a map can steer.
    #[inline(always)]
    pub(crate) fn of(&self, packet: &Arrival) -> &Map {
        &self.maps[usize::from(self.of_queue[usize::from(packet.rx_queue)])]
    }

    /// The map of all queues, if they share one.
    pub(crate) fn single(&self) -> Option<&Map> {
        (self.maps.len() == 1).then(|| &self.maps[0])
    }
}
