//! The present values of the kernel's own settings of receive and transmit steering.
//!
//! Documentation/networking/scaling.rst describes RPS, RFS, XPS and the flow limit.
//! Documentation/ABI/testing/sysfs-class-net-queues describes the files of queues,
//! Documentation/admin-guide/sysctl/net.rst those of the network core. This module changes nothing:
//! [`change`](crate::change) does that.

mod interrupts;

pub use interrupts::Interrupt;

use crate::cpus::{self, Cpus};
use crate::error::HostError;
use crate::link::Link;
use crate::listing::{find, links};
use crate::mask::{self, CpuMask};
use crate::queues;
use crate::root::Root;
use rxsteer_core::CpuSet;
use serde::Serialize;
use std::path::PathBuf;

/// The folder of the interfaces.
pub(crate) const INTERFACES: &str = "/sys/class/net";
/// The folder of the settings of the network core.
pub(crate) const CORE: &str = "/proc/sys/net/core";

/// Settings of the network core, which apply to all interfaces; `None` if the kernel does not report them.
///
/// Kernels before 6.13 cut the two masks off after 127 characters, at 448 CPUs (`dump_cpumask` in
/// net/core/sysctl_net_core.c); such a mask is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Globals {
    /// Entries of the sock flow table; 0: no RFS.
    pub rps_sock_flow_entries: Option<u64>,
    /// The most packets that may wait in a CPU's backlog.
    pub netdev_max_backlog: Option<u64>,
    /// The CPUs that limit flows when they put packets into a backlog.
    pub flow_limit_cpu_bitmap: Option<CpuMask>,
    /// The number of buckets in which such a CPU counts flows.
    pub flow_limit_table_len: Option<u64>,
    /// The CPU map of queues that are created from now on (Linux 6.3 and later), in this network namespace.
    pub rps_default_mask: Option<CpuMask>,
    /// The most frames that one softirq processes.
    pub netdev_budget: Option<u64>,
    /// The most packets that one round takes out of a backlog.
    pub dev_weight: Option<u64>,
}

impl Globals {
    /// Reads the settings below `root`.
    pub fn read(root: &Root) -> Globals {
        let number = |name: &str| root.number(&format!("{CORE}/{name}"));
        let mask = |name: &str| whole_mask(root, &root.text(&format!("{CORE}/{name}"))?);
        Globals {
            rps_sock_flow_entries: number("rps_sock_flow_entries"),
            netdev_max_backlog: number("netdev_max_backlog"),
            flow_limit_cpu_bitmap: mask("flow_limit_cpu_bitmap"),
            flow_limit_table_len: number("flow_limit_table_len"),
            rps_default_mask: mask("rps_default_mask"),
            netdev_budget: number("netdev_budget"),
            dev_weight: number("dev_weight"),
        }
    }
}

/// A text of at least this length may have been cut off.
const CUT_OFF: usize = 126;

/// A mask that is as wide as the host's.
fn whole_mask(root: &Root, text: &str) -> Option<CpuMask> {
    let width = |cpus: CpuSet| mask::hex([], cpus.highest().index() + 1).len();
    let is_whole = |cpus: CpuSet| text.len() == width(cpus);
    let is_cut_off = text.len() >= CUT_OFF && !Cpus::read_in(root).possible.is_some_and(is_whole);
    CpuMask::read(text).filter(|_| !is_cut_off)
}

/// An RX queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RxQueue {
    /// Its number.
    pub queue: u32,
    /// Its CPU map for RPS; `None` if the kernel has none.
    pub rps_cpus: Option<CpuMask>,
    /// The number of entries of its flow table for RFS.
    pub rps_flow_cnt: Option<u64>,
}

/// A TX queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TxQueue {
    /// Its number.
    pub queue: u32,
    /// The CPUs that send on it (XPS); `None` if the interface has only one TX queue.
    pub xps_cpus: Option<CpuMask>,
    /// The RX queues whose flows it sends.
    pub xps_rxqs: Option<Vec<usize>>,
}

/// An interface with its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceKnobs {
    /// Its name.
    pub name: String,
    /// Its index. The kernel does not reuse it for a later interface of that name.
    #[serde(rename = "ifindex")]
    pub index: u32,
    /// Its hardware address, as the kernel writes it.
    pub address: String,
    /// ARPHRD_…: what its frames begin with.
    pub hardware_type: Option<u16>,
    /// The link kind (`wireguard`, `vlan`, `bridge`, `tun`, `wlan`, …), if sysfs reports it.
    pub kind: Option<String>,
    /// The driver of its device; a virtual interface has none.
    pub driver: Option<String>,
    /// The NUMA node of that device.
    pub numa_node: Option<u32>,
    /// Whether it is up.
    pub up: bool,
    /// Whether threads poll its NAPI instances.
    pub threaded: Option<bool>,
    /// How long GRO may hold packets, in ns.
    pub gro_flush_timeout_ns: Option<u64>,
    /// The number of polls without an interrupt before the interrupt is armed again.
    pub napi_defer_hard_irqs: Option<u64>,
    /// Its RX queues, in ascending order.
    pub rx: Vec<RxQueue>,
    /// Its TX queues, in ascending order.
    pub tx: Vec<TxQueue>,
    /// Its interrupts, in ascending order.
    pub interrupts: Vec<Interrupt>,
}

impl InterfaceKnobs {
    /// Reads the interface with this name or alternative name.
    ///
    /// On the host itself, the interface must be in this network namespace, and sysfs must show that namespace.
    pub fn read(root: &Root, name: &str) -> Result<InterfaceKnobs, HostError> {
        if !root.is_host() {
            return Self::of_sysfs(root, name)
                .ok_or_else(|| HostError::NoSuchInterface { name: name.to_owned() });
        }
        let links = links()?;
        Self::of_link(find(&links, name)?)
    }

