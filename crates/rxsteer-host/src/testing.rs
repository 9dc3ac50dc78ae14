//! Hosts for tests: [`facts`], and recorded trees: the files of /sys and /proc that a host would have, below a folder.
//!
//! ```no_run
//! use rxsteer_host::testing::{MachineSpec, NicSpec};
//!
//! let folder = std::env::temp_dir().join("a-host");
//! let root = MachineSpec::cpus(16).nic(NicSpec::named("eth0").queues(1, 1)).build(&folder).unwrap();
//! ```

pub mod facts;

use crate::Root;
use crate::mask::{CpuMask, hex};
use rxsteer_core::{CpuId, CpuSet};
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A host.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// The ids of its CPUs, in ascending order.
    pub ids: Vec<u16>,
    /// CPUs per core: 1, or 2 with SMT. As on most hosts, sibling ids differ by half the number of CPUs.
    pub threads_per_core: usize,
    /// NUMA nodes, each one package. Each node has consecutive CPUs, with siblings on the same node.
    pub nodes: usize,
    /// Cores that share a last-level cache; 0: all cores of a node.
    pub cores_per_cache: usize,
    /// Offline CPUs, as a list.
    pub offline: &'static str,
    /// Isolated CPUs, as a list.
    pub isolated: &'static str,
    /// CPUs without a timer tick, as a list.
    pub nohz_full: &'static str,
    /// `rps_sock_flow_entries`.
    pub sock_flow_entries: u64,
    /// Interfaces besides `lo`.
    pub nics: Vec<NicSpec>,
    /// Processes: (id, name).
    pub processes: Vec<(u32, &'static str)>,
}

/// An interface.
#[derive(Clone, Debug)]
pub struct NicSpec {
    /// Its name.
    pub name: &'static str,
    /// RX queues.
    pub rx: u32,
    /// TX queues; an interface with one queue has no XPS.
    pub tx: u32,
    /// The driver of its device; none for a virtual interface.
    pub driver: Option<&'static str>,
    /// DEVTYPE, for virtual interfaces.
    pub kind: Option<&'static str>,
    /// ARPHRD_….
    pub hardware_type: u16,
    /// The NUMA node of its device.
    pub node: i32,
    /// The CPU that serves the interrupt of RX queue i is `interrupts[i % len]`; empty: there are no interrupts.
    pub interrupts: Vec<u16>,
    /// The CPUs in every `rps_cpus`, as a list.
    pub rps_cpus: &'static str,
}

impl NicSpec {
    /// A NIC with one queue in each direction and an interrupt on the first CPU.
    pub fn named(name: &'static str) -> NicSpec {
        NicSpec {
            name,
            rx: 1,
            tx: 1,
            driver: Some("e1000e"),
            kind: None,
            hardware_type: 1,
            node: -1,
            interrupts: vec![0],
            rps_cpus: "",
        }
    }

    /// A virtual interface of this kind, without a device and interrupts.
    pub fn made_by(name: &'static str, kind: &'static str, hardware_type: u16) -> NicSpec {
        NicSpec {
            driver: None,
            kind: Some(kind),
            hardware_type,
            interrupts: Vec::new(),
            ..NicSpec::named(name)
        }
    }

    /// With this many queues.
    #[must_use]
    pub fn queues(self, rx: u32, tx: u32) -> NicSpec {
        NicSpec { rx, tx, ..self }
    }

    /// With its interrupts on these CPUs in turn.
    #[must_use]
    pub fn interrupts(self, cpus: impl IntoIterator<Item = u16>) -> NicSpec {
        NicSpec { interrupts: cpus.into_iter().collect(), ..self }
    }

    /// On a NUMA node.
    #[must_use]
    pub fn on_node(self, node: i32) -> NicSpec {
        NicSpec { node, ..self }
    }

    /// With a driver.
    #[must_use]
    pub fn driver(self, driver: &'static str) -> NicSpec {
        NicSpec { driver: Some(driver), ..self }
    }

    /// With RPS on.
    #[must_use]
    pub fn rps(self, cpus: &'static str) -> NicSpec {
        NicSpec { rps_cpus: cpus, ..self }
    }
}

impl MachineSpec {
    /// One node, no SMT, CPUs 0 up to `count` − 1.
    pub fn cpus(count: u16) -> MachineSpec {
        MachineSpec::ids(0..count)
    }

    /// The same with these ids.
    pub fn ids(ids: impl IntoIterator<Item = u16>) -> MachineSpec {
        MachineSpec {
            ids: ids.into_iter().collect(),
            threads_per_core: 1,
            nodes: 1,
            cores_per_cache: 0,
            offline: "",
            isolated: "",
            nohz_full: "",
            sock_flow_entries: 0,
            nics: Vec::new(),
            processes: Vec::new(),
        }
    }

    /// With two CPUs per core.
    #[must_use]
    pub fn smt(self) -> MachineSpec {
        MachineSpec { threads_per_core: 2, ..self }
    }

