//! The text of a rule.

use super::{InterfaceName, PacketRule, Prefix, Side, Term, TunnelNumber};
use crate::cpu::CpuSetError;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// Protocols with a name.
const PROTOCOLS: [(&str, u8); 8] = [
    ("tcp", 6),
    ("udp", 17),
    ("sctp", 132),
    ("dccp", 33),
    ("icmp", 1),
    ("icmp6", 58),
    ("esp", 50),
    ("gre", 47),
];

/// Protocols whose headers begin with two ports.
pub(super) const WITH_PORTS: [u8; 4] = [6, 17, 132, 33];

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// There is no arrow, or there are several.
    Arrow,
    /// A word is unknown; holds it, its position (words counted from 1), and the nearest known word.
    Unknown(String, usize, Option<&'static str>),
    /// A word lacks its value; holds the word and its valid values.
    NoValue(&'static str, &'static str),
    /// A value is not valid; holds the word, the value, and the valid values.
    Value(&'static str, String, String),
    /// A word occurs twice.
    Twice(&'static str),
    /// Two words exclude each other; holds why.
    Impossible(String),
    /// The action is not valid; holds it.
    Action(String),
    /// The action begins like a list of CPUs, but is not one; holds it and the reason.
    Cpus(String, CpuSetError),
    /// A rule can't name this policy; holds it and the reason.
    Policy(String, String),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrow => {
                f.write_str("a rule is MATCH -> ACTION, e.g. 'tcp dst-port 22 -> local'")
            }
            Self::Unknown(word, place, nearest) => {
                write!(f, "word {place}, '{word}', is unknown")?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean '{nearest}'?"),
                    None => write!(f, "; there are {}", words().collect::<Vec<_>>().join(", ")),
                }
            }
            Self::NoValue(word, takes) => write!(f, "'{word}' requires {takes}"),
            Self::Value(word, value, takes) => write!(f, "'{word} {value}': expected {takes}"),
            Self::Twice(word) => write!(f, "'{word}' is given twice, but a packet has only one"),
            Self::Impossible(why) => write!(f, "no packet can match: {why}"),
            Self::Action(action) => {
                write!(
                    f,
                    "'{action}' is not an action; an action is CPUs like 2 or 0-1,4, local, pass, or a policy like \
                     'policy rfs'"
                )
            }
            Self::Cpus(action, why) => write!(f, "'{action}' is not an action: {why}"),
            Self::Policy(name, why) => {
                write!(f, "'{name}' can't be the policy of a rule: {why}")
            }
        }
    }
}

impl core::error::Error for RuleError {}

/// Words with a value, and the valid values.
const WITH_VALUE: [(&str, &str); 14] = [
    ("src", "an address or a network, e.g. 10.0.0.0/8"),
    ("dst", "an address or a network, e.g. 10.0.0.0/8"),
    ("net", "an address or a network, e.g. 10.0.0.0/8"),
    ("src-port", "ports, e.g. 80 or 80,8000-8080"),
    ("dst-port", "ports, e.g. 80 or 80,8000-8080"),
    ("port", "ports, e.g. 80 or 80,8000-8080"),
    ("protocol", "a number from 0 to 255"),
    ("vlan", "a number from 0 to 4094"),
    ("dscp", "a number from 0 to 63, cs0 to cs7, af11 to af43, or ef"),
    ("spi", "a number, e.g. 0x1000"),
    ("teid", "a number, e.g. 0x1000"),
    ("vni", "a number from 0 to 16777215"),
    ("interface", "the name of an interface, e.g. eth0"),
    ("any", "nothing"),
];

/// All words of a match.
fn words() -> impl Iterator<Item = &'static str> {
    let valued = WITH_VALUE.iter().map(|(word, _)| *word);
    PROTOCOLS.iter().map(|(name, _)| *name).chain(["ip", "ip6"]).chain(valued)
}

impl FromStr for PacketRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<PacketRule, RuleError> {
        let text = text.replace('→', "->");
        let mut sides = text.split("->");
        let (Some(terms), Some(action), None) = (sides.next(), sides.next(), sides.next()) else {
            return Err(RuleError::Arrow);
        };
        let terms = read_terms(terms)?;
        is_possible(&terms)?;
        Ok(PacketRule { terms, action: action.parse()? })
    }
}

