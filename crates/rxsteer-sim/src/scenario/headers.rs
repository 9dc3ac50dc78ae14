//! The header fields of a traffic's packets: what rules before the policy match.

use rxsteer_core::PacketRule;
use rxsteer_core::matching::{Action, Facts, InterfaceName, Prefix, Side, Term, TunnelNumber};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
/// Protocols whose headers begin with two ports.
const WITH_PORTS: [u8; 4] = [TCP, UDP, 132, 33];
/// Where connections go by default, and the first port that they come from.
const TO_PORT: u16 = 5001;
const FROM_PORT: u16 = 1024;

/// Header fields in the words of a rule's MATCH: `tcp src 10.1.0.0/16 dst-port 443`. Fields that are not named are: TCP for
/// connections and UDP for others, an address of 10.0.0.0/8 and a port of its own for each flow, one address and port that all go to.
/// Of a network or a range of ports each flow has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<Term>);

impl FromStr for Headers {
    type Err = String;

    fn from_str(text: &str) -> Result<Headers, String> {
        if text.contains("->") || text.contains('→') {
            return Err("expected what a rule matches, without an action, e.g. 'tcp dst-port 443'"
                .to_owned());
        }
        let rule = format!("{text} -> pass").parse::<PacketRule>();
        let rule = rule.map_err(|error| error.to_string())?;
        if rule.terms.iter().any(|term| term.interface().is_some()) {
            return Err("the interface is the traffic's card ('nic'); leave it out".to_owned());
        }
        Ok(Headers(rule.terms))
    }
}

impl Headers {
    /// Whether these are the headers of packets inside tunnels.
    pub(super) fn are_inner(&self) -> bool {
        PacketRule { terms: self.0.clone(), action: Action::Pass }.needs_inner()
    }

    /// The fields of the packets of flow `number`, which come through `interface`.
    #[must_use]
    pub fn facts(
        &self,
        number: u32,
        is_connection: bool,
        interface: Option<InterfaceName>,
    ) -> Facts {
        let network = |side: Side| {
            self.0.iter().find_map(|term| match term {
                Term::Net(of, prefix) if *of == side => Some(*prefix),
                _ => None,
            })
        };
        let ports = |side: Side| {
            self.0.iter().find_map(|term| match term {
                Term::Port(of, ranges) if *of == side => Some(nth_port(ranges, number)),
                _ => None,
            })
        };
        let (from, to) =
            (network(Side::Source).or(network(Side::Either)), network(Side::Destination));
        let is_v6 = self.0.contains(&Term::Version(6))
            || [from, to].into_iter().flatten().any(|prefix| prefix.address.is_ipv6());
        let default = |v4: [u8; 4], v6: u16| match is_v6 {
            true => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, v6, 0, 0, 0, 0, 0)),
            false => IpAddr::V4(Ipv4Addr::from(v4)),
        };
        let all = |v4, v6, length| Prefix { address: default(v4, v6), length };
        let from = from.unwrap_or_else(|| all([10, 0, 0, 0], 1, if is_v6 { 64 } else { 8 }));
        let to = to.unwrap_or_else(|| all([192, 0, 2, 1], 2, if is_v6 { 128 } else { 32 }));
        let tunnel = self.0.iter().find_map(|term| match term {
            Term::Tunnel(kind, number) => Some((*kind, *number)),
            _ => None,
        });
        let default_protocol = match tunnel {
            Some((TunnelNumber::Spi, _)) => ESP,
            Some(_) => UDP,
            None if is_connection => TCP,
            None => UDP,
        };
        let protocol = self.0.iter().find_map(|term| match term {
            Term::Protocol(protocol) => Some(*protocol),
            _ => None,
        });
        let protocol = protocol.unwrap_or(default_protocol);
        let own_port = FROM_PORT + (number % u32::from(u16::MAX - FROM_PORT)) as u16;
        let source_port = ports(Side::Source).unwrap_or(own_port);
        let to_port = ports(Side::Destination).or(ports(Side::Either)).unwrap_or(TO_PORT);
        let number_of = |wanted: fn(&Term) -> Option<u16>| self.0.iter().find_map(wanted);
        Facts {
            source: nth_address(&from, number),
            destination: nth_address(&to, number),
            protocol,
            ports: WITH_PORTS.contains(&protocol).then_some([source_port, to_port]),
            vlan: number_of(|term| match term {
                Term::Vlan(vlan) => Some(*vlan),
                _ => None,
            }),
            dscp: number_of(|term| match term {
                Term::Dscp(dscp) => Some(u16::from(*dscp)),
                _ => None,
            })
            .unwrap_or(0) as u8,
            tunnel,
            interface,
        }
    }
}