    /// All interfaces.
    pub fn read_all(root: &Root) -> Result<Vec<InterfaceKnobs>, HostError> {
        if !root.is_host() {
            let names = root.names(INTERFACES);
            return Ok(names.iter().filter_map(|name| Self::of_sysfs(root, name)).collect());
        }
        // Skips an interface that was renamed meanwhile. If none is found, sysfs shows another namespace.
        let links = links()?;
        let mut failed = None;
        let read = |link| Self::of_link(link).map_err(|error| failed = Some(error)).ok();
        let all: Vec<InterfaceKnobs> = links.iter().filter_map(read).collect();
        match failed {
            Some(error) if all.is_empty() => Err(error),
            _ => Ok(all),
        }
    }

    /// Reads the interface of this network namespace with that name in netlink.
    pub fn of_link(link: &Link) -> Result<InterfaceKnobs, HostError> {
        let elsewhere = || HostError::OtherNamespace { name: link.name.clone() };
        queues::dir_of(link).ok_or_else(elsewhere)?;
        let mut knobs = Self::of_sysfs(&Root::host(), &link.name).ok_or_else(elsewhere)?;
        // Netlink reports more kinds than sysfs.
        knobs.kind = link.kind.clone().or(knobs.kind);
        Ok(knobs)
    }

    /// What sysfs reports.
    fn of_sysfs(root: &Root, name: &str) -> Option<InterfaceKnobs> {
        // A name must not be a path.
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return None;
        }
        let text = |file: &str| root.text(&format!("{INTERFACES}/{name}/{file}"));
        let number = |file: &str| text(file)?.parse().ok();
        let flags =
            text("flags").and_then(|flags| u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok());
        let device = device(root, name);
        Some(InterfaceKnobs {
            index: u32::try_from(number("ifindex")?).ok()?,
            address: text("address").unwrap_or_default(),
            hardware_type: text("type").and_then(|number| number.parse().ok()),
            kind: kind(root, name),
            driver: device
                .join("driver")
                .canonicalize()
                .ok()
                .and_then(|driver| Some(driver.file_name()?.to_string_lossy().into_owned())),
            numa_node: cpus::node_at(&device),
            up: flags.is_some_and(|flags| flags & 1 != 0),
            threaded: text("threaded").map(|threaded| threaded != "0"),
            gro_flush_timeout_ns: number("gro_flush_timeout"),
            napi_defer_hard_irqs: number("napi_defer_hard_irqs"),
            rx: queues::numbered(&queues_of(root, name), "rx-")
                .into_iter()
                .map(|(queue, _)| rx_queue(root, name, queue))
                .collect(),
            tx: queues::numbered(&queues_of(root, name), "tx-")
                .into_iter()
                .map(|(queue, _)| tx_queue(root, name, queue))
                .collect(),
            interrupts: interrupts::read(root, name, &device),
            name: name.to_owned(),
        })
    }

    /// The CPUs that serve its interrupts; `None` if it has none, or the kernel does not report them.
    pub fn interrupt_cpus(&self) -> Option<CpuSet> {
        CpuSet::new(self.interrupts.iter().filter_map(Interrupt::served_on).flat_map(CpuSet::iter))
    }

    /// The CPUs that serve RX queue `queue`: those of the interrupt named after the queue, or, if there is none, those
    /// of all its interrupts.
    pub fn interrupt_cpus_of(&self, queue: u32) -> Option<CpuSet> {
        let named = self.interrupts.iter().find(|interrupt| interrupt.rx_queue == Some(queue));
        match named {
            Some(interrupt) => interrupt.served_on().cloned(),
            None => self.interrupt_cpus(),
        }
    }
}

/// An interface's device in sysfs. It may not exist.
fn device(root: &Root, name: &str) -> PathBuf {
    root.path(format!("{INTERFACES}/{name}/device"))
}

fn queues_of(root: &Root, name: &str) -> PathBuf {
    root.path(format!("{INTERFACES}/{name}/queues"))
}

/// The file of an RX queue's setting, as the kernel names it.
pub(crate) fn rx_file(interface: &str, queue: u32, knob: &str) -> String {
    format!("{INTERFACES}/{interface}/queues/rx-{queue}/{knob}")
}

/// The file of a TX queue's setting.
pub(crate) fn tx_file(interface: &str, queue: u32, knob: &str) -> String {
    format!("{INTERFACES}/{interface}/queues/tx-{queue}/{knob}")
}

fn rx_queue(root: &Root, name: &str, queue: u32) -> RxQueue {
    RxQueue {
        queue,
        rps_cpus: root
            .text(&rx_file(name, queue, "rps_cpus"))
            .and_then(|text| CpuMask::read(&text)),
        rps_flow_cnt: root.number(&rx_file(name, queue, "rps_flow_cnt")),
    }
}

fn tx_queue(root: &Root, name: &str, queue: u32) -> TxQueue {
    TxQueue {
        queue,
        xps_cpus: root
            .text(&tx_file(name, queue, "xps_cpus"))
            .and_then(|text| CpuMask::read(&text)),
        xps_rxqs: root.text(&tx_file(name, queue, "xps_rxqs")).and_then(|text| mask::bits(&text)),
    }
}

/// The link kind as the kernel reports it: DEVTYPE in its uevent. A tun device has none, but has other flags.
fn kind(root: &Root, name: &str) -> Option<String> {
    let events = root.text(&format!("{INTERFACES}/{name}/uevent"))?;
    let kind = crate::files::field(&events, "DEVTYPE").map(str::to_owned);
    let tun = || root.text(&format!("{INTERFACES}/{name}/tun_flags")).map(|_| "tun".to_owned());
    kind.or_else(tun)
}
