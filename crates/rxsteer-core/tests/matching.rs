//! Compares the compiled rules with a test of each rule by itself.

use proptest::prelude::*;
use rxsteer_core::matching::{
    Action, Facts, InterfaceName, Matcher, PacketRule, Prefix, Side, Term, TunnelNumber,
};
use rxsteer_core::{CpuId, Plan, Policy, SteerConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// There are few values, so that packets often match rules.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0..4u32, 0..4u32)
            .prop_map(|(net, host)| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + (net << 16) + host))),
        (0..4u128, 0..4u128).prop_map(|(net, host)| {
            IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + (net << 64) + host))
        }),
    ]
}

fn prefix() -> impl Strategy<Value = Prefix> {
    (address(), 0..6usize).prop_map(|(address, length)| match address {
        IpAddr::V4(v4) => {
            let length = [0, 8, 14, 16, 31, 32][length];
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Prefix { address: IpAddr::V4((v4.to_bits() & mask).into()), length }
        }
        IpAddr::V6(v6) => {
            let length = [0, 32, 62, 64, 127, 128][length];
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Prefix { address: IpAddr::V6((v6.to_bits() & mask).into()), length }
        }
    })
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Source), Just(Side::Destination), Just(Side::Either)]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(65535), 78..84u16]
}

fn tunnel() -> impl Strategy<Value = (TunnelNumber, u32)> {
    let kind =
        prop_oneof![Just(TunnelNumber::Spi), Just(TunnelNumber::Teid), Just(TunnelNumber::Vni)];
    (kind, 0..3u32)
}

fn term() -> impl Strategy<Value = Term> {
    let range = (port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        prop_oneof![Just(4), Just(6)].prop_map(Term::Version),
        prop_oneof![Just(6), Just(17)].prop_map(Term::Protocol),
        (side(), prefix()).prop_map(|(side, prefix)| Term::Net(side, prefix)),
        (side(), prop::collection::vec(range, 1..3))
            .prop_map(|(side, ranges)| Term::Port(side, ranges)),
        (0..3u16).prop_map(Term::Vlan),
        (0..3u8).prop_map(Term::Dscp),
        tunnel().prop_map(|(kind, number)| Term::Tunnel(kind, number)),
        interface().prop_map(Term::Interface),
    ]
}

fn interface() -> impl Strategy<Value = InterfaceName> {
    (0..3u8).prop_map(|number| InterfaceName::new(&format!("eth{number}")).unwrap())
}

/// A rule has at most one term of each kind, as in its text form.
fn rule() -> impl Strategy<Value = PacketRule> {
    prop::collection::vec(term(), 0..4).prop_map(|all| {
        let mut terms: Vec<Term> = Vec::new();
        for term in all {
            let kind = |of: &Term| match of {
                Term::Net(side, _) => (1, *side as usize),
                Term::Port(side, _) => (2, *side as usize),
                Term::Version(_) => (3, 0),
                Term::Protocol(_) => (4, 0),
                Term::Vlan(_) => (5, 0),
                Term::Dscp(_) => (6, 0),
                Term::Tunnel(..) => (7, 0),
                Term::Interface(_) => (8, 0),
            };
            if terms.iter().all(|other| kind(other) != kind(&term)) {
                terms.push(term);
            }
        }
        PacketRule { terms, action: Action::Local }
    })
}