    /// With this many nodes.
    #[must_use]
    pub fn nodes(self, nodes: usize) -> MachineSpec {
        MachineSpec { nodes, ..self }
    }

    /// With one more interface.
    #[must_use]
    pub fn nic(mut self, nic: NicSpec) -> MachineSpec {
        self.nics.push(nic);
        self
    }

    /// With one more process.
    #[must_use]
    pub fn process(mut self, id: u32, name: &'static str) -> MachineSpec {
        self.processes.push((id, name));
        self
    }

    /// Creates `folder`, and writes the files below it.
    pub fn build(&self, folder: &Path) -> io::Result<Root> {
        let tree = Files { root: Root::at(folder) };
        self.cpu_files(&tree)?;
        self.core_files(&tree)?;
        for (place, nic) in self.nics.iter().enumerate() {
            self.nic_files(&tree, nic, place)?;
        }
        let interrupts: String = self.nics.iter().enumerate().map(|nic| self.lines(nic)).collect();
        let heading: String = self.ids.iter().map(|id| format!("       CPU{id}")).collect();
        tree.put("/proc/interrupts", &format!("    {heading}\n{interrupts}"))?;
        for (id, name) in &self.processes {
            tree.put(&format!("/proc/{id}/comm"), &format!("{name}\n"))?;
        }
        Ok(tree.root)
    }

    /// The places of the CPUs in the core of the CPU at `place`. Siblings are `ids.len() / threads` places apart.
    fn core(&self, place: usize) -> (usize, Vec<usize>) {
        let cores = self.ids.len() / self.threads_per_core;
        let core = place % cores;
        (core, (0..self.threads_per_core).map(|thread| core + thread * cores).collect())
    }

    fn node(&self, place: usize) -> usize {
        let cores = self.ids.len() / self.threads_per_core;
        self.core(place).0 * self.nodes / cores
    }

    /// The CPUs at the places for which `is` holds, as a list.
    fn list(&self, is: impl Fn(usize) -> bool) -> String {
        let ids = (0..self.ids.len()).filter(|place| is(*place)).map(|place| self.ids[place]);
        list(CpuSet::new(ids.filter_map(CpuId::new)).as_ref())
    }

    fn width(&self) -> usize {
        self.ids.iter().max().map_or(1, |id| usize::from(*id) + 1)
    }

    fn cpu_files(&self, tree: &Files) -> io::Result<()> {
        let folder = "/sys/devices/system/cpu";
        let offline: Option<CpuSet> = self.offline.parse().ok();
        let is_off = |id: u16| {
            offline.as_ref().is_some_and(|set| CpuId::new(id).is_some_and(|id| set.contains(id)))
        };
        let all = self.list(|_| true);
        for (name, text) in [
            ("possible", all.clone()),
            ("present", all),
            ("online", self.list(|place| !is_off(self.ids[place]))),
            ("offline", self.offline.to_owned()),
            ("isolated", self.isolated.to_owned()),
            ("nohz_full", self.nohz_full.to_owned()),
        ] {
            tree.put(&format!("{folder}/{name}"), &format!("{text}\n"))?;
        }
        for (place, id) in self.ids.iter().enumerate() {
            let put = |name: &str, text: &str| {
                tree.put(&format!("{folder}/cpu{id}/{name}"), &format!("{text}\n"))
            };
            if is_off(*id) {
                continue;
            }
            let (core, _) = self.core(place);
            let node = self.node(place);
            let per_cache =
                if self.cores_per_cache == 0 { usize::MAX } else { self.cores_per_cache };
            let shared = |other: usize| {
                self.node(other) == node && self.core(other).0 / per_cache == core / per_cache
            };
            put("topology/physical_package_id", &node.to_string())?;
            put("topology/core_id", &core.to_string())?;
            put("topology/core_cpus_list", &self.list(|other| self.core(other).0 == core))?;
            for (index, level, kind, cpus) in [
                (0, 1, "Data", self.list(|other| self.core(other).0 == core)),
                (1, 1, "Instruction", self.list(|other| self.core(other).0 == core)),
                (2, 2, "Unified", self.list(|other| self.core(other).0 == core)),
                (3, 3, "Unified", self.list(shared)),
            ] {
                put(&format!("cache/index{index}/level"), &level.to_string())?;
                put(&format!("cache/index{index}/type"), kind)?;
                put(&format!("cache/index{index}/shared_cpu_list"), &cpus)?;
            }
        }
        for node in 0..self.nodes {
            let cpus = self.list(|place| self.node(place) == node);
            tree.put(
                &format!("/sys/devices/system/node/node{node}/cpulist"),
                &format!("{cpus}\n"),
            )?;
        }
        Ok(())
    }

