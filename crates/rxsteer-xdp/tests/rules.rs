//! Rules before the policy: the programs in the kernel find the rule that `rxsteer-core` finds, and send packets where it
//! sends them.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); prints SKIPPED without it.

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::Frames;
use rxsteer_bpf_native::abi::{
    STEER_BY_HASH, STEER_BY_LOCAL, STEER_BY_MATCH, STEER_BY_PASS, STEER_BY_RFS, STEER_CPU_DESIRED,
    STEER_MAX_CPUS, STEER_NONE, STEER_RPS,
};
use rxsteer_core::matching::{
    Action, Facts, InterfaceName, Matcher, PacketRule, Prefix, RulePolicy, Side, Term, TunnelNumber,
};
use rxsteer_core::{CpuId, CpuSet, FlowHash};
use rxsteer_packet::{DissectOptions, LinkType, SymmetricHash, dissect, facts};
use rxsteer_xdp::testing::{self, KernelPolicy, RxContext, TestDevice, TestRules, TestSizes};
use std::array::from_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The CPU that receives all frames.
const RX_CPU: u32 = 1;
/// Interfaces that frames come through.
const DEVICES: u16 = 5;
const MAP: [u16; 3] = [0, 2, 3];

fn load(test: &str, hash: &SymmetricHash) -> Option<KernelPolicy> {
    crate::quiet();
    let sizes = TestSizes {
        cpus: 4,
        rx_cpus: 4,
        tables: DEVICES.into(),
        flow_log: 10,
        sock_entries: 16,
        sock_cpu_mask: 7,
        chains_log: 4,
        limit_lines: 1,
    };
    let device = |number: u16| TestDevice { queues: 1, first_table: number.into() };
    let devices: Vec<TestDevice> = (0..DEVICES).map(device).collect();
    testing::loaded(&format!("rules::{test}"), KernelPolicy::load(sizes, hash.words(), &devices))
}

fn config(policy: u32, cpu: &[u8; STEER_MAX_CPUS as usize]) -> TestRules<'_> {
    TestRules {
        policy,
        loops: 0,
        after: 0,
        ring_size: 2048,
        flow_limit: 0,
        inactive_after: 250,
        local_by_ring: true,
        unguarded: false,
        no_hysteresis: true,
        boundary_slots: false,
        else_local: false,
        map_len: MAP.len() as u32,
        buckets: 0,
        first_bucket: 0,
        map: &MAP,
        rows: &[],
        cpu,
    }
}

fn rules(texts: &[&str]) -> Vec<PacketRule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A rule that the packet with these fields matches, except perhaps for the interface: its terms name some of these
/// fields, or networks and ranges of ports that contain them.
fn rule(rng: &mut ChaCha8Rng, facts: &Facts) -> PacketRule {
    let mut terms = Vec::new();
    let side = *[Side::Source, Side::Destination, Side::Either].choose(rng).unwrap();
    let of = |rng: &mut ChaCha8Rng| match side {
        Side::Source => 0,
        Side::Destination => 1,
        Side::Either => usize::from(rng.random_bool(0.5)),
    };
    if rng.random_ratio(1, 2) {
        let address = [facts.source, facts.destination][of(rng)];
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = rng.random_range(0..=most);
        terms.push(Term::Net(side, network(address, length)));
    }
    if let Some(ports) = facts.ports.filter(|_| rng.random_ratio(1, 2)) {
        let port = ports[of(rng)];
        let low = port.saturating_sub(rng.random_range(0..3));
        terms.push(Term::Port(side, vec![(low, port.saturating_add(rng.random_range(0..2)))]));
    }
    if rng.random_ratio(1, 4) {
        terms.push(Term::Protocol(facts.protocol));
    }
    if rng.random_ratio(1, 4) {
        terms.push(Term::Version(if facts.source.is_ipv4() { 4 } else { 6 }));
    }
    if let Some(vlan) = facts.vlan.filter(|_| rng.random_ratio(1, 2)) {
        terms.push(Term::Vlan(vlan));
    }
    if rng.random_ratio(1, 4) {
        terms.push(Term::Dscp(facts.dscp));
    }
    if rng.random_ratio(1, 3) {
        let number = rng.random_range(0..DEVICES);
        terms.push(Term::Interface(interface(number)));
    }
    if let Some((kind, number)) = facts.tunnel.filter(|_| rng.random_ratio(3, 4)) {
        terms.push(Term::Tunnel(kind, number));
    }
    let action = match rng.random_range(0..6) {
        0 => Action::Local,
        1 => Action::Pass,
        // Sparse slots depend on more than this test knows; policy.rs has them.
        2 | 3 => Action::Policy(RulePolicy { rfs: rng.random(), sparse: false }),
        _ => {
            let mut cpus: Vec<u16> = (0..4).filter(|_| rng.random_bool(0.5)).collect();
            cpus.push(rng.random_range(0..4));
            Action::Cpus(CpuSet::new(cpus.into_iter().filter_map(CpuId::new)).unwrap())
        }
    };
    PacketRule { terms, action }
}

