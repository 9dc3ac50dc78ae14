//! The tunnel number in place of the ports.

use crate::frames::*;
use rxsteer_core::FlowKey;
use rxsteer_packet::{
    DissectOptions, LinkType, TunnelId, TunnelKind, TunnelKinds, dissect, tunnel_id,
};

const NUMBER: u32 = 0x1234_5678;
const HALVES: [u16; 2] = [0x1234, 0x5678];

fn number(bytes: [u8; 4], more: &[u8]) -> Vec<u8> {
    [&bytes, &NUMBER.to_be_bytes()[..], more].concat()
}

/// UDP between the ports, in either direction.
fn between(port: u16, payload: &[u8]) -> [Vec<u8>; 2] {
    let to = udp_to(port, payload);
    let mut from = to.clone();
    from[..4].rotate_left(2);
    [to, from]
}

/// A packet of each kind that can be chosen, with its protocol.
fn of_kind(kind: TunnelKind) -> Vec<(u8, Vec<u8>)> {
    let spi = [&NUMBER.to_be_bytes()[..], &[0, 0, 0, 1], &[0xee; 24]].concat();
    let udp = |packets: [Vec<u8>; 2]| packets.map(|packet| (UDP, packet)).to_vec();
    let to = |port, payload: &[u8]| vec![(UDP, udp_to(port, payload))];
    match kind {
        TunnelKind::Esp => [vec![(50, spi.clone())], udp(between(4500, &spi))].concat(),
        TunnelKind::Gtp => {
            let (data, end) = (number([0x30, 255, 0, 0], &[]), number([0x30, 254, 0, 0], &[]));
            [to(2152, &data), to(2152, &end)].concat()
        }
        TunnelKind::L2tp => {
            let data = number([0, 3, 0, 0], &[0xee; 8]);
            [vec![(115, spi)], udp(between(1701, &data))].concat()
        }
        TunnelKind::Wireguard => {
            let data = [&[4, 0, 0, 0], &NUMBER.to_le_bytes()[..], &[0xee; 24]].concat();
            udp(between(51820, &data))
        }
        TunnelKind::Vxlan | TunnelKind::Geneve => panic!("not a key"),
    }
}

fn key(packet: &[u8], options: DissectOptions) -> FlowKey {
    dissect(LinkType::Raw, packet, options).key
}

fn only(keys: TunnelKinds) -> DissectOptions {
    DissectOptions { key_tunnels: keys, ..DissectOptions::default() }
}

fn kinds(text: &str) -> TunnelKinds {
    text.parse().expect("kinds")
}

#[test]
fn number_takes_the_place_of_the_ports_of_the_chosen_kinds_alone() {
    for (name, kind) in TunnelKinds::NAMES {
        for (protocol, payload) in of_kind(kind) {
            let packets = [
                (ipv4(protocol, &payload), key4(protocol, HALVES)),
                (ipv4_with(protocol, 0, &[1; 8], &payload), key4(protocol, HALVES)),
                (ipv6(protocol, &payload), key6(protocol, HALVES)),
                (ipv6(60, &extension(protocol, 1, &payload)), key6(protocol, HALVES)),
            ];
            for (packet, with) in packets {
                let plain = dissect(LinkType::Raw, &packet, DissectOptions::default());
                for chosen in [kinds(name), TunnelKinds::ALL] {
                    let found = dissect(LinkType::Raw, &packet, only(chosen));
                    assert_eq!(found.key, with, "{name}");
                    assert_eq!(found.flow(), plain.flow(), "flows are counted by their ports");
                }
                let others = TunnelKinds::from_bits(!kinds(name).bits());
                assert_eq!(key(&packet, only(others)), plain.key, "{name}");
                assert_ne!(plain.key, with);
                let tunnel = tunnel_id(LinkType::Raw, &packet);
                assert_eq!(tunnel, Some(TunnelId { kind, id: NUMBER }));
            }
        }
    }
}

