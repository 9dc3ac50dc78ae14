//! The dissector on constructed frames: every link type, encapsulation, fragment and damage.

use crate::frames::*;
use rxsteer_core::FlowKey;
use rxsteer_packet::{DissectOptions, Dissection, FrameClass, LinkType, Malformed, dissect};

fn outer(link: LinkType, frame: &[u8]) -> Dissection {
    dissect(link, frame, DissectOptions { inner: false, ..DissectOptions::default() })
}

fn ether(frame: &[u8]) -> Dissection {
    outer(LinkType::Ethernet, frame)
}

/// Checks that a TCP packet of the given kind gives this key, after any link header.
#[track_caller]
fn assert_tcp(link: LinkType, frame: &[u8], key: FlowKey) {
    let found = outer(link, frame);
    assert_eq!((found.class, found.key), (FrameClass::Ip, key));
    assert_eq!((found.transport, found.transport_ports), (true, PORTS));
    assert_eq!(found.outer_flow(), Some(key));
    assert!(!found.fragment && !found.transport_truncated);
}

#[test]
fn link_types_and_their_numbers() {
    let (v4, v6) = (ipv4(TCP, &tcp()), ipv6(TCP, &tcp()));
    let (key4, key6) = (key4(TCP, PORTS), key6(TCP, PORTS));
    let link = |dlt| LinkType::from_dlt(dlt).unwrap();
    assert_tcp(link(1), &ethernet(0x0800, &v4), key4);
    assert_tcp(link(113), &sll(0x86dd, &v6), key6);
    assert_tcp(link(113), &sll(0x8100, &vlan(0x0800, &v4)), key4);
    assert_tcp(link(276), &sll2(0x0800, &v4), key4);
    for raw in [12, 14, 101] {
        assert_tcp(link(raw), &v4, key4);
        assert_tcp(link(raw), &v6, key6);
    }
    assert_tcp(link(228), &v4, key4);
    assert_tcp(link(229), &v6, key6);
    assert_tcp(link(108), &null([0, 0, 0, 2], &v4), key4);
    assert_tcp(link(0), &null([2, 0, 0, 0], &v4), key4);
    for family in [10, 24, 28, 30] {
        assert_tcp(link(0), &null([family, 0, 0, 0], &v6), key6);
        assert_tcp(link(0), &null([0, 0, 0, family], &v6), key6);
    }
    assert_eq!(LinkType::from_dlt(127), None);
    assert_eq!(outer(link(0), &null([7, 0, 0, 0], &v6)).class, FrameClass::NotIp);
}

#[test]
fn tags_labels_and_sessions_are_skipped() {
    let (v4, v6) = (ipv4(TCP, &tcp()), ipv6(TCP, &tcp()));
    let (key4, key6) = (key4(TCP, PORTS), key6(TCP, PORTS));
    let link = LinkType::Ethernet;
    for tpid in [0x8100, 0x88a8, 0x9100] {
        assert_tcp(link, &ethernet(tpid, &vlan(0x0800, &v4)), key4);
    }
    let qinq = ethernet(0x88a8, &vlan(0x8100, &vlan(0x86dd, &v6)));
    assert_tcp(link, &qinq, key6);
    assert_eq!((outer(link, &qinq).l3_offset, outer(link, &qinq).l4_offset), (22, 62));
    assert_tcp(link, &ethernet(0x8847, &mpls(1, &v4)), key4);
    assert_tcp(link, &ethernet(0x8848, &mpls(4, &v6)), key6);
    assert_tcp(link, &ethernet(0x8100, &vlan(0x8847, &mpls(2, &v4))), key4);
    assert_tcp(link, &ethernet(0x8864, &pppoe(0x0021, &v4)), key4);
    assert_tcp(link, &ethernet(0x8864, &pppoe(0x0057, &v6)), key6);
    assert_tcp(link, &ethernet(0x8926, &[&[0, 1][..], &vlan(0x0800, &v4)].concat()), key4);
}

#[test]
fn walks_before_the_ip_header_are_bounded() {
    let packet = ipv4(TCP, &tcp());
    let tagged = |tags| (1..tags).fold(vlan(0x0800, &packet), |inner, _| vlan(0x8100, &inner));
    assert_eq!(ether(&ethernet(0x8100, &tagged(4))).class, FrameClass::Ip);
    assert_eq!(ether(&ethernet(0x8100, &tagged(5))).class, FrameClass::NotIp);
    assert_eq!(ether(&ethernet(0x8847, &mpls(16, &packet))).class, FrameClass::Ip);
    assert_eq!(ether(&ethernet(0x8847, &mpls(17, &packet))).class, FrameClass::NotIp);
}

