//! Frames constructed header by header, for all tests of this crate.

use rxsteer_core::FlowKey;
use rxsteer_packet::LinkType;

pub(crate) const SRC4: [u8; 4] = [10, 0, 0, 1];
pub(crate) const DST4: [u8; 4] = [192, 0, 2, 200];
pub(crate) const SRC6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(crate) const DST6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xee, 2];
pub(crate) const PORTS: [u16; 2] = [40_000, 443];

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const SCTP: u8 = 132;

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

pub(crate) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 2], &[2, 0, 0, 0, 0, 1], &kind.to_be_bytes(), payload])
}

/// The bytes between the ethertype of a VLAN tag and the packet: the tag and the next ethertype.
pub(crate) fn vlan(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[0x20, 0x64], &kind.to_be_bytes(), payload])
}

pub(crate) fn mpls(labels: usize, payload: &[u8]) -> Vec<u8> {
    let stack: Vec<u8> =
        (1..=labels).flat_map(|i| [0, 1, if i == labels { 1 } else { 0 }, 64]).collect();
    join(&[&stack, payload])
}

pub(crate) fn pppoe(protocol: u16, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() + 2) as u16;
    let header = [0x11, 0, 0, 7];
    join(&[&header, &length.to_be_bytes(), &protocol.to_be_bytes(), payload])
}

/// IPv4 with `options` (a multiple of four bytes) and any fragment field.
pub(crate) fn ipv4_with(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let total = (20 + options.len() + payload.len()) as u16;
    let first = 0x45 + (options.len() / 4) as u8;
    let fixed = join(&[&[first, 0], &total.to_be_bytes(), &[0, 9], &fragment.to_be_bytes()]);
    join(&[&fixed, &[64, protocol, 0, 0], &SRC4, &DST4, options, payload])
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, 0x4000, &[], payload)
}

pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    join(&[&[0x60, 0, 0, 0], &length, &[next, 64], &SRC6, &DST6, payload])
}

/// An IPv6 extension header of `8 * units` bytes.
pub(crate) fn extension(next: u8, units: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 8 * usize::from(units)];
    header[0] = next;
    header[1] = units - 1;
    join(&[&header, payload])
}

pub(crate) fn authentication(next: u8, payload: &[u8]) -> Vec<u8> {
    join(&[&[next, 4], &[0; 22], payload])
}

/// `offset` in units of 8 bytes.
pub(crate) fn fragment(next: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let field = (offset << 3 | u16::from(more)).to_be_bytes();
    join(&[&[next, 0], &field, &[0, 0, 0, 1], payload])
}

fn ports(ports: [u16; 2]) -> [u8; 4] {
    let [[a, b], [c, d]] = ports.map(u16::to_be_bytes);
    [a, b, c, d]
}

pub(crate) fn tcp() -> Vec<u8> {
    join(&[&ports(PORTS), &[0; 8], &[0x50, 0x10, 1, 0], &[0; 4]])
}

pub(crate) fn udp_to(port: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    join(&[&ports([PORTS[0], port]), &length, &[0, 0], payload])
}

pub(crate) fn udp() -> Vec<u8> {
    udp_to(PORTS[1], &[])
}

pub(crate) fn sctp() -> Vec<u8> {
    join(&[&ports(PORTS), &[0; 8]])
}

pub(crate) fn gre(flags: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let fields = 4 * (flags & 0xb080).count_ones() as usize;
    join(&[&flags.to_be_bytes(), &protocol.to_be_bytes(), &vec![0; fields], payload])
}

pub(crate) fn vxlan(frame: &[u8]) -> Vec<u8> {
    join(&[&[8, 0, 0, 0, 0, 0, 5, 0], frame])
}

pub(crate) fn geneve(options: usize, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let header = [options as u8, 0];
    join(&[&header, &protocol.to_be_bytes(), &[0; 4], &vec![0; 4 * options], payload])
}

/// A G-PDU with extension headers of the given lengths (units of 4 bytes).
pub(crate) fn gtp_u(extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x30, 255, 0, 0, 0, 0, 0, 1];
    if !extensions.is_empty() {
        header[0] |= 4;
        header.extend([0, 0, 0, 0x85]);
    }
    for (i, &units) in extensions.iter().enumerate() {
        let at = header.len();
        header.resize(at + 4 * usize::from(units), 0);
        header[at] = units;
        if i + 1 < extensions.len() {
            *header.last_mut().unwrap() = 0x85;
        }
    }
    join(&[&header, payload])
}

