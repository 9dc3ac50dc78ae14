//! Rules that are applied before the policy. A rule sends packets to CPUs by their headers; the policy decides about
//! packets that no rule matches.
//!
//! ```text
//!   'tcp dst-port 22 → local'   ─► PacketRule ─► Matcher: for each header field a table: value → set of rules (256 bits)
//!   'src 10.0.0.0/8 → 2-3'                          │
//!   packet ─► Facts (its header fields) ────────────┴─► the sets of its fields, ANDed ─► the first rule left
//! ```
//!
//! Rules are ordered, and the first one that matches applies. The method is that of Lakshman and Stiliadis, "High-speed
//! policy-based packet forwarding using efficient multi-dimensional range matching" (SIGCOMM 1998): a bit vector per
//! field value.
//!
//! Both directions of a connection, or the fragments of a datagram, may match different rules although they have one flow
//! hash. So with rules every policy remembers flows, and the order guard ([`crate::order`]) applies to all packets.

mod action;
mod matcher;
mod tables;
mod targets;
mod text;

pub use action::RulePolicy;
pub use matcher::Matcher;
pub use tables::{End, Ends, Interfaces, NO_VLAN, Tables, Tunnels};
pub(crate) use targets::Targets;
pub use text::RuleError;

use crate::cpu::{CpuId, CpuSet};
use crate::flow::FlowKey;
use alloc::vec::Vec;
use core::net::IpAddr;

/// The largest number of rules.
pub const MAX_RULES: usize = 256;

/// A rule: packets that match all of `terms` get `action`. Its text form is `TERM … → ACTION`; `->` is the same as `→`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRule {
    /// The conditions on a packet. A rule without terms matches every IP packet.
    pub terms: Vec<Term>,
    /// What happens to a matching packet.
    pub action: Action,
}

/// Where a packet that a rule matches goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To one of these CPUs. The flow hash picks it, as under `rps`.
    Cpus(CpuSet),
    /// To the CPU that receives it.
    Local,
    /// To the CPU that receives it. In the kernel path the packet also skips all other steering work; here this equals
    /// `local`.
    Pass,
    /// To the CPU that this policy chooses.
    Policy(RulePolicy),
}

/// A condition on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// IP version 4 or 6.
    Version(u8),
    /// The protocol above IP.
    Protocol(u8),
    /// An address in this network.
    Net(Side, Prefix),
    /// A port in one of these ranges, ends included. Fragments have no ports.
    Port(Side, Vec<(u16, u16)>),
    /// The id of the outermost VLAN tag.
    Vlan(u16),
    /// The differentiated services code point.
    Dscp(u8),
    /// The number of the outermost tunnel.
    Tunnel(TunnelNumber, u32),
    /// The name of the interface that the packet arrived on.
    Interface(InterfaceName),
}

/// The longest name of an interface, in bytes: the kernel's `IFNAMSIZ` less the final zero.
const MAX_INTERFACE_NAME: usize = 15;

/// The name of a network interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceName {
    /// The name, followed by zeros.
    bytes: [u8; MAX_INTERFACE_NAME],
}

impl InterfaceName {
    /// The name as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(MAX_INTERFACE_NAME);
        // The bytes come from a text and were not cut.
        core::str::from_utf8(&self.bytes[..end]).unwrap_or_default()
    }

    /// `text` as a name; `None` if no interface can have it.
    #[must_use]
    pub fn new(text: &str) -> Option<InterfaceName> {
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
        if text.is_empty() || text.len() > MAX_INTERFACE_NAME || text.contains(is_odd) {
            return None;
        }
        let mut bytes = [0; MAX_INTERFACE_NAME];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(InterfaceName { bytes })
    }
}

impl core::fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
    /// Either of them.
    Either,
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The first address.
    pub address: IpAddr,
    /// The number of leading bits that all its addresses share.
    pub length: u8,
}

/// The kinds of tunnel numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelNumber {
    /// ESP's security parameters index.
    Spi,
    /// GTP-U's tunnel endpoint identifier.
    Teid,
    /// The network identifier of VXLAN and Geneve.
    Vni,
}