fn facts() -> impl Strategy<Value = Facts> {
    let ports = prop::option::of((port(), port()).prop_map(|(a, b)| [a, b]));
    let rest = (
        prop::option::of(0..3u16),
        0..3u8,
        prop::option::of(tunnel()),
        prop::option::of(interface()),
    );
    (address(), address(), prop_oneof![Just(6), Just(17)], ports, rest).prop_map(
        |(source, destination, protocol, ports, (vlan, dscp, tunnel, interface))| {
            // Both ends are of one version.
            let destination =
                if source.is_ipv4() == destination.is_ipv4() { destination } else { source };
            // Only UDP carries all kinds of tunnels.
            let tunnel = tunnel.filter(|_| protocol == 17);
            Facts { source, destination, protocol, ports, vlan, dscp, tunnel, interface }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The compiled rules find the first rule that matches, also beyond one word of the sets.
    #[test]
    fn first_match_is_that_of_a_walk(
        rules in prop::collection::vec(rule(), 1..140),
        packets in prop::collection::vec(facts(), 1..60),
    ) {
        let matcher = Matcher::new(&rules, 2);
        for facts in &packets {
            let walked = rules.iter().position(|rule| rule.matches(facts));
            prop_assert_eq!(matcher.find(facts).map(usize::from), walked, "{:?}", facts);
        }
    }

    /// The tables give the same rule, looked up as a path outside this crate does it.
    #[test]
    fn tables_give_the_same_rule(
        rules in prop::collection::vec(rule(), 1..140),
        packets in prop::collection::vec(facts(), 1..60),
    ) {
        let matcher = Matcher::new(&rules, 0);
        let tables = matcher.tables();
        for facts in &packets {
            prop_assert_eq!(tables.first(facts), matcher.find(facts), "{:?}", facts);
        }
    }

    /// No packet matches two rules that do not overlap.
    #[test]
    fn rules_that_do_not_overlap_share_no_packet(
        rules in prop::collection::vec(rule(), 2..8),
        packets in prop::collection::vec(facts(), 1..60),
    ) {
        for (first, second) in rules.iter().zip(&rules[1..]) {
            for facts in packets.iter().filter(|facts| first.matches(facts)) {
                prop_assert!(first.overlaps(second) || !second.matches(facts), "{:?}", facts);
            }
        }
    }

    /// A rule that an earlier one covers never matches first.
    #[test]
    fn covered_rules_never_match(
        rules in prop::collection::vec(rule(), 2..12),
        packets in prop::collection::vec(facts(), 1..60),
    ) {
        let matcher = Matcher::new(&rules, 1);
        for (covered, by) in PacketRule::never_matching(&rules) {
            for facts in &packets {
                prop_assert_ne!(matcher.find(facts), Some(covered as u16), "{} covers {}", by, covered);
            }
        }
    }
}

#[test]
fn a_rule_names_only_interfaces_that_are_there() {
    let name = |text: &str| InterfaceName::new(text).unwrap();
    let mut config =
        SteerConfig::new(Policy::Rps, "0-3".parse().unwrap(), vec![CpuId::new(0).unwrap(); 3]);
    config.packet_rules = vec!["interface eth1 → 1".parse().unwrap()];
    let refused = |config: &SteerConfig| Plan::new(config, 1).unwrap_err().to_string();
    assert!(
        refused(&config).contains("interface eth1, but here packets come through no interface")
    );
    config.device_names = vec![name("eth0"), name("eth2")];
    assert!(refused(&config).contains("come through eth0, eth2 alone"), "{}", refused(&config));
    config.device_names = vec![name("eth0"), name("eth1")];
    config.devices = vec![0, 1, 1];
    assert!(Plan::new(&config, 1).is_ok());
    let of = [0, 1, 2].map(|queue| config.interface_of(queue).map(|of| of.as_str().to_owned()));
    assert_eq!(of.map(Option::unwrap), ["eth0", "eth1", "eth1"]);
}

#[test]
fn hits_are_counted_by_each_producer() {
    let rules: Vec<PacketRule> =
        ["tcp → 1", "udp → 2"].iter().map(|text| text.parse().unwrap()).collect();
    let matcher = Matcher::new(&rules, 2);
    for (producer, rule) in [(0, 0), (1, 0), (1, 1), (1, 0)] {
        matcher.count(producer, rule);
    }
    assert_eq!(matcher.hits(), [3, 1]);
}

/// A plan that follows another one keeps the counts of the rules that stay.
#[test]
fn rules_that_stay_keep_their_counts() {
    let rules = |texts: &[&str]| -> Vec<PacketRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let mut config =
        SteerConfig::new(Policy::Rps, "0-3".parse().unwrap(), vec![CpuId::new(0).unwrap()]);
    config.packet_rules = rules(&["tcp → 1", "udp → 2"]);
    let first = Plan::new(&config, 2).unwrap();
    first.matcher().unwrap().count(1, 1);
    config.packet_rules = rules(&["esp → 3", "udp → 2"]);
    let second = first.next(&config).unwrap();
    // A producer that still uses the first plan continues to count.
    first.matcher().unwrap().count(0, 1);
    second.matcher().unwrap().count(1, 0);
    let hits: Vec<u64> = second.rule_hits().iter().map(|(_, hits)| *hits).collect();
    assert_eq!(hits, [1, 2]);
}