/// The interface with this number, as `set_rules` names it.
fn interface(number: u16) -> InterfaceName {
    InterfaceName::new(&format!("eth{number}")).unwrap()
}

/// The CPU that a flow hash picks: the kernel's reciprocal_scale() (include/linux/kernel.h).
fn picked(cpus: &[CpuId], hash: FlowHash) -> u32 {
    let index = (u64::from(hash.get()) * cpus.len() as u64) >> 32;
    cpus[index as usize].get().into()
}

/// Entries of the sock flow table, as in `load`.
const SOCKS: usize = 16;
/// The bits of an entry that hold the desired CPU plus one, as in `load`.
const SOCK_CPUS: u32 = 7;

/// The network of this length that an address is in.
fn network(address: IpAddr, length: u8) -> Prefix {
    let bits = u32::from(length);
    let address = match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from(v6.to_bits() & mask).into()
        }
    };
    Prefix { address, length }
}

#[test]
fn the_first_matching_rule_decides() {
    let hash = SymmetricHash::new([5; 16]);
    let Some(mut kernel) = load("the_first_matching_rule_decides", &hash) else { return };
    let options = DissectOptions::default();
    let mut all = [0; 8];
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut frames = Frames::new(seed, seed % 2 == 1);
        let frames: Vec<Vec<u8>> =
            (0..400).map(|_| frames.next_frame()).filter(|frame| frame.len() >= 14).collect();
        let found = |frame: &[u8]| facts(LinkType::Ethernet, frame, options, true);
        let known: Vec<Facts> = frames.iter().filter_map(|frame| found(frame)).collect();
        let most = if seed % 4 == 0 { 256 } else { 12 };
        let packet_rules: Vec<PacketRule> = known
            .iter()
            .map(|facts| rule(&mut rng, facts))
            .filter(|rule| !rule.terms.is_empty())
            .take(most)
            .collect();
        let policy = if seed % 3 == 0 { STEER_NONE } else { STEER_RPS };
        let config = config(policy, &[STEER_CPU_DESIRED as u8; STEER_MAX_CPUS as usize]);
        kernel.configure(&config);
        kernel.set_rules(&config, &packet_rules);
        let mut socks: [u32; SOCKS] = from_fn(|index| kernel.sock_entry(index as u32));
        let before = kernel.hits();
        let matcher = Matcher::new(&packet_rules, 1);
        let map: Vec<CpuId> = MAP.into_iter().filter_map(CpuId::new).collect();
        for frame in &frames {
            let device = rng.random_range(0..DEVICES);
            let key = dissect(LinkType::Ethernet, frame, options).key;
            let flow = hash.hash(&key);
            // In test programs both directions of a flow have one entry.
            let of_sock = flow.get();
            let entry = &mut socks[of_sock as usize % SOCKS];
            if !flow.is_none() && rng.random_ratio(1, 3) {
                let desired = rng.random_range(0..4);
                kernel.record_desired(of_sock, desired);
                *entry = of_sock & !SOCK_CPUS | (desired + 1);
            }
            let is_own = *entry & !SOCK_CPUS == of_sock & !SOCK_CPUS;
            let desired = (*entry & SOCK_CPUS).checked_sub(1).filter(|_| is_own);
            let decided = kernel.receive(
                &RxContext {
                    rx_cpu: RX_CPU,
                    queue: 0,
                    device: device.into(),
                    now: 1000,
                    has_metadata: true,
                },
                frame,
            );
            let Some(fields) = found(frame) else { continue };
            let fields = Facts { interface: Some(interface(device)), ..fields };
            let matched = matcher.find(&fields);
            if let Some(rule) = matched {
                matcher.count(0, rule);
            }
            let rule = matched.map(|rule| &packet_rules[usize::from(rule)].action);
            let (by, target) = match rule {
                Some(Action::Local) => (STEER_BY_MATCH, RX_CPU),
                Some(Action::Pass) => (STEER_BY_PASS, RX_CPU),
                Some(Action::Cpus(cpus)) => (STEER_BY_MATCH, picked(cpus.as_slice(), flow)),
                Some(Action::Policy(own)) => match desired.filter(|_| own.rfs) {
                    Some(desired) => (STEER_BY_RFS, desired),
                    None => (STEER_BY_HASH, picked(&map, flow)),
                },
                None if policy == STEER_NONE => (STEER_BY_LOCAL, RX_CPU),
                None => (STEER_BY_HASH, picked(&map, flow)),
            };
            assert_eq!(
                (decided.by, decided.target),
                (by, target),
                "{fields:?} {rule:?} {frame:02x?}"
            );
            all[by as usize] += 1;
        }
        let hits: Vec<u64> =
            kernel.hits().iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(hits, matcher.hits(), "{packet_rules:?}");
    }
    let seen = |by: u32| all[by as usize];
    assert!(
        seen(STEER_BY_MATCH) > 2000 && seen(STEER_BY_HASH) > 1000 && seen(STEER_BY_LOCAL) > 500,
        "{all:?}"
    );
    assert!(seen(STEER_BY_RFS) > 200, "{all:?}");
}

