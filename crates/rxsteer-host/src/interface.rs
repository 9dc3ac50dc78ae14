//! Facts about one interface.

use crate::attached::Attached;
use crate::cpus;
use crate::error::HostError;
use crate::holder::Holder;
use crate::link::Link;
use crate::listing::{find, links};
use crate::netlink::{ethtool, netdev};
use crate::queues::{self, SteeredQueue};
use rxsteer_core::CpuSet;
use serde::Serialize;
use std::collections::BTreeSet;

/// What is known about one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The interface as the kernel lists it.
    pub link: Link,
    /// The XDP program attached to it.
    pub attached: Option<Attached>,
    /// What its driver's XDP can do; `None` before Linux 6.3.
    pub xdp: Option<XdpFeatures>,
    /// Which offloads are on.
    pub offloads: Option<Offloads>,
    /// The other end of a veth.
    pub peer: Option<Peer>,
    /// RX queues in use.
    pub rx_queues: Option<u32>,
    /// RX queues on which the kernel's own RPS or RFS is active.
    pub steered_queues: Option<Vec<SteeredQueue>>,
    /// The NUMA node of its device.
    pub numa_node: Option<u32>,
    /// That node's CPUs.
    #[serde(serialize_with = "crate::shown::cpu_set")]
    pub node_cpus: Option<CpuSet>,
    /// The interface that it is stacked on, if that is in this namespace and is not a veth peer.
    #[serde(rename = "stands_on")]
    pub lower: Option<String>,
    /// The bridge, bond or team that it is a port of.
    pub port_of: Option<Master>,
    /// Its ports, if it is a bridge, bond or team.
    pub ports: Vec<String>,
    /// The interfaces stacked on it: VLANs, macvlans and similar ones.
    pub above: Vec<Link>,
}

/// The XDP features of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct XdpFeatures {
    /// It runs XDP programs.
    pub native: bool,
    /// It can redirect, also into a CPUMAP.
    pub redirect: bool,
    /// It supports frames of several buffers.
    pub frags: bool,
    /// It passes the NIC's hash to programs; unknown before Linux 6.8.
    pub rx_hash: bool,
}

impl XdpFeatures {
    /// Whether native mode can be used.
    pub fn redirects(&self) -> bool {
        self.native && self.redirect
    }
}

/// The offloads that matter here, and whether they are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offloads {
    /// Merging received segments.
    pub gro: bool,
    /// The NIC merges segments in a way that can be undone.
    pub gro_hw: bool,
    /// The NIC merges segments in a way that cannot be undone.
    pub lro: bool,
    /// The NIC removes 802.1Q tags from received frames.
    pub rx_vlan: bool,
    /// The same for 802.1ad tags.
    pub rx_vlan_stag: bool,
    /// Checksums are left to the device when sending.
    pub tx_checksum: bool,
    /// VLAN tags are left to the device when sending.
    pub tx_vlan: bool,
}

impl Offloads {
    fn read(index: u32) -> Option<Offloads> {
        ethtool::active_features(index).ok().map(|active| Self::of(&active))
    }

    /// From the names of the features that are on.
    fn of(active: &BTreeSet<String>) -> Offloads {
        let on = |name: &str| active.contains(name);
        Offloads {
            gro: on("rx-gro"),
            gro_hw: on("rx-gro-hw"),
            lro: on("rx-lro"),
            rx_vlan: on("rx-vlan-hw-parse"),
            rx_vlan_stag: on("rx-vlan-stag-hw-parse"),
            tx_checksum: ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"]
                .into_iter()
                .any(on),
            tx_vlan: on("tx-vlan-hw-insert"),
        }
    }
}

/// The interface that another one is a port of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Master {
    /// Bridge, bond or team; empty if the kernel does not report it.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The other end of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Peer {
    /// In this network namespace.
    Here {
        /// Its name.
        name: String,
        /// Which of its offloads are on.
        offloads: Option<Offloads>,
    },
    /// In another network namespace, where it cannot be examined.
    Elsewhere,
}

impl Peer {
    /// Its name, or a word for it if the name is unknown.
    pub fn name(&self) -> &str {
        match self {
            Self::Here { name, .. } => name,
            Self::Elsewhere => "PEER",
        }
    }
}

impl Interface {
    /// Examines the interface `name` of this network namespace.
    pub fn read(name: &str) -> Result<Interface, HostError> {
        let links = links()?;
        let link = find(&links, name)?;
        Ok(Self::of_link(link, &links))
    }

    /// Examines `link`, one of [`links`].
    pub fn of_link(link: &Link, links: &[Link]) -> Interface {
        let by_index = |index: u32| links.iter().find(|other| other.index == index);
        let dir = queues::dir_of(link);
        let numa_node = cpus::node_of(link);
        let mut attached = link.attached.clone();
        if let Some(attached) = &mut attached {
            attached.holder = attached.id.and_then(Holder::of);
        }
        let below = link.lower.filter(|_| !link.lower_is_elsewhere).and_then(by_index);
        Interface {
            attached,
            xdp: xdp(link.index),
            offloads: Offloads::read(link.index),
            peer: link.is("veth").then(|| peer(below)),
            rx_queues: dir.as_deref().map(|dir| queues::received_on(dir).len() as u32),
            steered_queues: dir.as_deref().map(queues::steered),
            numa_node,
            node_cpus: numa_node.and_then(cpus::of_node),
            lower: below
                .filter(|below| !link.is("veth") && below.index != link.index)
                .map(|below| below.name.clone()),
            port_of: link.master.and_then(by_index).map(|master| Master {
                kind: master.kind.clone().unwrap_or_default(),
                name: master.name.clone(),
            }),
            ports: links
                .iter()
                .filter(|port| port.master == Some(link.index))
                .map(|port| port.name.clone())
                .collect(),
            above: links.iter().filter(|above| is_stacked_on(above, link)).cloned().collect(),
            link: link.clone(),
        }
    }
}

fn is_stacked_on(above: &Link, link: &Link) -> bool {
    above.lower == Some(link.index)
        && above.index != link.index
        && !above.lower_is_elsewhere
        // For a veth, this is the peer.
        && !above.is("veth")
}

fn xdp(index: u32) -> Option<XdpFeatures> {
    let (features, metadata) = netdev::xdp_features(index).ok()?;
    // enum netdev_xdp_act and netdev_xdp_rx_metadata in include/uapi/linux/netdev.h
    Some(XdpFeatures {
        native: features & 1 != 0,
        redirect: features & 2 != 0,
        frags: features & 32 != 0,
        rx_hash: metadata & 2 != 0,
    })
}

fn peer(below: Option<&Link>) -> Peer {
    match below {
        Some(peer) => Peer::Here { name: peer.name.clone(), offloads: Offloads::read(peer.index) },
        None => Peer::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_by_their_names() {
        let on = ["rx-gro", "tx-checksum-ipv6", "rx-vlan-stag-hw-parse"].map(str::to_owned);
        let offloads = Offloads::of(&on.into());
        let expected =
            Offloads { gro: true, tx_checksum: true, rx_vlan_stag: true, ..Offloads::default() };
        assert_eq!(offloads, expected);
    }

    #[test]
    fn loopback_can_be_read() {
        let lo = Interface::read("lo").unwrap();
        assert_eq!(lo.link.name, "lo");
        assert_eq!(lo.peer, None);
        assert!(Interface::read("nosuch0").is_err());
    }
}
