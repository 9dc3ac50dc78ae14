//! An interface as the kernel lists it, and patterns for interface names.

use crate::attached::Attached;
use crate::error::HostError;
use serde::Serialize;
use std::path::PathBuf;

/// ARPHRD_ETHER: frames begin with an Ethernet header.
pub const ETHERNET: u16 = 1;
/// ARPHRD_LOOPBACK.
pub const LOOPBACK: u16 = 772;

/// One interface of this network namespace, as the kernel lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Its number.
    #[serde(rename = "ifindex")]
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Alternative names.
    pub alternative_names: Vec<String>,
    /// The link kind (`veth`, `vlan`, `bridge`, `tun`, …); a NIC has none.
    pub kind: Option<String>,
    /// The driver of its device; a virtual interface has none.
    pub driver: Option<String>,
    /// Whether it is a Wi-Fi interface.
    pub is_wifi: bool,
    /// Whether it is up.
    pub up: bool,
    /// ARPHRD_…: what its frames begin with.
    pub hardware_type: u16,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// Hardware address.
    #[serde(skip)]
    pub address: Vec<u8>,
    /// The interface that it is stacked on, or a veth's peer.
    pub lower: Option<u32>,
    /// Whether that interface is in another network namespace.
    pub lower_is_elsewhere: bool,
    /// The number of that other namespace in this one.
    #[serde(skip)]
    pub lower_namespace: Option<u32>,
    /// The bridge, bond or team that it is a port of.
    pub master: Option<u32>,
    /// The EtherType of a VLAN interface.
    pub vlan_protocol: Option<u16>,
    /// The most RX queues that it can have.
    pub max_rx_queues: Option<u32>,
    /// The most TX queues that it can have.
    pub max_tx_queues: Option<u32>,
    /// Bus and name of its device.
    #[serde(skip)]
    pub parent: Option<(String, String)>,
    /// The XDP program attached to it.
    #[serde(skip)]
    pub attached: Option<Attached>,
}

impl Link {
    /// Its device in sysfs. Buses, unlike `/sys/class/net`, are the same in every network namespace.
    pub(crate) fn device(&self) -> Option<PathBuf> {
        let (bus, name) = self.parent.as_ref()?;
        Some(["/sys/bus", bus, "devices", name].iter().collect())
    }

    /// Whether it has a device, and does not consist of software only.
    pub fn is_physical(&self) -> bool {
        self.parent.is_some() && self.kind.is_none() && self.hardware_type == ETHERNET
    }

    /// Whether frames may arrive with a TCP or UDP checksum that their sender left to a device (CHECKSUM_PARTIAL).
    /// Frames of software interfaces and paravirtual NICs may: they were never on a wire.
    pub fn may_leave_checksums(&self) -> bool {
        const PARAVIRTUAL: [&str; 5] =
            ["hv_netvsc", "vif", "virtio_net", "vmxnet3", "xen_netfront"];
        let is_paravirtual = |driver: &str| PARAVIRTUAL.contains(&driver);
        !self.is_physical() || self.driver.as_deref().is_none_or(is_paravirtual)
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

/// A name, or a pattern of names in the syntax of a shell: `veth*`, `eth[0-3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// `None` for a plain name, which may then contain any character.
    pattern: Option<glob::Pattern>,
}

impl Pattern {
    /// Parses a name or pattern.
    pub fn new(text: &str) -> Result<Pattern, HostError> {
        let pattern = text.contains(['*', '?', '[']).then(|| glob::Pattern::new(text)).transpose();
        let pattern = pattern
            .map_err(|error| HostError::BadPattern { text: text.to_owned(), why: error.msg })?;
        Ok(Pattern { text: text.to_owned(), pattern })
    }

    /// Whether it is a pattern, which may match no interface, several, or interfaces that appear later.
    pub fn is_open(&self) -> bool {
        self.pattern.is_some()
    }

    /// Whether it matches this interface.
    pub fn matches(&self, link: &Link) -> bool {
        let mut names = std::iter::once(&link.name).chain(&link.alternative_names);
        match &self.pattern {
            Some(pattern) => names.any(|name| pattern.matches(name)),
            None => names.any(|name| *name == self.text),
        }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Link {
        Link { name: name.to_owned(), ..Link::default() }
    }

    #[test]
    fn patterns_are_those_of_a_shell() {
        let matches = |text: &str, name: &str| Pattern::new(text).unwrap().matches(&named(name));
        assert!(matches("veth*", "veth12"));
        assert!(matches("eth[0-3]", "eth2"));
        assert!(matches("eth0", "eth0"));
        assert!(!matches("eth", "eth0"));
        assert!(!matches("veth*", "eth0"));
        assert!(!Pattern::new("eth0").unwrap().is_open());
        let error = Pattern::new("eth[").unwrap_err().to_string();
        assert!(error.contains("eth[") && error.contains("veth*"), "{error}");
    }
}