fn read_terms(text: &str) -> Result<Vec<Term>, RuleError> {
    let mut terms: Vec<Term> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut words = (1..).zip(text.split_whitespace());
    let mut any = false;
    while let Some((place, word)) = words.next() {
        if word == "and" {
            continue;
        }
        if word == "any" {
            any = true;
            continue;
        }
        let (kind, term) = if let Some((_, number)) =
            PROTOCOLS.iter().find(|(name, _)| *name == word)
        {
            ("protocol", Term::Protocol(*number))
        } else if word == "ip" || word == "ip6" {
            ("ip", Term::Version(if word == "ip" { 4 } else { 6 }))
        } else if let Some((word, takes)) = WITH_VALUE.iter().find(|(known, _)| *known == word) {
            let (_, value) = words.next().ok_or(RuleError::NoValue(word, takes))?;
            let term = term(word, value).map_err(|why| {
                let takes = why.unwrap_or_else(|| (*takes).to_owned());
                RuleError::Value(word, value.to_owned(), takes)
            })?;
            // Only the outermost tunnel is matched, and it has one number.
            let kind = if matches!(term, Term::Tunnel(..)) { "tunnel number" } else { *word };
            (kind, term)
        } else {
            return Err(RuleError::Unknown(word.to_owned(), place, nearest(word)));
        };
        if seen.contains(&kind) {
            return Err(RuleError::Twice(kind));
        }
        seen.push(kind);
        terms.push(term);
    }
    match (any, terms.is_empty()) {
        (false, true) => Err(RuleError::Impossible(
            "the match is empty; write 'any' for every IP packet".to_owned(),
        )),
        (true, false) => Err(RuleError::Impossible(
            "'any' must stand alone; leave out 'any' or the other words".to_owned(),
        )),
        _ => Ok(terms),
    }
}

/// The known word that differs least, if it differs in at most two letters. Of several, one of the same length is
/// preferred.
fn nearest(word: &str) -> Option<&'static str> {
    let differs = |known: &str| (distance(word, known), known.len().abs_diff(word.len()));
    let near = words().map(|known| (differs(known), known)).min()?;
    let near = (near.0.0, near.1);
    (near.0 <= 2 && near.0 < word.len()).then_some(near.1)
}

/// The edit distance. Two exchanged letters count as one edit (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (mut before, mut row) = (Vec::new(), (0..=b.len()).collect::<Vec<usize>>());
    for i in 1..=a.len() {
        let mut next = Vec::from([i]);
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let least = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            let exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            next.push(if exchanged { least.min(before[j - 2] + 1) } else { least });
        }
        before = core::mem::replace(&mut row, next);
    }
    row[b.len()]
}

/// The term of a word with its value. An error may describe the valid values more precisely.
fn term(word: &str, value: &str) -> Result<Term, Option<String>> {
    let number = |most: u32| {
        let hex = value.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        hex.or_else(|| value.parse().ok()).filter(|number| *number <= most).ok_or(None)
    };
    Ok(match word {
        "src" => Term::Net(Side::Source, prefix(value)?),
        "dst" => Term::Net(Side::Destination, prefix(value)?),
        "net" => Term::Net(Side::Either, prefix(value)?),
        "src-port" => Term::Port(Side::Source, ports(value)?),
        "dst-port" => Term::Port(Side::Destination, ports(value)?),
        "port" => Term::Port(Side::Either, ports(value)?),
        "protocol" => Term::Protocol(number(255)? as u8),
        "vlan" => Term::Vlan(number(4094)? as u16),
        "dscp" => Term::Dscp(dscp(value).ok_or(None)?),
        "spi" => Term::Tunnel(TunnelNumber::Spi, number(u32::MAX)?),
        "interface" => Term::Interface(InterfaceName::new(value).ok_or(None)?),
        "teid" => Term::Tunnel(TunnelNumber::Teid, number(u32::MAX)?),
        _ => Term::Tunnel(TunnelNumber::Vni, number(0x00ff_ffff)?),
    })
}

