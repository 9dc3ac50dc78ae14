//! The kernel's own settings of receive and transmit steering, as they are now.
//!
//! Documentation/networking/scaling.rst describes RPS, RFS, XPS and the flow limit; Documentation/ABI/testing/sysfs-class-net-queues
//! has the files of queues, Documentation/admin-guide/sysctl/net.rst those of the network core. Nothing here is changed:
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

/// Where the interfaces are.
pub(crate) const INTERFACES: &str = "/sys/class/net";
/// Where the settings of the network core are.
pub(crate) const CORE: &str = "/proc/sys/net/core";

/// Settings of the network core, which hold for all interfaces; `None` where the kernel does not say.
///
/// Kernels before 6.13 cut the two masks off after 127 characters, at 448 CPUs (`dump_cpumask` in
/// net/core/sysctl_net_core.c); a mask that was cut off is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Globals {
    /// Entries of the sock flow table; 0: no RFS.
    pub rps_sock_flow_entries: Option<u64>,
    /// Packets that may wait in a CPU's backlog.
    pub netdev_max_backlog: Option<u64>,
    /// The CPUs that limit flows when they put packets into a backlog.
    pub flow_limit_cpu_bitmap: Option<CpuMask>,
    /// Buckets that such a CPU counts flows in.
    pub flow_limit_table_len: Option<u64>,
    /// The CPU map of queues that appear from now on (Linux 6.3 and later), of this network namespace.
    pub rps_default_mask: Option<CpuMask>,
    /// Frames that one softirq takes up at most.
    pub netdev_budget: Option<u64>,
    /// Packets that one round takes out of a backlog.
    pub dev_weight: Option<u64>,
}

impl Globals {
    /// Looks at the settings below `root`.
    pub fn look(root: &Root) -> Globals {
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

/// The shortest text that may be the beginning of a longer one.
const CUT_OFF: usize = 126;

/// A mask that is as wide as the host's.
fn whole_mask(root: &Root, text: &str) -> Option<CpuMask> {
    let width = |cpus: CpuSet| mask::hex([], cpus.highest().index() + 1).len();
    let is_whole = |cpus: CpuSet| text.len() == width(cpus);
    let is_cut_off = text.len() >= CUT_OFF && !Cpus::look_in(root).possible.is_some_and(is_whole);
    CpuMask::read(text).filter(|_| !is_cut_off)
}

/// An RX queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RxQueue {
    /// Its number.
    pub queue: u32,
    /// Its CPU map: RPS; `None` where the kernel has none.
    pub rps_cpus: Option<CpuMask>,
    /// Entries of its flow table: RFS.
    pub rps_flow_cnt: Option<u64>,
}

/// A TX queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TxQueue {
    /// Its number.
    pub queue: u32,
    /// The CPUs that send by it: XPS; `None` where the interface has one TX queue only.
    pub xps_cpus: Option<CpuMask>,
    /// The RX queues whose flows are sent by it.
    pub xps_rxqs: Option<Vec<usize>>,
}

/// An interface with its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceKnobs {
    /// Its name.
    pub name: String,
    /// Its number, which no later interface of that name has.
    #[serde(rename = "ifindex")]
    pub index: u32,
    /// Its hardware address as the kernel writes it.
    pub address: String,
    /// ARPHRD_…: what its frames begin with.
    pub hardware_type: Option<u16>,
    /// What made it (`wireguard`, `vlan`, `bridge`, `tun`, `wlan`, …), where sysfs says so.
    pub kind: Option<String>,
    /// The driver of the device behind it; a virtual interface has none.
    pub driver: Option<String>,
    /// The NUMA node of that device.
    pub numa_node: Option<u32>,
    /// Whether it is up.
    pub up: bool,
    /// Whether its NAPI instances poll in threads of their own.
    pub threaded: Option<bool>,
    /// How long GRO may hold packets, in ns.
    pub gro_flush_timeout_ns: Option<u64>,
    /// Polls without an interrupt before it is armed again.
    pub napi_defer_hard_irqs: Option<u64>,
    /// RX queues, ascending.
    pub rx: Vec<RxQueue>,
    /// TX queues, ascending.
    pub tx: Vec<TxQueue>,
    /// Interrupts, ascending.
    pub interrupts: Vec<Interrupt>,
}

impl InterfaceKnobs {
    /// Looks at the interface `name`, or at the one that goes by that other name.
    ///
    /// On the host itself it has to be one of this network namespace, and sysfs has to show that namespace.
    pub fn look(root: &Root, name: &str) -> Result<InterfaceKnobs, HostError> {
        if !root.is_host() {
            return Self::of_sysfs(root, name)
                .ok_or_else(|| HostError::NoSuchInterface { name: name.to_owned() });
        }
        let links = links()?;
        Self::of_link(find(&links, name)?)
    }

    /// All interfaces.
    pub fn look_at_all(root: &Root) -> Result<Vec<InterfaceKnobs>, HostError> {
        if !root.is_host() {
            let names = root.names(INTERFACES);
            return Ok(names.iter().filter_map(|name| Self::of_sysfs(root, name)).collect());
        }
        // One that was renamed meanwhile is left out; without any, sysfs is another namespace's.
        let links = links()?;
        let mut failed = None;
        let looked = |link| Self::of_link(link).map_err(|error| failed = Some(error)).ok();
        let all: Vec<InterfaceKnobs> = links.iter().filter_map(looked).collect();
        match failed {
            Some(error) if all.is_empty() => Err(error),
            _ => Ok(all),
        }
    }

    /// The interface of this network namespace that netlink calls so.
    pub fn of_link(link: &Link) -> Result<InterfaceKnobs, HostError> {
        let elsewhere = || HostError::OtherNamespace { name: link.name.clone() };
        queues::dir_of(link).ok_or_else(elsewhere)?;
        let mut knobs = Self::of_sysfs(&Root::host(), &link.name).ok_or_else(elsewhere)?;
        // Netlink knows more kinds than sysfs.
        knobs.kind = link.kind.clone().or(knobs.kind);
        Ok(knobs)
    }

    /// What sysfs says.
    fn of_sysfs(root: &Root, name: &str) -> Option<InterfaceKnobs> {
        // A name is no path.
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
            interrupts: interrupts::look(root, name, &device),
            name: name.to_owned(),
        })
    }

    /// The CPUs on which its interrupts are served; `None` where it has none, or the kernel does not say.
    pub fn interrupt_cpus(&self) -> Option<CpuSet> {
        CpuSet::new(self.interrupts.iter().filter_map(Interrupt::served_on).flat_map(CpuSet::iter))
    }

    /// The CPUs on which RX queue `queue` is served: those of the interrupt that is named after it; of all of them where
    /// none is.
    pub fn interrupt_cpus_of(&self, queue: u32) -> Option<CpuSet> {
        let named = self.interrupts.iter().find(|interrupt| interrupt.rx_queue == Some(queue));
        match named {
            Some(interrupt) => interrupt.served_on().cloned(),
            None => self.interrupt_cpus(),
        }
    }
}

/// The device behind an interface. It need not be there.
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

/// What made an interface, in the kernel's words: DEVTYPE of its uevent. A tun device has none, but flags of its own.
fn kind(root: &Root, name: &str) -> Option<String> {
    let events = root.text(&format!("{INTERFACES}/{name}/uevent"))?;
    let kind = crate::files::field(&events, "DEVTYPE").map(str::to_owned);
    let tun = || root.text(&format!("{INTERFACES}/{name}/tun_flags")).map(|_| "tun".to_owned());
    kind.or_else(tun)
}
