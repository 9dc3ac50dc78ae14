//! Rules before the policy: arbitrary text as a list of rules, and packets near them. The compiled rules and their tables
//! must find the rule that a walk finds, and a rule's text must give the same rule again.
//!
//! Lines up to the first zero byte are rules; of the rest, each ten bytes are a packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rxsteer_core::matching::{
    Facts, InterfaceName, MAX_RULES, Matcher, PacketRule, Term, TunnelNumber,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the terms of the rules name, so that packets meet them.
struct Named {
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
    vlans: Vec<u16>,
    tunnels: Vec<(TunnelNumber, u32)>,
    interfaces: Vec<InterfaceName>,
}

impl Named {
    fn of(rules: &[PacketRule]) -> Named {
        let mut named = Named {
            addresses: vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            ports: vec![0, u16::MAX],
            vlans: vec![0],
            tunnels: vec![(TunnelNumber::Spi, 0), (TunnelNumber::Teid, 1), (TunnelNumber::Vni, 2)],
            interfaces: InterfaceName::new("other").into_iter().collect(),
        };
        for term in rules.iter().flat_map(|rule| &rule.terms) {
            match term {
                Term::Net(_, prefix) => named.addresses.push(prefix.address),
                Term::Port(_, ranges) => {
                    for (low, high) in ranges {
                        named.ports.extend([
                            *low,
                            *high,
                            low.wrapping_sub(1),
                            high.wrapping_add(1),
                        ]);
                    }
                }
                Term::Vlan(vlan) => named.vlans.push(*vlan),
                Term::Tunnel(kind, number) => named.tunnels.push((*kind, *number)),
                Term::Interface(name) => named.interfaces.push(*name),
                Term::Version(_) | Term::Protocol(_) | Term::Dscp(_) => {}
            }
        }
        named
    }

    fn packet(&self, bytes: &[u8; 10]) -> Facts {
        let [source, destination, change, protocol, from, to, vlan, dscp, tunnel, interface] =
            bytes.map(usize::from);
        // A bit further from the first address of a network: inside it, or just outside.
        let near = |index: usize, change: usize| match self.addresses[index % self.addresses.len()]
        {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() ^ (1 << (change % 32) & !1)).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ (1 << (change % 128) & !1)).into()),
        };
        let (source, other) = (near(source, change), near(destination, change / 2));
        // Both ends are of one version.
        let destination = if source.is_ipv4() == other.is_ipv4() { other } else { source };
        let protocol = protocol as u8;
        let ports = [from, to].map(|index| self.ports[index % self.ports.len()]);
        // As in a packet: ports only above TCP and the like; the numbers of tunnels above UDP and ESP.
        let has_ports = matches!(protocol, 6 | 17 | 132) && change % 8 != 0;
        let number = self.tunnels[tunnel % self.tunnels.len()];
        let carries = if number.0 == TunnelNumber::Spi {
            matches!(protocol, 17 | 50)
        } else {
            protocol == 17
        };
        Facts {
            source,
            destination,
            protocol,
            ports: has_ports.then_some(ports),
            vlan: (vlan % 4 != 0).then(|| self.vlans[vlan / 4 % self.vlans.len()] & 0xfff),
            dscp: dscp as u8 & 63,
            tunnel: (carries && tunnel >= 64).then_some(number),
            interface: (interface >= 64)
                .then(|| self.interfaces[interface % self.interfaces.len()]),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let Ok(text) = std::str::from_utf8(&input[..end]) else { return };
    let rules = text.lines().filter_map(|line| line.parse::<PacketRule>().ok());
    let rules: Vec<PacketRule> = rules.take(MAX_RULES).collect();
    for rule in &rules {
        let again = rule.to_string().parse();
        assert_eq!(again.as_ref(), Ok(rule), "{rule}");
    }
    if rules.is_empty() {
        return;
    }
    let (matcher, named) = (Matcher::new(&rules, 1), Named::of(&rules));
    let tables = matcher.tables();
    let (packets, _) = input.get(end + 1..).unwrap_or_default().as_chunks::<10>();
    for facts in packets.iter().map(|bytes| named.packet(bytes)) {
        let walked = rules.iter().position(|rule| rule.matches(&facts));
        assert_eq!(matcher.find(&facts).map(usize::from), walked, "{facts:?}");
        assert_eq!(tables.first(&facts).map(usize::from), walked, "tables: {facts:?}");
    }
});