#[test]
fn other_protocols_and_cut_link_headers_are_not_ip() {
    let packet = ipv4(TCP, &tcp());
    let pseudo_wire = mpls(1, &[&[0; 4][..], &ethernet(0x0800, &packet)].concat());
    for frame in [
        vec![],
        vec![0; 13],
        ethernet(0x0806, &[0; 28]),
        ethernet(100, &[0xaa; 100]),
        ethernet(0x8100, &[0, 1, 8]),
        ethernet(0x8847, &pseudo_wire),
        ethernet(0x8847, &[0, 1, 1, 64]),
        ethernet(0x8864, &pppoe(0xc021, &packet)),
        ethernet(0x8863, &pppoe(0x0021, &packet)),
    ] {
        assert_eq!(ether(&frame), Dissection::default(), "{frame:02x?}");
    }
}

#[test]
fn every_malformed_reason() {
    let broken = |at: usize, value: u8, mut packet: Vec<u8>| {
        packet[at] = value;
        packet
    };
    let (v4, v6) = (ipv4(TCP, &tcp()), ipv6(TCP, &tcp()));
    let cases = [
        (LinkType::Ethernet, ethernet(0x0800, &v4[..19]), Malformed::Ipv4Truncated),
        (LinkType::Ethernet, ethernet(0x0800, &v6), Malformed::Ipv4BadVersion),
        (LinkType::Ipv4, broken(0, 0x44, v4.clone()), Malformed::Ipv4BadHeaderLength),
        (LinkType::Ipv4, broken(3, 19, v4.clone()), Malformed::Ipv4BadTotalLength),
        (LinkType::Ethernet, ethernet(0x86dd, &v6[..39]), Malformed::Ipv6Truncated),
        (LinkType::Ethernet, ethernet(0x86dd, &v4), Malformed::Ipv6BadVersion),
        (LinkType::Raw, vec![], Malformed::IpTruncated),
        (LinkType::Raw, broken(0, 0x55, v4), Malformed::IpBadVersion),
    ];
    for ((link, frame, reason), expected) in cases.iter().zip(Malformed::ALL) {
        assert_eq!(*reason, expected, "the table is in the order of ALL");
        let found = outer(*link, frame);
        assert_eq!(found.class, FrameClass::Malformed(*reason), "{}", reason.name());
        assert_eq!((found.key, found.outer_flow()), (FlowKey::default(), None));
    }
    let indices: Vec<usize> = Malformed::ALL.iter().map(|&reason| reason as usize).collect();
    assert_eq!(indices, (0..8).collect::<Vec<_>>());
}

#[test]
fn transports_with_and_without_ports() {
    for (protocol, header) in [(TCP, tcp()), (UDP, udp()), (SCTP, sctp()), (DCCP, sctp())] {
        assert_tcp(LinkType::Ipv4, &ipv4(protocol, &header), key4(protocol, PORTS));
        assert_tcp(LinkType::Ipv6, &ipv6(protocol, &header), key6(protocol, PORTS));
    }
    // ICMP, ESP, OSPF, UDP-Lite.
    for protocol in [1, 50, 89, 136] {
        let found = outer(LinkType::Ipv4, &ipv4(protocol, &[0xff; 20]));
        assert_eq!((found.key, found.outer_flow()), (key4(protocol, [0, 0]), None));
        assert!(!found.transport_truncated);
    }
}

#[test]
fn cut_transport_header_is_reported_and_not_used() {
    let whole = ipv4(TCP, &tcp());
    for length in 20..=whole.len() {
        let found = outer(LinkType::Ipv4, &whole[..length]);
        assert_eq!(found.class, FrameClass::Ip);
        assert_eq!(found.transport_truncated, length < 40, "{length}");
        let ports = if length == 40 { PORTS } else { [0, 0] };
        assert_eq!((found.key, found.transport), (key4(TCP, ports), length == 40), "{length}");
    }
    // An IPv4 header whose options are cut off ends past the frame: the key has only addresses.
    let optioned = ipv4_with(TCP, 0, &[1; 8], &tcp());
    let found = outer(LinkType::Ipv4, &optioned[..24]);
    assert_eq!((found.key, found.transport_truncated), (key4(TCP, [0, 0]), true));
    assert_eq!(found.l4_offset, 0);
}