/// Packets without a number keep addresses and ports. So do all fragments, so that they stay together.
#[test]
fn packets_without_a_number_keep_their_ports() {
    let keeps = |packet: Vec<u8>| {
        assert_eq!(tunnel_id(LinkType::Raw, &packet), None, "{packet:02x?}");
        let plain = key(&packet, DissectOptions::default());
        assert_eq!(key(&packet, only(TunnelKinds::ALL)), plain, "{packet:02x?}");
    };
    let in_udp = |port, payload: &[u8]| keeps(ipv4(UDP, &udp_to(port, payload)));
    // IKE after the non-ESP marker, a keepalive, and half of a header.
    in_udp(4500, &[&[0; 4], &[7; 28][..]].concat());
    in_udp(4500, &[0xff]);
    in_udp(4500, &[1, 2, 3, 4, 5, 6, 7]);
    // WireGuard's handshake and cookie, and a packet that only resembles data.
    for start in [[1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0], [4, 0, 1, 0]] {
        in_udp(51820, &number(start, &[7; 140]));
    }
    // GTP-U's echo and error indication, another version, GTP'.
    for start in [[0x32, 1, 0, 4], [0x30, 26, 0, 4], [0x50, 255, 0, 4], [0x20, 255, 0, 4]] {
        in_udp(2152, &number(start, &[7; 20]));
    }
    // L2TP: control, version 2.
    for start in [[0xc8, 3, 0, 20], [0, 2, 0, 0]] {
        in_udp(1701, &number(start, &[7; 20]));
    }
    // Numbers that are 0, and truncated numbers.
    for protocol in [50, 115] {
        keeps(ipv4(protocol, &[&[0; 4], &[7; 28][..]].concat()));
        keeps(ipv6(protocol, &[1, 2, 3]));
    }
    in_udp(2152, &[0x30, 255, 0, 4, 0, 0, 0, 0]);
    for (_, kind) in TunnelKinds::NAMES {
        for (protocol, payload) in of_kind(kind) {
            keeps(ipv4_with(protocol, 0x2000, &[], &payload));
            keeps(ipv4_with(protocol, 0x0010, &[], &payload));
            keeps(ipv6(44, &fragment(protocol, 0, true, &payload)));
            keeps(ipv6(44, &fragment(protocol, 8, false, &payload)));
        }
    }
    // Another port.
    let [to, _] = between(51821, &number([4, 0, 0, 0], &[7; 24]));
    keeps(ipv4(UDP, &to));
}

#[test]
fn inside_a_tunnel_that_is_entered_the_last_packet_decides() {
    let both = |keys| DissectOptions { inner: true, key_tunnels: keys };
    let esp = [&NUMBER.to_be_bytes()[..], &[7; 28]].concat();
    let nested = ipv4(41, &ipv6(50, &esp));
    assert_eq!(key(&nested, both(TunnelKinds::ALL)), key6(50, HALVES));
    assert_eq!(key(&nested, both(TunnelKinds::NONE)), key6(50, [0, 0]));
    let gtp = |inner: &[u8]| ipv4(UDP, &udp_to(2152, &number([0x30, 255, 0, 0], inner)));
    let whole = ipv4(TCP, &tcp());
    assert_eq!(key(&gtp(&whole), both(TunnelKinds::ALL)), key4(TCP, PORTS), "it is read");
    let piece = ipv4_with(TCP, 0x2000, &[], &tcp());
    assert_eq!(key(&gtp(&piece), both(TunnelKinds::ALL)), key4(UDP, HALVES), "it is not read");
    assert_eq!(key(&gtp(&piece), both(TunnelKinds::NONE)), key4(UDP, [PORTS[0], 2152]));
}

#[test]
fn vnis_are_numbers_but_no_keys() {
    let frame = ethernet(0x0800, &ipv4(TCP, &tcp()));
    let id = |packet: &[u8]| tunnel_id(LinkType::Raw, &ipv4(UDP, packet));
    let vxlan = udp_to(4789, &vxlan(&frame));
    assert_eq!(id(&vxlan), Some(TunnelId { kind: TunnelKind::Vxlan, id: 5 }));
    let geneve = udp_to(6081, &geneve(2, 0x6558, &frame));
    assert_eq!(id(&geneve), Some(TunnelId { kind: TunnelKind::Geneve, id: 0 }));
    for packet in [ipv4(UDP, &vxlan), ipv4(UDP, &geneve)] {
        assert_eq!(key(&packet, only(TunnelKinds::ALL)), key(&packet, DissectOptions::default()));
    }
}

#[test]
fn kinds_round_trip_and_bad_ones_are_named() {
    for text in ["none", "all", "esp", "esp,gtp", "gtp,l2tp,wireguard"] {
        assert_eq!(kinds(text).to_string(), text);
    }
    assert_eq!(kinds("wireguard, esp"), kinds("esp,wireguard"));
    assert_eq!(kinds("esp,gtp,l2tp,wireguard"), TunnelKinds::ALL);
    for (bad, part) in [("vxlan", "'vxlan'"), ("esp,", "''"), ("", "''"), ("esp,all", "'all'")] {
        let error = bad.parse::<TunnelKinds>().unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("esp,gtp"), "{error}");
    }
}
