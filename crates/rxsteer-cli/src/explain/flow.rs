//! A flow as text: `10.0.0.1:40000-192.0.2.7:443/tcp`.

use crate::words::suggestion;
use rxsteer_user::core::FlowKey;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Protocols with ports.
const WITH_PORTS: [(&str, u8); 4] = [("tcp", 6), ("udp", 17), ("sctp", 132), ("dccp", 33)];

/// Protocols without ports that have a name here.
const WITHOUT_PORTS: [(&str, u8); 6] =
    [("icmp", 1), ("igmp", 2), ("gre", 47), ("esp", 50), ("ah", 51), ("icmpv6", 58)];

/// Protocols that belong to only one version of IP.
const OF_ONE_VERSION: [(&str, u8); 3] = [("icmp", 4), ("igmp", 4), ("icmpv6", 6)];

/// The flow as text.
pub(crate) fn shown(key: &FlowKey) -> String {
    let (Some(src), Some(dst)) = (key.src_addr(), key.dst_addr()) else {
        return "none".to_owned();
    };
    let protocol = protocol_name(key.protocol);
    if key.src_port == 0 && key.dst_port == 0 {
        return format!("{src} -> {dst}, {protocol}, no ports");
    }
    let (src, dst) = (SocketAddr::new(src, key.src_port), SocketAddr::new(dst, key.dst_port));
    format!("{src} -> {dst}, {protocol}")
}

/// The name of a protocol; its number if it has no name here.
pub(crate) fn protocol_name(protocol: u8) -> String {
    let names = WITH_PORTS.iter().chain(&WITHOUT_PORTS);
    let name = names.into_iter().find(|(_, number)| *number == protocol);
    name.map_or_else(|| protocol.to_string(), |(name, _)| (*name).to_owned())
}

/// A 5-tuple given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowArg(pub(crate) FlowKey);

impl FromStr for FlowArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || {
            format!(
                "'{text}' is not a flow; write SOURCE:PORT-DESTINATION:PORT/PROTOCOL, e.g. \
                 10.0.0.1:40000-192.0.2.7:443/tcp or '[2001:db8::1]:5000-[2001:db8::2]:53/udp'"
            )
        };
        let (ends, protocol) = text.rsplit_once('/').ok_or_else(form)?;
        let (src, dst) = ends.split_once('-').ok_or_else(form)?;
        let protocol = protocol.to_lowercase();
        let named = WITH_PORTS.iter().chain(&WITHOUT_PORTS).find(|(name, _)| *name == protocol);
        let protocol = match named {
            Some((_, number)) => *number,
            None => protocol.parse().map_err(|_| {
                let names = WITH_PORTS.iter().chain(&WITHOUT_PORTS).map(|(name, _)| *name);
                let hint = suggestion(&protocol, &names.collect::<Vec<_>>());
                format!("there is no protocol '{protocol}'{hint} (write others by number)")
            })?,
        };
        let has_ports = WITH_PORTS.iter().any(|(_, number)| *number == protocol);
        let (src, src_port) = end(src, has_ports)?;
        let (dst, dst_port) = end(dst, has_ports)?;
        let (src, dst, ip_version) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (padded(src.octets()), padded(dst.octets()), 4),
            (IpAddr::V6(src), IpAddr::V6(dst)) => (src.octets(), dst.octets(), 6),
            _ => return Err("one end is IPv4 and the other IPv6; no packet is both".to_owned()),
        };
        if let Some((name, _)) = OF_ONE_VERSION
            .iter()
            .find(|(name, version)| protocol_name(protocol) == *name && *version != ip_version)
        {
            return Err(format!("{name} is not a protocol of IPv{ip_version}"));
        }
        let key = FlowKey { src, dst, src_port, dst_port, protocol, ip_version, reserved: [0; 2] };
        Ok(FlowArg(key))
    }
}

fn padded(address: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&address);
    bytes
}

fn end(text: &str, has_ports: bool) -> Result<(IpAddr, u16), String> {
    if has_ports {
        let end: SocketAddr = text.parse().map_err(|_| {
            format!(
                "'{text}' is not an ADDRESS:PORT with a port up to 65535; write e.g. 10.0.0.1:443 or \
                     [2001:db8::1]:443 (names are not looked up)"
            )
        })?;
        return Ok((end.ip(), end.port()));
    }
    text.trim_matches(['[', ']']).parse().map(|address| (address, 0)).map_err(|_| {
        format!("'{text}' is not an address; for a protocol without ports, write the address alone")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read_as_they_are_shown() {
        for (text, shown) in [
            ("10.0.0.1:1-10.0.0.2:65535/tcp", "10.0.0.1:1 -> 10.0.0.2:65535, tcp"),
            ("[2001:db8::1]:5-[::2]:53/17", "[2001:db8::1]:5 -> [::2]:53, udp"),
            ("10.0.0.1-10.0.0.2/ICMP", "10.0.0.1 -> 10.0.0.2, icmp, no ports"),
            ("[fe80::1]-fe80::2/58", "fe80::1 -> fe80::2, icmpv6, no ports"),
            ("10.0.0.1-10.0.0.2/200", "10.0.0.1 -> 10.0.0.2, 200, no ports"),
        ] {
            assert_eq!(super::shown(&text.parse::<FlowArg>().unwrap().0), shown);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("10.0.0.1:1", "is not a flow"),
            ("10.0.0.1:1-10.0.0.2:2/tpc", "did you mean 'tcp'"),
            ("10.0.0.1-10.0.0.2:2/tcp", "ADDRESS:PORT"),
            ("10.0.0.1:1-10.0.0.2:2/1", "not an address"),
            ("10.0.0.1:1-[::1]:2/tcp", "IPv4 and the other IPv6"),
            ("10.0.0.1-10.0.0.2/icmpv6", "icmpv6 is not a protocol of IPv4"),
            ("::1-::2/1", "icmp is not a protocol of IPv6"),
        ] {
            let error = text.parse::<FlowArg>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
