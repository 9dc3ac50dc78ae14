//! The package, core, caches and NUMA node of each CPU.

use crate::cpus::Cpus;
use crate::root::Root;
use rxsteer_core::{CpuId, CpuSet};
use serde::{Serialize, Serializer};
use std::cmp::Reverse;

/// One CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuPlace {
    /// Its id.
    #[serde(serialize_with = "cpu_id")]
    pub cpu: CpuId,
    /// Its package (socket).
    pub package: Option<u32>,
    /// Its core, a number within the package.
    pub core: Option<u32>,
    /// The CPUs of its core, including itself: more than one with SMT.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub siblings: Option<CpuSet>,
    /// The CPUs that share its last-level cache, including itself.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub last_level_cache: Option<CpuSet>,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Whether it is online.
    pub online: bool,
    /// Whether the scheduler keeps it free of other work (`isolcpus`).
    pub isolated: bool,
    /// Whether its timer tick stops while one task runs alone.
    pub nohz_full: bool,
}

/// All CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The sets of CPUs.
    pub sets: Cpus,
    /// Each CPU that exists, in ascending order.
    pub cpus: Vec<CpuPlace>,
}

fn cpu_id<S: Serializer>(cpu: &CpuId, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(cpu.get())
}

impl Topology {
    /// Reads the CPUs below `root`.
    pub fn read(root: &Root) -> Topology {
        let sets = Cpus::read_in(root);
        let nodes = nodes(root);
        let place = |cpu: CpuId| {
            let file = |name: &str| format!("/sys/devices/system/cpu/cpu{cpu}/{name}");
            let list = |name: &str| root.text(&file(name))?.parse::<CpuSet>().ok();
            let has = |set: &Option<CpuSet>| set.as_ref().is_some_and(|set| set.contains(cpu));
            CpuPlace {
                cpu,
                package: root.number(&file("topology/physical_package_id")),
                core: root.number(&file("topology/core_id")),
                // The older name of the same file.
                siblings: list("topology/core_cpus_list")
                    .or_else(|| list("topology/thread_siblings_list")),
                last_level_cache: last_level_cache(root, cpu),
                node: nodes.iter().find(|(_, of)| of.contains(cpu)).map(|(node, _)| *node),
                online: has(&sets.online),
                isolated: has(&sets.isolated),
                nohz_full: has(&sets.nohz_full),
            }
        };
        let there = present(root).or_else(|| sets.possible.clone()).or_else(|| sets.online.clone());
        let cpus = there.iter().flat_map(CpuSet::iter).map(place).collect();
        Topology { sets, cpus }
    }

    /// The entry of a CPU.
    pub fn place(&self, cpu: CpuId) -> Option<&CpuPlace> {
        self.cpus.iter().find(|place| place.cpu == cpu)
    }

    /// One more than the highest possible CPU id (`nr_cpu_ids`): the width of the kernel's masks.
    pub fn ids(&self) -> usize {
        let sets = [&self.sets.possible, &self.sets.online];
        let known = sets.into_iter().flatten().map(|set| set.highest().index() + 1).max();
        known.or_else(|| Some(self.cpus.last()?.cpu.index() + 1)).unwrap_or(1)
    }

    /// The CPUs that exist and are offline.
    pub fn offline(&self) -> Option<CpuSet> {
        CpuSet::new(self.cpus.iter().filter(|place| !place.online).map(|place| place.cpu))
    }

    /// The CPUs that share a last-level cache with one of `cpus`. If the caches are unknown, those of the same NUMA
    /// node; if that is unknown, those of the same package.
    pub fn near(&self, cpus: &CpuSet) -> Option<CpuSet> {
        let domain = |cpu: CpuId| -> Vec<CpuId> {
            let Some(place) = self.place(cpu) else { return Vec::new() };
            if let Some(cache) = &place.last_level_cache {
                return cache.iter().collect();
            }
            let same = |other: &&CpuPlace| match (place.node, place.package) {
                (Some(_), _) => other.node == place.node,
                (None, Some(_)) => other.package == place.package,
                (None, None) => true,
            };
            self.cpus.iter().filter(same).map(|other| other.cpu).collect()
        };
        CpuSet::new(cpus.iter().flat_map(domain))
    }

    /// The lowest CPU of each core among `cpus`, so that no two of them are SMT siblings.
    pub fn one_per_core(&self, cpus: &CpuSet) -> CpuSet {
        let first = |cpu: &CpuId| {
            let siblings = self.place(*cpu).and_then(|place| place.siblings.as_ref());
            siblings.is_none_or(|siblings| {
                siblings.iter().find(|sibling| cpus.contains(*sibling)) == Some(*cpu)
            })
        };
        CpuSet::new(cpus.iter().filter(first)).unwrap_or_else(|| cpus.clone())
    }
}

fn present(root: &Root) -> Option<CpuSet> {
    root.text("/sys/devices/system/cpu/present")?.parse().ok()
}

/// The NUMA nodes that have CPUs, and their CPUs.
fn nodes(root: &Root) -> Vec<(u32, CpuSet)> {
    let folder = "/sys/devices/system/node";
    let node = |name: &String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        Some((number, root.text(&format!("{folder}/{name}/cpulist"))?.parse().ok()?))
    };
    root.names(folder).iter().filter_map(node).collect()
}

/// The CPUs that share the cache of the highest level, except instruction caches.
fn last_level_cache(root: &Root, cpu: CpuId) -> Option<CpuSet> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let cache = |name: &String| {
        let file = |file: &str| root.text(&format!("{folder}/{name}/{file}"));
        let level: u32 = file("level")?.parse().ok()?;
        let shared: CpuSet = file("shared_cpu_list")?.parse().ok()?;
        (file("type").as_deref() != Some("Instruction")).then_some((level, shared))
    };
    let names = root.names(&folder);
    let caches = names.iter().filter(|name| name.starts_with("index")).filter_map(cache);
    caches.min_by_key(|(level, _)| Reverse(*level)).map(|(_, shared)| shared)
}
