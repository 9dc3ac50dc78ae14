//! A flow as people write it: `10.0.0.1:40000-192.0.2.7:443/tcp`.

use crate::words::suggestion;
use rxsteer_user::core::FlowKey;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Protocols that have names here, all with ports.
const WITH_PORTS: [(&str, u8); 4] = [("tcp", 6), ("udp", 17), ("sctp", 132), ("dccp", 33)];

/// A 5-tuple given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowArg(pub(crate) FlowKey);

impl FromStr for FlowArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || {
            format!(
                "'{text}' is no flow; write SOURCE:PORT-DESTINATION:PORT/PROTOCOL, e.g. \
                 10.0.0.1:40000-192.0.2.7:443/tcp or '[2001:db8::1]:5000-[2001:db8::2]:53/udp'"
            )
        };
        let (ends, protocol) = text.rsplit_once('/').ok_or_else(form)?;
        let (src, dst) = ends.split_once('-').ok_or_else(form)?;
        let named = WITH_PORTS.iter().find(|(name, _)| *name == protocol);
        let protocol = match named {
            Some((_, number)) => *number,
            None => protocol.parse().map_err(|_| {
                let hint = suggestion(protocol, &WITH_PORTS.map(|(name, _)| name));
                format!("there is no protocol '{protocol}'{hint}; others go by their number")
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
        let end: SocketAddr = text
            .parse()
            .map_err(|_| format!("'{text}' is no ADDRESS:PORT; write e.g. 10.0.0.1:443"))?;
        return Ok((end.ip(), end.port()));
    }
    text.trim_matches(['[', ']'])
        .parse()
        .map(|address| (address, 0))
        .map_err(|_| format!("'{text}' is no address; protocols without ports have none here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read_as_they_are_shown() {
        for (text, shown) in [
            ("10.0.0.1:1-10.0.0.2:65535/tcp", "10.0.0.1:1 -> 10.0.0.2:65535 (protocol 6)"),
            ("[2001:db8::1]:5-[::2]:53/17", "[2001:db8::1]:5 -> [::2]:53 (protocol 17)"),
            ("10.0.0.1-10.0.0.2/1", "10.0.0.1:0 -> 10.0.0.2:0 (protocol 1)"),
            ("[fe80::1]-fe80::2/58", "[fe80::1]:0 -> [fe80::2]:0 (protocol 58)"),
        ] {
            assert_eq!(text.parse::<FlowArg>().unwrap().0.to_string(), shown);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("10.0.0.1:1", "is no flow"),
            ("10.0.0.1:1-10.0.0.2:2/tpc", "did you mean 'tcp'"),
            ("10.0.0.1-10.0.0.2:2/tcp", "ADDRESS:PORT"),
            ("10.0.0.1:1-10.0.0.2:2/1", "no address"),
            ("10.0.0.1:1-[::1]:2/tcp", "IPv4 and the other IPv6"),
        ] {
            let error = text.parse::<FlowArg>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