#[test]
fn padding_is_not_taken_for_a_header_and_length_0_means_what_is_there() {
    let mut padded = ethernet(0x0800, &ipv4(TCP, &[]));
    padded.resize(60, 0xee);
    let found = ether(&padded);
    assert_eq!((found.key, found.transport_truncated), (key4(TCP, [0, 0]), true));

    let mut offloaded = ipv4(TCP, &tcp());
    offloaded[2..4].fill(0);
    assert_tcp(LinkType::Ipv4, &offloaded, key4(TCP, PORTS));
    let mut jumbo = ipv6(TCP, &tcp());
    jumbo[4..6].fill(0);
    assert_tcp(LinkType::Ipv6, &jumbo, key6(TCP, PORTS));
}

#[test]
fn fragments_have_no_ports_in_the_key_and_a_first_one_still_counts_as_a_flow() {
    let first = outer(LinkType::Ipv4, &ipv4_with(UDP, 0x2000, &[], &udp()));
    let later = outer(LinkType::Ipv4, &ipv4_with(UDP, 0x2001, &[], &udp()));
    let last = outer(LinkType::Ipv4, &ipv4_with(UDP, 0x0001, &[], &udp()));
    for found in [first, later, last] {
        assert!(found.fragment && !found.transport_truncated);
        assert_eq!(found.key, key4(UDP, [0, 0]));
    }
    assert_eq!(first.outer_flow(), Some(key4(UDP, PORTS)));
    assert_eq!((later.outer_flow(), later.l4_offset), (None, 0));
    assert_eq!(last.outer_flow(), None);
}

#[test]
fn ipv6_fragments_share_the_key_of_what_follows_their_fragment_header() {
    // The first fragment contains more of the chain than the later one; their keys must be equal.
    let first = ipv6(0, &extension(44, 1, &fragment(60, 0, true, &extension(UDP, 1, &udp()))));
    let later = ipv6(0, &extension(44, 1, &fragment(60, 9, false, &[0xaa; 8])));
    let (first, later) = (outer(LinkType::Ipv6, &first), outer(LinkType::Ipv6, &later));
    assert_eq!((first.key, later.key), (key6(60, [0, 0]), key6(60, [0, 0])));
    assert!(first.fragment && later.fragment);
    assert_eq!(first.outer_flow(), Some(key6(UDP, PORTS)));
    assert_eq!(later.outer_flow(), None);
}

#[test]
fn atomic_fragment_is_a_whole_packet() {
    let atomic = ipv6(44, &fragment(TCP, 0, false, &tcp()));
    assert_tcp(LinkType::Ipv6, &atomic, key6(TCP, PORTS));
}

#[test]
fn second_fragment_header_does_not_make_a_fragment_whole() {
    let twice = ipv6(44, &fragment(44, 0, true, &fragment(TCP, 0, false, &tcp())));
    let found = outer(LinkType::Ipv6, &twice);
    assert!(found.fragment);
    assert_eq!(found.key, key6(44, [0, 0]));
}

#[test]
fn extension_headers_are_walked_up_to_a_limit() {
    let all = [0, 43, 60, 135, 139, 140]
        .iter()
        .rev()
        .fold((TCP, tcp()), |(next, payload), &kind| (kind, extension(next, 2, &payload)));
    assert_tcp(LinkType::Ipv6, &ipv6(all.0, &all.1), key6(TCP, PORTS));
    assert_tcp(LinkType::Ipv6, &ipv6(51, &authentication(TCP, &tcp())), key6(TCP, PORTS));
    assert_tcp(LinkType::Ipv4, &ipv4(51, &authentication(TCP, &tcp())), key4(TCP, PORTS));

    let chain = |headers| {
        let payload =
            (1..headers).fold(extension(TCP, 1, &tcp()), |inner, _| extension(60, 1, &inner));
        outer(LinkType::Ipv6, &ipv6(60, &payload))
    };
    assert_eq!(chain(8).key, key6(TCP, PORTS));
    assert_eq!((chain(9).key, chain(9).transport_truncated), (key6(TCP, [0, 0]), true));
    assert_eq!((chain(10).key, chain(10).transport_truncated), (key6(60, [0, 0]), true));
}

#[test]
fn what_ends_the_chain_has_no_ports() {
    for protocol in [59, 50, 58] {
        let found = outer(LinkType::Ipv6, &ipv6(protocol, &[0; 40]));
        assert_eq!((found.key, found.transport_truncated), (key6(protocol, [0, 0]), false));
    }
    let cut = ipv6(60, &extension(TCP, 4, &[]));
    let found = outer(LinkType::Ipv6, &cut[..41]);
    assert_eq!((found.key, found.transport_truncated), (key6(60, [0, 0]), true));
    // In IPv4, the numbers of IPv6's extension headers have other meanings.
    let found = outer(LinkType::Ipv4, &ipv4(60, &extension(TCP, 1, &tcp())));
    assert_eq!((found.key, found.transport_truncated), (key4(60, [0, 0]), false));
}
