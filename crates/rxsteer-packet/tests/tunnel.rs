//! Tunnels: entered on request, and only if the inner packet is suitable for steering.

use crate::frames::*;
use rxsteer_core::FlowKey;
use rxsteer_packet::{DissectOptions, Dissection, LinkType, dissect};

fn inner(packet: &[u8]) -> Dissection {
    dissect(LinkType::Raw, packet, DissectOptions { inner: true, ..DissectOptions::default() })
}

/// Checks that the packet is a tunnel packet: its key is `key` when tunnels are entered, otherwise that of the
/// outer packet.
#[track_caller]
fn assert_enters(packet: &[u8], key: FlowKey) {
    let (within, without) = (inner(packet), dissect(LinkType::Raw, packet, Default::default()));
    assert_eq!((within.key, within.tunnels), (key, 1));
    assert_eq!(without.tunnels, 0);
    assert_ne!(without.key, key);
    assert_eq!(within.outer_flow(), without.outer_flow(), "flows are counted by the outermost");
    assert!(within.l3_offset > without.l3_offset && within.l4_offset > without.l4_offset);
}

#[track_caller]
fn assert_stays(packet: &[u8]) {
    let within = inner(packet);
    assert_eq!(within, dissect(LinkType::Raw, packet, Default::default()));
}

#[test]
fn ip_in_ip() {
    assert_enters(&ipv4(4, &ipv4(TCP, &tcp())), key4(TCP, PORTS));
    assert_enters(&ipv4(41, &ipv6(TCP, &tcp())), key6(TCP, PORTS));
    assert_enters(&ipv6(4, &ipv4(UDP, &udp())), key4(UDP, PORTS));
    assert_enters(&ipv6(60, &extension(41, 1, &ipv6(UDP, &udp()))), key6(UDP, PORTS));
}

#[test]
fn gre_with_every_set_of_fields() {
    let (v4, v6) = (ipv4(TCP, &tcp()), ipv6(TCP, &tcp()));
    for flags in [0, 0x8000, 0x2000, 0x1000, 0xa000, 0x9000, 0x3000, 0xb000] {
        assert_enters(&ipv4(47, &gre(flags, 0x0800, &v4)), key4(TCP, PORTS));
        assert_enters(&ipv6(47, &gre(flags, 0x86dd, &v6)), key6(TCP, PORTS));
        let bridged = ethernet(0x8100, &vlan(0x0800, &v4));
        assert_enters(&ipv4(47, &gre(flags, 0x6558, &bridged)), key4(TCP, PORTS));
    }
    for flags in [0x3001, 0x3081] {
        for header in [&[0x00, 0x21][..], &[0xff, 0x03, 0x00, 0x21], &[0xff, 0x03, 0x21], &[0x21]] {
            let ppp = [header, &v4].concat();
            assert_enters(&ipv4(47, &gre(flags, 0x880b, &ppp)), key4(TCP, PORTS));
        }
    }
    // Source routing, an unknown version, an acknowledgement without payload, an unknown protocol.
    for (flags, protocol) in [(0x4000, 0x0800), (0x0002, 0x0800), (0x2081, 0x880b), (0, 0x88be)] {
        assert_stays(&ipv4(47, &gre(flags, protocol, &v4)));
    }
}

#[test]
fn vxlan_on_both_ports() {
    let frame = ethernet(0x0800, &ipv4(TCP, &tcp()));
    for port in [4789, 8472] {
        assert_enters(&ipv4(UDP, &udp_to(port, &vxlan(&frame))), key4(TCP, PORTS));
    }
    assert_stays(&ipv4(UDP, &udp_to(4790, &vxlan(&frame))));
    let mut without_id = udp_to(4789, &vxlan(&frame));
    without_id[8] = 0;
    assert_stays(&ipv4(UDP, &without_id));
    assert_stays(&ipv4(UDP, &udp_to(4789, &vxlan(&ethernet(0x0806, &[0; 28])))));
}

#[test]
fn geneve_with_options() {
    let packet = ipv4(TCP, &tcp());
    for options in [0, 1, 63] {
        let frame = geneve(options, 0x6558, &ethernet(0x0800, &packet));
        assert_enters(&ipv4(UDP, &udp_to(6081, &frame)), key4(TCP, PORTS));
        let bare = geneve(options, 0x0800, &packet);
        assert_enters(&ipv6(UDP, &udp_to(6081, &bare)), key4(TCP, PORTS));
    }
    for (at, value) in [(0, 0x40), (1, 0x80)] {
        let mut other_version_or_control = geneve(0, 0x0800, &packet);
        other_version_or_control[at] = value;
        assert_stays(&ipv4(UDP, &udp_to(6081, &other_version_or_control)));
    }
}

#[test]
fn gtp_u_with_extension_headers() {
    for extensions in [&[][..], &[1], &[1, 2, 1], &[1, 1, 1, 1]] {
        let packet = gtp_u(extensions, &ipv6(UDP, &udp()));
        assert_enters(&ipv4(UDP, &udp_to(2152, &packet)), key6(UDP, PORTS));
    }
    let mut sequence_only = gtp_u(&[], &[&[0; 4][..], &ipv4(TCP, &tcp())].concat());
    sequence_only[0] |= 2;
    assert_enters(&ipv4(UDP, &udp_to(2152, &sequence_only)), key4(TCP, PORTS));

    assert_stays(&ipv4(UDP, &udp_to(2152, &gtp_u(&[1; 5], &ipv4(TCP, &tcp())))));
    // An echo request, GTP', an extension header of length 0.
    for (at, value) in [(1, 1), (0, 0x20), (12, 0)] {
        let mut other = gtp_u(&[1], &ipv4(TCP, &tcp()));
        other[at] = value;
        assert_stays(&ipv4(UDP, &udp_to(2152, &other)));
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |tunnels| (0..tunnels).fold(ipv4(TCP, &tcp()), |packet, _| ipv4(4, &packet));
    assert_eq!((inner(&nested(4)).tunnels, inner(&nested(4)).key), (4, key4(TCP, PORTS)));
    assert_eq!((inner(&nested(5)).tunnels, inner(&nested(5)).key), (4, key4(4, [0, 0])));
}

#[test]
fn fragments_and_damage_keep_the_key_of_the_last_good_packet() {
    let whole = ipv4(TCP, &tcp());
    assert_stays(&ipv4_with(4, 0x2000, &[], &whole));
    assert_stays(&ipv4_with(4, 0x0010, &[], &whole));
    assert_stays(&ipv4(4, &ipv4_with(UDP, 0x2000, &[], &udp())));
    assert_stays(&ipv4(4, &whole[..19]));
    assert_stays(&ipv4(4, &ipv6(TCP, &tcp())));
    assert_stays(&ipv4(UDP, &udp_to(4789, &[8, 0, 0])));
    // An inner IP header without its transport still has addresses.
    let cut = inner(&ipv4(41, &ipv6(TCP, &tcp())[..42]));
    assert_eq!((cut.key, cut.tunnels), (key6(TCP, [0, 0]), 1));
    assert!(!cut.transport_truncated, "that describes the outermost packet");
}