/// The header fields of an IP packet that rules examine.
///
/// They belong to the packet that the flow hash is computed from: the inner one, if the dissector looks into tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol above IP.
    pub protocol: u8,
    /// Source and destination port; `None` for fragments, and for protocols without ports.
    pub ports: Option<[u16; 2]>,
    /// The id of the outermost VLAN tag.
    pub vlan: Option<u16>,
    /// The differentiated services code point.
    pub dscp: u8,
    /// The number of the outermost tunnel.
    pub tunnel: Option<(TunnelNumber, u32)>,
    /// The interface that the packet arrived on.
    pub interface: Option<InterfaceName>,
}

impl Facts {
    /// The facts that a flow's key gives: not VLAN and interface, and no code point or tunnel. `None` for a key without
    /// addresses.
    #[must_use]
    pub fn of_flow(key: &FlowKey) -> Option<Facts> {
        let has_ports = key.src_port != 0 || key.dst_port != 0;
        Some(Facts {
            source: key.src_addr()?,
            destination: key.dst_addr()?,
            protocol: key.protocol,
            ports: has_ports.then_some([key.src_port, key.dst_port]),
            vlan: None,
            dscp: 0,
            tunnel: None,
            interface: None,
        })
    }
}

impl Prefix {
    /// Whether the network contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let shift = u32::from(self.length);
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(32 - shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(128 - shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether the network contains all addresses of `other`.
    fn covers(&self, other: &Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }
}

impl Action {
    /// The CPUs that the action names.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + Clone + '_ {
        let cpus = match self {
            Action::Cpus(cpus) => cpus.as_slice(),
            Action::Local | Action::Pass | Action::Policy(_) => &[],
        };
        cpus.iter().copied()
    }

    /// The policy that decides about packets of the rule.
    #[must_use]
    pub fn policy(&self) -> Option<RulePolicy> {
        match self {
            Action::Policy(policy) => Some(*policy),
            Action::Cpus(_) | Action::Local | Action::Pass => None,
        }
    }
}

impl Term {
    /// Whether a packet meets the condition.
    #[must_use]
    pub fn holds(&self, facts: &Facts) -> bool {
        match self {
            Term::Version(version) => facts.source.is_ipv4() == (*version == 4),
            Term::Protocol(protocol) => facts.protocol == *protocol,
            Term::Net(side, prefix) => {
                let ends = [facts.source, facts.destination];
                side.of(ends).any(|address| prefix.contains(address))
            }
            Term::Port(side, ranges) => facts.ports.is_some_and(|ports| {
                side.of(ports)
                    .any(|port| ranges.iter().any(|(low, high)| (*low..=*high).contains(&port)))
            }),
            Term::Vlan(vlan) => facts.vlan == Some(*vlan),
            Term::Dscp(dscp) => facts.dscp == *dscp,
            Term::Tunnel(kind, number) => facts.tunnel == Some((*kind, *number)),
            Term::Interface(name) => facts.interface == Some(*name),
        }
    }

    /// The interface that it names.
    #[must_use]
    pub fn interface(&self) -> Option<InterfaceName> {
        match self {
            Term::Interface(name) => Some(*name),
            _ => None,
        }
    }