/// The fields of packets in the other direction, which come through `interface`.
pub(crate) fn turned(facts: &Facts, interface: Option<InterfaceName>) -> Facts {
    Facts {
        source: facts.destination,
        destination: facts.source,
        ports: facts.ports.map(|[source, destination]| [destination, source]),
        interface,
        ..*facts
    }
}

/// One of the addresses of a network. The first one of a network with several is left out.
fn nth_address(prefix: &Prefix, number: u32) -> IpAddr {
    // A flow's number has 32 bits.
    let host = |bits: u32| match bits {
        0 => 0,
        32.. => number.wrapping_add(1),
        _ => number.wrapping_add(1) & ((1 << bits) - 1),
    };
    match prefix.address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() | host(32 - u32::from(prefix.length))).into()),
        IpAddr::V6(v6) => {
            IpAddr::V6((v6.to_bits() | u128::from(host(128 - u32::from(prefix.length)))).into())
        }
    }
}

/// One of the ports in some ranges, ends included.
fn nth_port(ranges: &[(u16, u16)], number: u32) -> u16 {
    let count = |(low, high): &(u16, u16)| u32::from(high - low) + 1;
    let mut left = number % ranges.iter().map(count).sum::<u32>().max(1);
    for range in ranges {
        if left < count(range) {
            return range.0 + left as u16;
        }
        left -= count(range);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str, number: u32) -> Facts {
        text.parse::<Headers>().unwrap().facts(number, true, None)
    }

    /// Packets of each flow match what their headers are described by.
    #[test]
    fn packets_match_their_own_description() {
        for text in [
            "tcp",
            "udp src 10.1.0.0/16 dst-port 80,8000-8080",
            "src 10.1.2.3 dst 192.168.0.0/30 vlan 7 dscp 46",
            "net 172.16.0.0/12 port 53",
            "ip6 src-port 1000-1001",
            "src 2001:db8:7::/48 dst 2001:db8::1",
            "esp spi 77",
            "teid 5",
            "icmp",
        ] {
            let headers: Headers = text.parse().unwrap();
            for number in [0, 1, 77, 70_000, u32::MAX] {
                let facts = headers.facts(number, false, None);
                assert!(headers.0.iter().all(|term| term.holds(&facts)), "{text}: {facts:?}");
            }
        }
    }

    #[test]
    fn flows_differ_and_directions_are_turned() {
        let [first, second] = [facts("any", 0), facts("any", 1)];
        assert!(first.source != second.source && first.ports != second.ports);
        assert_eq!((first.destination, first.protocol), (second.destination, TCP));
        assert_eq!(facts("dst-port 80,443", 1).ports, Some([1025, 443]));
        let back = turned(&first, None);
        assert_eq!((back.source, back.ports), (first.destination, Some([TO_PORT, FROM_PORT])));
        assert_eq!(facts("icmp", 0).ports, None);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("tcp -> 1", "without an action"),
            ("tpc", "did you mean 'tcp'"),
            ("interface eth0", "leave it out"),
            ("icmp dst-port 22", "no packet can match"),
        ] {
            let why = text.parse::<Headers>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
