//! The flow in which statistics count a packet, and the packet's TCP flags.

use crate::frames::*;
use rxsteer_core::FlowKey;
use rxsteer_packet::{DissectOptions, LinkType, TunnelKinds, dissect, flow_of};

const INNER: DissectOptions = DissectOptions { inner: true, key_tunnels: TunnelKinds::ALL };
const OUTER: DissectOptions = DissectOptions { inner: false, key_tunnels: TunnelKinds::NONE };

/// The flow and TCP flags of an IP packet, checked on both paths.
fn flow(packet: &[u8], options: DissectOptions) -> (FlowKey, Option<u8>) {
    let dissection = dissect(LinkType::Raw, packet, options);
    let flow = dissection.flow().expect("it is IP");
    let fast = flow_of(LinkType::Raw, packet, options).expect("it is IP");
    assert_eq!(
        (fast.flow.key(), fast.tcp_flags),
        (flow, dissection.tcp_flags(packet).unwrap_or(0))
    );
    (flow, dissection.tcp_flags(packet))
}

#[test]
fn tcp_flags_are_those_of_the_whole_header() {
    for packet in [ipv4(TCP, &tcp()), ipv4_with(TCP, 0, &[1; 12], &tcp())] {
        assert_eq!(flow(&packet, OUTER), (key4(TCP, PORTS), Some(0x10)));
    }
    assert_eq!(flow(&ipv6(TCP, &tcp()), OUTER), (key6(TCP, PORTS), Some(0x10)));
    assert_eq!(flow(&ipv4(UDP, &udp()), OUTER), (key4(UDP, PORTS), None));
    // The byte of the flags is present, but the header's last byte is not: the header is ignored.
    assert_eq!(flow(&ipv4(TCP, &tcp()[..19]), OUTER), (key4(TCP, [0; 2]), None));
}

#[test]
fn protocols_without_ports_count_under_port_0() {
    for protocol in [1, 2, 47, 50, 89, 255] {
        assert_eq!(flow(&ipv4(protocol, &[0x11; 64]), OUTER), (key4(protocol, [0; 2]), None));
    }
}

#[test]
fn first_fragment_counts_in_the_flow_of_its_ports_and_later_ones_under_port_0() {
    assert_eq!(flow(&ipv4_with(TCP, 0x2000, &[], &tcp()), OUTER), (key4(TCP, PORTS), Some(0x10)));
    assert_eq!(flow(&ipv4_with(TCP, 0x2009, &[], &tcp()), OUTER), (key4(TCP, [0; 2]), None));
    let (first, later) = (fragment(UDP, 0, true, &udp()), fragment(UDP, 9, false, &udp()));
    assert_eq!(flow(&ipv6(44, &first), OUTER).0, key6(UDP, PORTS));
    assert_eq!(flow(&ipv6(44, &later), OUTER).0, key6(UDP, [0; 2]));
}

#[test]
fn tunnel_packet_counts_in_the_flow_inside_if_that_is_asked_for() {
    let packet = ipv6(4, &ipv4(TCP, &tcp()));
    assert_eq!(flow(&packet, INNER), (key4(TCP, PORTS), Some(0x10)));
    assert_eq!(flow(&packet, OUTER), (key6(4, [0; 2]), None));
    // A packet that is not entered counts by its outermost headers, a first fragment by its ports.
    let first = ipv4_with(UDP, 0x2000, &[], &udp_to(4789, &vxlan(&ethernet(0x0800, &packet))));
    assert_eq!(flow(&first, INNER).0, key4(UDP, [PORTS[0], 4789]));
    let inside = ipv4(4, &ipv4_with(TCP, 0x2000, &[], &tcp()));
    assert_eq!(flow(&inside, INNER), (key4(4, [0; 2]), None));
    // The inner transport header is cut; the outer one is whole.
    let cut = ethernet(0x0800, &ipv4(TCP, &tcp()[..16]));
    let vxlan = ipv4(UDP, &udp_to(4789, &vxlan(&cut)));
    assert_eq!(flow(&vxlan, INNER), (key4(TCP, [0; 2]), None));
}

#[test]
fn what_is_no_ip_packet_is_in_no_flow() {
    for packet in [&[][..], &[0x45; 10], &[0x10; 60]] {
        assert_eq!(flow_of(LinkType::Raw, packet, OUTER), None);
        assert_eq!(dissect(LinkType::Raw, packet, OUTER).flow(), None);
    }
}