fn prefix(text: &str) -> Result<Prefix, Option<String>> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| None)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        None => most,
        Some(length) => length.parse().ok().filter(|length| *length <= most).ok_or_else(|| {
            Some(format!("a prefix length of at most {most} bits for this IP version"))
        })?,
    };
    let first = first_address(address, length);
    if first != address {
        return Err(Some(format!(
            "a network without bits beyond its prefix length: {first}/{length}"
        )));
    }
    Ok(Prefix { address, length })
}

/// The first address of the network of this length that contains `address`.
fn first_address(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn ports(text: &str) -> Result<Vec<(u16, u16)>, Option<String>> {
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let too_high = || format!("ports up to 65535, not {text}");
        text.parse::<u16>().map_err(|_| is_number.then(too_high))
    };
    let range = |item: &str| {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        match (port(low)?, port(high)?) {
            (low, high) if low > high => {
                Err(Some(format!("ports in ascending order; write {high}-{low}")))
            }
            ports => Ok(ports),
        }
    };
    text.split(',').map(range).collect()
}

/// The names of RFC 2474, 2597 and 3246.
fn dscp(text: &str) -> Option<u8> {
    let digit = |text: &str, most: u8| text.parse().ok().filter(|digit| *digit <= most);
    if text == "ef" {
        return Some(46);
    }
    if let Some(class) = text.strip_prefix("cs") {
        return Some(8 * digit(class, 7)?);
    }
    if let Some(class) = text.strip_prefix("af").filter(|class| class.len() == 2) {
        let (class, drop) = (digit(&class[..1], 4)?, digit(&class[1..], 3)?);
        return (class > 0 && drop > 0).then_some(8 * class + 2 * drop);
    }
    digit(text, 63)
}

/// Refuses terms that no packet can match together.
fn is_possible(terms: &[Term]) -> Result<(), RuleError> {
    let mut versions: Vec<(bool, &str)> = Vec::new();
    let mut protocol = None;
    let (mut has_ports, mut number) = (false, None);
    for term in terms {
        match term {
            Term::Version(version) => versions.push((*version == 4, "ip or ip6")),
            Term::Net(_, prefix) => versions.push((prefix.address.is_ipv4(), "an address")),
            Term::Protocol(of) => protocol = Some(*of),
            Term::Port(..) => has_ports = true,
            Term::Tunnel(kind, _) => number = Some(*kind),
            Term::Vlan(_) | Term::Dscp(_) | Term::Interface(_) => {}
        }
    }
    let impossible = |why: &str| Err(RuleError::Impossible(why.to_owned()));
    if versions.iter().any(|(is_v4, _)| *is_v4 != versions[0].0) {
        return impossible("it would have to be both IPv4 and IPv6");
    }
    if has_ports && protocol.is_some_and(|protocol| !WITH_PORTS.contains(&protocol)) {
        return impossible("this protocol has no ports; only tcp, udp, sctp and dccp have ports");
    }
    match (number, protocol) {
        // With a TEID or a VNI, the protocol may be that of the inner packet.
        (Some(TunnelNumber::Spi), Some(protocol)) if ![50, 17].contains(&protocol) => {
            impossible("only esp and udp have an SPI")
        }
        _ => Ok(()),
    }
}

