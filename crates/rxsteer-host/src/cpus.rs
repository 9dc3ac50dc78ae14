//! The CPUs of the host, and which of them steering uses by default.

use crate::error::HostError;
use crate::files;
use crate::link::Link;
use crate::listing::{find, links};
use crate::root::Root;
use rxsteer_core::{CpuId, CpuSet};
use serde::Serialize;
use std::path::Path;

/// The highest CPU id that the in-kernel path can send to (`STEER_MAX_CPUS` − 1).
pub const HIGHEST: u16 = 1023;

/// The host's CPUs; `None` if the kernel does not report them. A set is never empty, so "no isolated CPU" is also
/// `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// The CPUs that are online.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub online: Option<CpuSet>,
    /// The CPUs that can be brought online.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub possible: Option<CpuSet>,
    /// The CPUs that the scheduler keeps free of other work (`isolcpus`).
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub isolated: Option<CpuSet>,
    /// The CPUs whose timer tick stops while one task runs alone (`nohz_full`).
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub nohz_full: Option<CpuSet>,
}

impl Cpus {
    /// Reads the CPUs of this host.
    pub fn read() -> Cpus {
        Self::read_in(&Root::host())
    }

    /// Reads the CPUs of the host below `root`.
    pub fn read_in(root: &Root) -> Cpus {
        Cpus {
            online: online_in(root),
            possible: list(root, "/sys/devices/system/cpu/possible"),
            isolated: list(root, "/sys/devices/system/cpu/isolated"),
            nohz_full: list(root, "/sys/devices/system/cpu/nohz_full"),
        }
    }

    /// The CPUs that are online, not isolated, on one of the `nodes`, and that frames can be sent to. An unknown node
    /// matches any CPU. If no CPU is left, this ignores first the nodes and then the isolation: some CPU must process
    /// packets.
    pub fn usable(&self, nodes: &[Option<CpuSet>]) -> Option<CpuSet> {
        let online = self.online.as_ref()?;
        let free = |cpu: &CpuId| !self.isolated.as_ref().is_some_and(|set| set.contains(*cpu));
        let near = |cpu: &CpuId| {
            nodes.is_empty()
                || nodes.iter().any(|node| node.as_ref().is_none_or(|node| node.contains(*cpu)))
        };
        let reachable = || online.iter().filter(|cpu| cpu.get() <= HIGHEST);
        CpuSet::new(reachable().filter(free).filter(near))
            .or_else(|| CpuSet::new(reachable().filter(free)))
            .or_else(|| CpuSet::new(reachable()))
    }
}

fn list(root: &Root, path: &str) -> Option<CpuSet> {
    root.text(path)?.parse().ok()
}

/// Without sysfs, the CPUs on which this process may run.
fn online_in(root: &Root) -> Option<CpuSet> {
    list(root, "/sys/devices/system/cpu/online").or_else(|| {
        let status = root.text("/proc/self/status")?;
        files::field(&status, "Cpus_allowed_list")?.parse().ok()
    })
}

/// The online CPUs. Without sysfs, the CPUs on which this process may run.
pub fn online() -> Option<CpuSet> {
    online_in(&Root::host())
}

/// The CPUs that can be brought online.
pub fn possible() -> Option<CpuSet> {
    Cpus::read().possible
}

/// The CPUs of the NUMA node of the interface `name`; `None` if it has no node, as virtual interfaces.
pub fn of_node_of(name: &str) -> Option<CpuSet> {
    of_node(node_of(find(&links().ok()?, name).ok()?)?)
}

/// The NUMA node of an interface's device.
pub(crate) fn node_of(link: &Link) -> Option<u32> {
    node_at(&link.device()?)
}

/// The NUMA node of a device in sysfs. The device itself may not have one (virtio), but its parent does.
pub(crate) fn node_at(device: &Path) -> Option<u32> {
    let device = device.canonicalize().ok()?;
    let node: i32 = device.ancestors().find_map(|dir| files::number(dir.join("numa_node")))?;
    // -1 means none.
    u32::try_from(node).ok()
}

/// The CPUs of a NUMA node.
pub(crate) fn of_node(node: u32) -> Option<CpuSet> {
    list(&Root::host(), &format!("/sys/devices/system/node/node{node}/cpulist"))
}

/// The CPUs that steering uses by default: online, not isolated, on the NUMA nodes of these interfaces (on all nodes if
/// an interface has none).
pub fn default_cpus<S: AsRef<str>>(interfaces: &[S]) -> Result<CpuSet, HostError> {
    let nodes: Vec<_> = interfaces.iter().map(|name| of_node_of(name.as_ref())).collect();
    Cpus::read().usable(&nodes).ok_or(HostError::NoCpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Option<CpuSet> {
        text.parse().ok()
    }

    fn usable(online: &str, isolated: &str, nodes: &[Option<CpuSet>]) -> Option<String> {
        let cpus =
            Cpus { online: set(online), possible: None, isolated: set(isolated), nohz_full: None };
        cpus.usable(nodes).map(|set| set.to_string())
    }

    #[test]
    fn usable_is_online_free_and_near() {
        let shown = |text: &str| Some(text.to_owned());
        assert_eq!(usable("0-7", "", &[]), shown("0-7"));
        assert_eq!(usable("0-7", "6-7", &[set("4-7")]), shown("4-5"));
        assert_eq!(usable("0-7", "", &[set("0-1"), set("4-5")]), shown("0-1,4-5"));
        assert_eq!(usable("0-7", "", &[set("0-1"), None]), shown("0-7"), "one is anywhere");
        assert_eq!(usable("0-2000", "", &[]), shown("0-1023"), "higher ids can't be sent to");
    }

    #[test]
    fn far_or_isolated_cpus_are_used_rather_than_none() {
        assert_eq!(usable("0-3", "", &[set("8-9")]).as_deref(), Some("0-3"));
        assert_eq!(usable("0-3", "0-3", &[]).as_deref(), Some("0-3"));
        assert_eq!(usable("", "", &[]), None);
    }
}
