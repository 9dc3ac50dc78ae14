//! The CPU maps of the RX queues, or the table of buckets that replaces them.

use crate::backlogs::Arrival;
use crate::balance::{BucketCounts, Buckets, CountPackets, NoBuckets, Row};
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

/// Picks the target from a map by the packet's hash, and counts nothing.
#[inline(always)]
pub(crate) fn by_hash(packet: &Arrival) -> impl Fn(&Map) -> Target {
    move |map| map.by_hash(packet, NoBuckets)
}

impl Map {
    /// The target that the packet's hash picks. If the map is a table of buckets, the packet is counted.
    #[inline(always)]
    pub(crate) fn by_hash(&self, packet: &Arrival, counts: impl CountPackets) -> Target {
        let index = self.rps.index(packet.hash);
        counts.in_bucket(index, packet.hash);
        Target { cpu: self.rps.entry(index), by: TargetRule::Hash }
    }
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

    /// The counters of a producer's packets by bucket, if there are buckets.
    #[inline(always)]
    pub(crate) fn row(&self, producer: u16) -> Option<Row<'_>> {
        self.counts.as_ref().map(|counts| counts.row(producer))
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