#[test]
fn each_field_is_matched() {
    let hash = SymmetricHash::new([5; 16]);
    let Some(mut kernel) = load("each_field_is_matched", &hash) else { return };
    let frame = |kind: &[u8], ip: &[u8], above: &[u8]| -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], kind, ip, above].concat()
    };
    let v4 = |tos: u8, protocol: u8, length: u8| {
        [0x45, tos, 0, 20 + length, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 1, 2, 3, 192, 0, 2, 9]
    };
    let udp = |to: u16, behind: &[u8]| {
        [&[0x30, 0x39][..], &to.to_be_bytes(), &[0, 0, 0, 0], behind, &[0; 20]].concat()
    };
    let vxlan = [8, 0, 0, 0, 0, 0, 77, 0];
    let gtp = [0x30, 0xff, 0, 0, 0, 0, 0x12, 0x34];
    let cases = [
        ("udp dst-port 53 -> 3", frame(&[8, 0], &v4(0, 17, 40), &udp(53, &[]))),
        ("src 10.1.0.0/16 dst 192.0.2.0/24 -> 3", frame(&[8, 0], &v4(0, 17, 40), &udp(53, &[]))),
        ("net 192.0.2.9 -> 3", frame(&[8, 0], &v4(0, 1, 40), &udp(53, &[]))),
        ("dscp ef -> 3", frame(&[8, 0], &v4(46 << 2, 17, 40), &udp(53, &[]))),
        ("vlan 7 -> 3", frame(&[0x81, 0, 0, 7, 8, 0], &v4(0, 17, 40), &udp(53, &[]))),
        (
            "spi 0x1000 -> 3",
            frame(&[8, 0], &v4(0, 50, 40), &[&[0, 0, 0x10, 0][..], &[0; 40]].concat()),
        ),
        ("vni 77 -> 3", frame(&[8, 0], &v4(0, 17, 40), &udp(4789, &vxlan))),
        ("teid 0x1234 -> 3", frame(&[8, 0], &v4(0, 17, 40), &udp(2152, &gtp))),
        ("interface eth0 src 10.1.0.0/16 -> 3", frame(&[8, 0], &v4(0, 17, 40), &udp(53, &[]))),
        ("any -> 3", frame(&[8, 0], &v4(0, 89, 40), &udp(0, &[]))),
    ];
    let config = config(STEER_NONE, &[0; STEER_MAX_CPUS as usize]);
    let context = RxContext { rx_cpu: RX_CPU, queue: 0, device: 0, now: 1000, has_metadata: true };
    kernel.configure(&config);
    for (text, frame) in &cases {
        kernel.set_rules(&config, &rules(&[text]));
        let decided = kernel.receive(&context, frame);
        assert_eq!((decided.by, decided.target), (STEER_BY_MATCH, 3), "{text}");
        // Another address, another port, no tag: none of the rules but the last matches an ARP frame.
        kernel.set_rules(
            &config,
            &rules(&[
                "src 10.9.0.0/16 -> 3",
                "dst-port 54 -> 3",
                "vlan 8 -> 3",
                "dscp 1 -> 3",
                "spi 1 -> 3",
                "interface eth1 src 10.1.0.0/16 -> 3",
            ]),
        );
        assert_eq!(kernel.receive(&context, frame).by, STEER_BY_LOCAL, "{text}");
    }
}