    /// Whether every packet that meets `other` also meets this condition.
    fn covers(&self, other: &Term) -> bool {
        let sides = |own: &Side, other: &Side| own == other || *own == Side::Either;
        match (self, other) {
            (Term::Net(side, own), Term::Net(of, other)) => sides(side, of) && own.covers(other),
            (Term::Port(side, own), Term::Port(of, other)) => {
                let is_in = |(low, high): &(u16, u16)| {
                    own.iter().any(|(from, to)| from <= low && high <= to)
                };
                sides(side, of) && other.iter().all(is_in)
            }
            (Term::Version(version), Term::Net(_, prefix)) => {
                prefix.address.is_ipv4() == (*version == 4)
            }
            _ => self == other,
        }
    }
}

impl Term {
    /// Whether no packet can meet both this condition and `other`, as far as these two terms show it.
    fn excludes(&self, other: &Term) -> bool {
        let same = |own: &Side, other: &Side| own == other && *own != Side::Either;
        match (self, other) {
            (Term::Net(own, net), Term::Net(side, other)) => {
                let is_apart = !net.covers(other) && !other.covers(net);
                net.address.is_ipv4() != other.address.is_ipv4() || same(own, side) && is_apart
            }
            (Term::Port(own, ports), Term::Port(side, others)) => {
                let meet = |(low, high): &(u16, u16)| {
                    others.iter().any(|(from, to)| low <= to && from <= high)
                };
                same(own, side) && !ports.iter().any(meet)
            }
            (Term::Version(version), Term::Net(_, net))
            | (Term::Net(_, net), Term::Version(version)) => {
                net.address.is_ipv4() != (*version == 4)
            }
            (Term::Protocol(protocol), Term::Port(..))
            | (Term::Port(..), Term::Protocol(protocol)) => !text::WITH_PORTS.contains(protocol),
            (Term::Version(_), Term::Version(_))
            | (Term::Protocol(_), Term::Protocol(_))
            | (Term::Vlan(_), Term::Vlan(_))
            | (Term::Dscp(_), Term::Dscp(_))
            | (Term::Tunnel(..), Term::Tunnel(..))
            | (Term::Interface(_), Term::Interface(_)) => self != other,
            _ => false,
        }
    }
}

impl Side {
    /// Of source and destination, the ends that it means.
    fn of<T>(self, [source, destination]: [T; 2]) -> impl Iterator<Item = T> {
        let source = (self != Side::Destination).then_some(source);
        let destination = (self != Side::Source).then_some(destination);
        source.into_iter().chain(destination)
    }
}

impl PacketRule {
    /// Whether a packet matches. [`Matcher::find`] does the same for many rules at once.
    #[must_use]
    pub fn matches(&self, facts: &Facts) -> bool {
        self.terms.iter().all(|term| term.holds(facts))
    }

    /// Whether every packet that matches `other` also matches this rule, as far as each term alone shows it.
    #[must_use]
    pub fn covers(&self, other: &PacketRule) -> bool {
        self.terms.iter().all(|term| other.terms.iter().any(|of| term.covers(of)))
    }

    /// The CPUs that the actions of rules name.
    pub fn cpus_of(rules: &[PacketRule]) -> impl Iterator<Item = CpuId> + Clone + '_ {
        rules.iter().flat_map(|rule| rule.action.cpus())
    }

    /// Whether a packet may match both rules, as far as two terms at a time show it.
    #[must_use]
    pub fn overlaps(&self, other: &PacketRule) -> bool {
        !self.terms.iter().any(|term| other.terms.iter().any(|of| term.excludes(of)))
    }

    /// For each rule that an earlier one partly hides, its index and that of the first such rule: packets may match both,
    /// and the earlier rule sends them elsewhere. Rules that can never match are not included.
    #[must_use]
    pub fn partly_hidden(rules: &[PacketRule]) -> Vec<(usize, usize)> {
        let hides = |earlier: &PacketRule, rule: &PacketRule| {
            earlier.action != rule.action && earlier.overlaps(rule)
        };
        let first = |index: usize| {
            let rule = &rules[index];
            let never = rules[..index].iter().any(|earlier| earlier.covers(rule));
            (0..index).find(|earlier| !never && hides(&rules[*earlier], rule))
        };
        (0..rules.len()).filter_map(|index| Some((index, first(index)?))).collect()
    }

    /// Whether no packet matches this rule by its outer headers. A TEID or a VNI is in UDP (GTP-U, VXLAN, Geneve), so any
    /// other protocol in the rule can only be that of the inner packet.
    #[must_use]
    pub fn needs_inner(&self) -> bool {
        const UDP: u8 = 17;
        let is_in_udp =
            |term: &Term| matches!(term, Term::Tunnel(TunnelNumber::Teid | TunnelNumber::Vni, _));
        let is_other = |term: &Term| matches!(term, Term::Protocol(protocol) if *protocol != UDP);
        self.terms.iter().any(is_in_udp) && self.terms.iter().any(is_other)
    }

    /// For each rule that can never match, its index and that of an earlier one that matches all its packets.
    #[must_use]
    pub fn never_matching(rules: &[PacketRule]) -> Vec<(usize, usize)> {
        let first = |index: usize| (0..index).find(|earlier| rules[*earlier].covers(&rules[index]));
        (0..rules.len()).filter_map(|index| Some((index, first(index)?))).collect()
    }
}