    fn core_files(&self, tree: &Files) -> io::Result<()> {
        let none = hex([], self.width());
        for (name, text) in [
            ("rps_sock_flow_entries", self.sock_flow_entries.to_string()),
            ("netdev_max_backlog", "1000".to_owned()),
            ("flow_limit_cpu_bitmap", none.clone()),
            ("flow_limit_table_len", "4096".to_owned()),
            ("rps_default_mask", none),
            ("netdev_budget", "300".to_owned()),
            ("dev_weight", "64".to_owned()),
        ] {
            tree.put(&format!("/proc/sys/net/core/{name}"), &format!("{text}\n"))?;
        }
        let (mut softnet, mut stat) = (String::new(), "cpu  0 0 0 0 0 0 0 0 0 0\n".to_owned());
        for id in &self.ids {
            // Writing to a String does not fail.
            let _ = writeln!(
                softnet,
                "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                 00000000 00000000 00000000 {id:08x} 00000000 00000000"
            );
            let _ = writeln!(stat, "cpu{id} 0 0 0 0 0 0 0 0 0 0");
        }
        tree.put("/proc/net/softnet_stat", &softnet)?;
        tree.put("/proc/stat", &stat)?;
        tree.put("/proc/net/dev", "Inter-|   Receive\n face |bytes    packets\n")?;
        tree.put("/proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")?;
        tree.put("/sys/class/net/lo/ifindex", "1\n")
    }

    fn nic_files(&self, tree: &Files, nic: &NicSpec, place: usize) -> io::Result<()> {
        let folder = format!("/sys/class/net/{}", nic.name);
        let put =
            |name: &str, text: &str| tree.put(&format!("{folder}/{name}"), &format!("{text}\n"));
        put("ifindex", &(place + 2).to_string())?;
        put("address", &format!("02:00:00:00:00:{:02x}", place + 2))?;
        put("type", &nic.hardware_type.to_string())?;
        put("flags", "0x1003")?;
        put("threaded", "0")?;
        put("gro_flush_timeout", "0")?;
        put("napi_defer_hard_irqs", "0")?;
        let kind = nic.kind.map(|kind| format!("DEVTYPE={kind}\n")).unwrap_or_default();
        put("uevent", &format!("{kind}INTERFACE={}\nIFINDEX={}", nic.name, place + 2))?;
        let cpus = CpuMask(nic.rps_cpus.parse().ok()).hex(self.width());
        for queue in 0..nic.rx {
            put(&format!("queues/rx-{queue}/rps_cpus"), &cpus)?;
            put(&format!("queues/rx-{queue}/rps_flow_cnt"), "0")?;
        }
        for queue in 0..nic.tx {
            put(&format!("queues/tx-{queue}/tx_maxrate"), "0")?;
            if nic.tx > 1 {
                put(&format!("queues/tx-{queue}/xps_cpus"), &hex([], self.width()))?;
                put(&format!("queues/tx-{queue}/xps_rxqs"), &hex([], nic.rx as usize))?;
            }
        }
        let Some(driver) = nic.driver else { return Ok(()) };
        let device = format!("/sys/devices/pci0000:00/0000:00:{:02x}.0", place + 3);
        tree.put(&format!("{device}/numa_node"), &format!("{}\n", nic.node))?;
        let driver = tree.root.path(format!("/sys/bus/pci/drivers/{driver}"));
        fs::create_dir_all(&driver)?;
        symlink(driver, tree.root.path(format!("{device}/driver")))?;
        symlink(tree.root.path(&device), tree.root.path(format!("{folder}/device")))?;
        for (number, cpu, _) in interrupts(nic, place) {
            tree.put(&format!("{device}/msi_irqs/{number}"), "msix\n")?;
            let folder = format!("/proc/irq/{number}");
            tree.put(
                &format!("{folder}/smp_affinity_list"),
                &format!("{}\n", self.list(|_| true)),
            )?;
            tree.put(&format!("{folder}/effective_affinity_list"), &format!("{cpu}\n"))?;
        }
        Ok(())
    }

    /// Its lines of `/proc/interrupts`.
    fn lines(&self, (place, nic): (usize, &NicSpec)) -> String {
        let mut text = String::new();
        for (number, cpu, queue) in interrupts(nic, place) {
            let counts: String = self
                .ids
                .iter()
                .map(|id| format!(" {:>10}", if *id == cpu { 1000 } else { 0 }))
                .collect();
            let name = nic.name;
            let _ =
                writeln!(text, "{number:>4}:{counts}  PCI-MSIX  {queue}-edge  {name}-TxRx-{queue}");
        }
        text
    }
}

/// The interrupts of a NIC: number, CPU, queue.
fn interrupts(nic: &NicSpec, place: usize) -> Vec<(u32, u16, u32)> {
    let cpus = &nic.interrupts;
    let of = |queue: u32| Some((queue, *cpus.get(queue as usize % cpus.len().max(1))?));
    let base = 100 + place as u32 * 100;
    (0..nic.rx).filter_map(of).map(|(queue, cpu)| (base + queue, cpu, queue)).collect()
}

fn list(set: Option<&CpuSet>) -> String {
    set.map(ToString::to_string).unwrap_or_default()
}

struct Files {
    root: Root,
}

impl Files {
    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let at = self.root.path(path);
        fs::create_dir_all(at.parent().unwrap_or(Path::new("/")))?;
        fs::write(at, text)
    }
}