/// If a rule lets a flow pass, and another rule then steers it, the flow first goes through the ring of the receiving
/// CPU. It passes again only once its frames in the rings are delivered.
#[test]
fn a_flow_leaves_pass_through_the_ring_of_its_cpu() {
    let hash = SymmetricHash::new([5; 16]);
    let Some(mut kernel) = load("a_flow_leaves_pass_through_the_ring_of_its_cpu", &hash) else {
        return;
    };
    let mut frame: Vec<u8> =
        [&[2; 12][..], &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 53, 0, 8, 0, 0]);
    let config = config(STEER_RPS, &[0; STEER_MAX_CPUS as usize]);
    let context = RxContext { rx_cpu: RX_CPU, queue: 0, device: 0, now: 1000, has_metadata: true };
    kernel.configure(&config);
    let mut send = |rule: &str| {
        kernel.set_rules(&config, &rules(&[rule]));
        let decided = kernel.receive(&context, &frame);
        (decided.passes, decided.cpu, decided.seq)
    };
    assert_eq!(send("udp -> pass"), (true, RX_CPU, 0));
    assert_eq!(send("udp -> pass"), (true, RX_CPU, 0));
    assert_eq!(send("udp -> 3"), (false, RX_CPU, 1), "through the ring of the receiving CPU");
    assert_eq!(send("udp -> 3"), (false, RX_CPU, 2), "the first one is not delivered");
    assert_eq!(send("udp -> pass"), (false, RX_CPU, 3));
    kernel.set_pair((RX_CPU, RX_CPU * 2), [3, 3, 3]);
    let mut send = |rule: &str| {
        kernel.set_rules(&config, &rules(&[rule]));
        let decided = kernel.receive(&context, &frame);
        (decided.passes, decided.cpu, decided.seq)
    };
    assert_eq!(send("udp -> 3"), (false, 3, 1));
    assert_eq!(send("udp -> pass"), (false, 3, 2), "CPU 3 has not delivered them");
    kernel.set_pair((RX_CPU, 3 * 2), [2, 2, 2]);
    kernel.set_rules(&config, &rules(&["udp -> pass"]));
    assert!(kernel.receive(&context, &frame).passes);
}

/// Tunnel numbers in the test of random rules come from frames; this one names the kinds.
#[test]
fn kinds_of_tunnels_are_apart() {
    let hash = SymmetricHash::new([5; 16]);
    let Some(mut kernel) = load("kinds_of_tunnels_are_apart", &hash) else { return };
    let mut frame: Vec<u8> =
        [&[2; 12][..], &[8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 50, 0, 0]].concat();
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 7]);
    frame.resize(80, 0);
    let config = config(STEER_NONE, &[0; STEER_MAX_CPUS as usize]);
    let context = RxContext { rx_cpu: RX_CPU, queue: 0, device: 0, now: 1000, has_metadata: true };
    kernel.configure(&config);
    for (kind, by) in [
        (TunnelNumber::Spi, STEER_BY_MATCH),
        (TunnelNumber::Teid, STEER_BY_LOCAL),
        (TunnelNumber::Vni, STEER_BY_LOCAL),
    ] {
        let rule = PacketRule { terms: vec![Term::Tunnel(kind, 7)], action: Action::Local };
        kernel.set_rules(&config, &[rule]);
        assert_eq!(kernel.receive(&context, &frame).by, by, "{kind:?}");
    }
}