impl fmt::Display for PacketRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            f.write_str("any ")?;
        }
        for term in &self.terms {
            write!(f, "{term} ")?;
        }
        write!(f, "→ {}", self.action)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: &Side, words: [&'static str; 3]| words[*side as usize];
        match self {
            Term::Version(4) => f.write_str("ip"),
            Term::Version(_) => f.write_str("ip6"),
            Term::Protocol(number) => match PROTOCOLS.iter().find(|(_, of)| of == number) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "protocol {number}"),
            },
            Term::Net(of, Prefix { address, length }) => {
                let host = if address.is_ipv4() { 32 } else { 128 };
                write!(f, "{} {address}", side(of, ["src", "dst", "net"]))?;
                if *length == host { Ok(()) } else { write!(f, "/{length}") }
            }
            Term::Port(of, ranges) => {
                let range = |(low, high): &(u16, u16)| {
                    if low == high { low.to_string() } else { format!("{low}-{high}") }
                };
                let ranges: Vec<String> = ranges.iter().map(range).collect();
                write!(f, "{} {}", side(of, ["src-port", "dst-port", "port"]), ranges.join(","))
            }
            Term::Vlan(vlan) => write!(f, "vlan {vlan}"),
            Term::Dscp(dscp) => write!(f, "dscp {dscp}"),
            Term::Tunnel(TunnelNumber::Spi, number) => write!(f, "spi {number:#x}"),
            Term::Tunnel(TunnelNumber::Teid, number) => write!(f, "teid {number:#x}"),
            Term::Tunnel(TunnelNumber::Vni, number) => write!(f, "vni {number}"),
            Term::Interface(name) => write!(f, "interface {}", name.as_str()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rules_round_trip() {
        for (text, shown) in [
            ("tcp dst-port 22 -> local", "tcp dst-port 22 → local"),
            ("tcp dst-port 22 → local", "tcp dst-port 22 → local"),
            ("any->pass", "any → pass"),
            (
                "src 10.0.0.0/8 and udp port 53,5000-5010 → 0-1,4",
                "src 10.0.0.0/8 udp port 53,5000-5010 → 0-1,4",
            ),
            ("net 2001:db8::/32 -> cpus 2", "net 2001:db8::/32 → 2"),
            ("dst 192.0.2.1/32 → 1", "dst 192.0.2.1 → 1"),
            ("ip6 protocol 6 vlan 5 dscp af41 → 1", "ip6 tcp vlan 5 dscp 34 → 1"),
            ("protocol 89 dscp ef -> 1", "protocol 89 dscp 46 → 1"),
            ("esp spi 0x1000 → 1", "esp spi 0x1000 → 1"),
            ("udp teid 77 → 1", "udp teid 0x4d → 1"),
            ("vni 77 → 1", "vni 77 → 1"),
            ("tcp dst-port 22 vni 77 → 1", "tcp dst-port 22 vni 77 → 1"),
            ("src 0.0.0.0/0 → 1", "src 0.0.0.0/0 → 1"),
            ("tcp interface eth0.5 → 1", "tcp interface eth0.5 → 1"),
            ("udp -> policy rfs", "udp → policy rfs"),
            ("any -> policy  rfs+sparse", "any → policy rfs+sparse"),
            ("any -> policy sparse", "any → policy sparse"),
            ("any -> policy rps", "any → policy rps"),
            ("any -> policy none", "any → local"),
        ] {
            let rule: PacketRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), shown, "{text}");
            assert_eq!(shown.parse::<PacketRule>().unwrap(), rule, "{text}");
        }
    }

    #[test]
    fn impossible_rules_are_refused_with_the_reason() {
        for (text, part) in [
            ("tcp dst-port 22 local", "a rule is MATCH -> ACTION"),
            ("tcp -> 1 -> 2", "a rule is MATCH -> ACTION"),
            ("tcp dst-prot 22 → 1", "word 2, 'dst-prot', is unknown; did you mean 'dst-port'?"),
            ("tpc → 1", "word 1, 'tpc', is unknown; did you mean 'tcp'?"),
            (
                "udp → rfs",
                "'rfs' is not an action; an action is CPUs like 2 or 0-1,4, local, pass, or a policy like",
            ),
            ("udp → policy", "'policy' is not an action"),
            (
                "udp → policy rfx",
                "'rfx' can't be the policy of a rule: a rule can have none, rps, sparse",
            ),
            ("udp → policy bound:0=1", "it uses the RX queue; name the CPUs themselves"),
            ("udp → policy rfs+balance", "all flows share its buckets"),
            ("udp → policy sparse:loops=2", "in a rule it has no settings"),
            ("tcp 22 → 1", "word 2, '22', is unknown; there are tcp, udp"),
            ("tcp dst-port → 1", "'dst-port' requires ports, e.g. 80 or"),
            ("dst-port 70000 → 1", "expected ports up to 65535, not 70000"),
            (
                "dst-port 80,9-8 → 1",
                "'dst-port 80,9-8': expected ports in ascending order; write 8-9",
            ),
            ("dst-port http → 1", "'dst-port http': expected ports, e.g. 80"),
            ("tcp udp → 1", "'protocol' is given twice"),
            ("teid 9 vni 5 → 1", "'tunnel number' is given twice"),
            ("src 10.0.0.0/8 src 11.0.0.0/8 → 1", "'src' is given twice"),
            ("icmp port 5 → 1", "this protocol has no ports"),
            (
                "src 10.0.0.0/33 → 1",
                "'src 10.0.0.0/33': expected a prefix length of at most 32 bits",
            ),
            ("src 10.0.0.1/8 → 1", "without bits beyond its prefix length: 10.0.0.0/8"),
            ("src 10.0.0.0/8 dst 2001:db8::1 → 1", "it would have to be both IPv4 and IPv6"),
            ("ip6 src 10.0.0.0/8 → 1", "it would have to be both IPv4 and IPv6"),
            ("tcp spi 5 → 1", "only esp and udp have an SPI"),
            ("dscp af50 → 1", "'dscp af50': expected a number from 0 to 63, cs0"),
            ("vlan 4095 → 1", "'vlan 4095': expected a number from 0 to 4094"),
            (" → 1", "the match is empty; write 'any'"),
            ("any tcp → 1", "'any' must stand alone"),
            ("interface a-name-with-16-b → 1", "expected the name of an interface"),
            ("interface eth0/1 → 1", "expected the name of an interface"),
            ("tcp → drop", "'drop' is not an action"),
            ("tcp → ", "'' is not an action"),
            ("tcp → 1-0", "'1-0' is not an action: the range 1-0 runs backwards; write 0-1"),
            ("tcp → cpus 1;2", "is neither a number nor a range"),
        ] {
            let error = text.parse::<PacketRule>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn rules_behind_wider_ones_never_match() {
        let rules: Vec<PacketRule> = [
            "tcp port 22 → local",
            "tcp dst-port 22 src 10.0.0.0/8 → 1",
            "udp → 1",
            "tcp port 22-23 → 1",
            "udp src 10.0.0.0/8 → 2",
            "ip6 → 1",
            "src 2001:db8::/32 → 2",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
        assert_eq!(PacketRule::never_matching(&rules), [(1, 0), (4, 2), (6, 5)]);
    }

    #[test]
    fn rules_that_earlier_ones_hide_in_part_are_found() {
        let hidden = |texts: &[&str]| {
            let rules: Vec<PacketRule> = texts.iter().map(|text| text.parse().unwrap()).collect();
            PacketRule::partly_hidden(&rules)
        };
        assert_eq!(hidden(&["tcp dst-port 22 → 1", "src 10.0.0.0/8 → 2"]), [(1, 0)]);
        assert_eq!(hidden(&["tcp dst-port 22 → 1", "src 10.0.0.0/8 → 1"]), [], "the same action");
        assert_eq!(hidden(&["tcp → 1", "tcp dst-port 22 → 2"]), [], "it never matches");
        assert_eq!(hidden(&["src-port 9 → 1", "dst-port 22 → 2"]), [(1, 0)]);
        assert_eq!(hidden(&["port 9 → 1", "port 22 → 2"]), [(1, 0)], "one port each");
        for (first, second) in [
            ("tcp → 1", "udp → 2"),
            ("icmp → 1", "port 22 → 2"),
            ("dst-port 1-9 → 1", "dst-port 10,12 → 2"),
            ("src 10.0.0.0/8 → 1", "src 11.0.0.0/8 → 2"),
            ("src 10.0.0.0/8 → 1", "dst 2001:db8::1 → 2"),
            ("ip6 → 1", "src 10.0.0.0/8 → 2"),
            ("vlan 1 → 1", "vlan 2 → 2"),
            ("interface eth0 → 1", "interface eth1 → 2"),
            ("teid 5 → 1", "vni 5 → 2"),
        ] {
            assert_eq!(hidden(&[first, second]), [], "{first}, {second}");
        }
    }
}