/// The key of the packets that `ipv4` makes.
pub(crate) fn key4(protocol: u8, ports: [u16; 2]) -> FlowKey {
    let mut key = FlowKey { protocol, ip_version: 4, ..FlowKey::default() };
    key.src[..4].copy_from_slice(&SRC4);
    key.dst[..4].copy_from_slice(&DST4);
    [key.src_port, key.dst_port] = ports;
    key
}

/// The key of the packets that `ipv6` makes.
pub(crate) fn key6(protocol: u8, ports: [u16; 2]) -> FlowKey {
    let [src_port, dst_port] = ports;
    let addresses = FlowKey { src: SRC6, dst: DST6, ..FlowKey::default() };
    FlowKey { src_port, dst_port, protocol, ip_version: 6, ..addresses }
}

/// A loopback header in either byte order.
pub(crate) fn null(family: [u8; 4], payload: &[u8]) -> Vec<u8> {
    join(&[&family, payload])
}

pub(crate) fn sll(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[0, 0, 0, 1, 0, 6], &[0; 8], &kind.to_be_bytes(), payload])
}

pub(crate) fn sll2(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&kind.to_be_bytes(), &[0; 18], payload])
}

/// One valid frame of every link type, encapsulation and transport.
pub(crate) fn samples() -> Vec<(LinkType, Vec<u8>)> {
    let (v4, v6) = (ipv4(TCP, &tcp()), ipv6(TCP, &tcp()));
    let inner = ethernet(0x0800, &v4);
    let extensions = extension(43, 3, &extension(60, 1, &authentication(TCP, &tcp())));
    let packets = [
        ipv4(TCP, &tcp()),
        ipv4(UDP, &udp()),
        ipv4(SCTP, &sctp()),
        ipv4(DCCP, &sctp()),
        ipv4(1, &[8, 0, 0, 0]),
        ipv4_with(TCP, 0, &[1; 40], &tcp()),
        ipv4_with(UDP, 0x2000, &[], &udp()),
        ipv4_with(UDP, 0x00b9, &[], &[0xaa; 64]),
        ipv4(51, &authentication(UDP, &udp())),
        ipv4(4, &v4),
        ipv4(41, &v6),
        ipv4(47, &gre(0, 0x0800, &v4)),
        ipv4(47, &gre(0xb000, 0x6558, &inner)),
        ipv4(47, &gre(0x3081, 0x880b, &[&[0xff, 3, 0, 0x21][..], &v4].concat())),
        ipv4(UDP, &udp_to(4789, &vxlan(&inner))),
        ipv4(UDP, &udp_to(6081, &geneve(3, 0x6558, &inner))),
        ipv4(UDP, &udp_to(2152, &gtp_u(&[1, 2], &v6))),
    ];
    let packets6 = [
        ipv6(TCP, &tcp()),
        ipv6(UDP, &udp()),
        ipv6(0, &extension(TCP, 1, &tcp())),
        ipv6(0, &extensions),
        ipv6(44, &fragment(UDP, 0, true, &udp())),
        ipv6(44, &fragment(UDP, 8, false, &[0xaa; 64])),
        ipv6(44, &fragment(TCP, 0, false, &tcp())),
        ipv6(59, &[]),
        ipv6(UDP, &udp_to(4789, &vxlan(&ethernet(0x86dd, &v6)))),
    ];
    let mut samples = Vec::new();
    for (kind, packet) in packets
        .iter()
        .map(|packet| (0x0800, packet))
        .chain(packets6.iter().map(|packet| (0x86dd, packet)))
    {
        samples.push((LinkType::Ethernet, ethernet(kind, packet)));
        samples.push((LinkType::Ethernet, ethernet(0x8100, &vlan(kind, packet))));
        samples.push((LinkType::Raw, packet.clone()));
    }
    samples.extend([
        (LinkType::Ethernet, ethernet(0x88a8, &vlan(0x8100, &vlan(0x86dd, &v6)))),
        (LinkType::Ethernet, ethernet(0x8847, &mpls(3, &v4))),
        (LinkType::Ethernet, ethernet(0x8864, &pppoe(0x0057, &v6))),
        (LinkType::LinuxSll, sll(0x0800, &v4)),
        (LinkType::LinuxSll2, sll2(0x86dd, &v6)),
        (LinkType::Null, null([30, 0, 0, 0], &v6)),
        (LinkType::Loop, null([0, 0, 0, 2], &v4)),
        (LinkType::Ipv4, v4),
        (LinkType::Ipv6, v6),
    ]);
    samples
}
