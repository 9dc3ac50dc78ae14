//! What a frame is, which flow it belongs to, and where its headers are.

use crate::ip::{self, IpPacket};
use crate::link::{LinkType, Network, network};
use crate::{fast_path, tunnel};
use rxsteer_core::FlowKey;

/// Most tunnels entered one inside the other.
const MAX_TUNNELS: u8 = 4;

/// How far to look into a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DissectOptions {
    /// Take the key from inside IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U tunnels: their outer
    /// addresses are those of two tunnel ends, which would put all that they carry on one CPU.
    pub inner: bool,
}

/// What a frame is, as far as its outermost IP header shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrameClass {
    /// It has an IP header that can be read.
    Ip,
    /// It does not claim to carry IP, or its link header is cut off.
    #[default]
    NotIp,
    /// It claims to carry IP, but its outermost IP header cannot be read.
    Malformed(Malformed),
}

/// Why the outermost IP header of a frame cannot be read.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The link header says IPv4, and less than the 20 fixed bytes of a header are there.
    Ipv4Truncated,
    /// The link header says IPv4 and the version field something else.
    Ipv4BadVersion,
    /// The IPv4 header claims to be shorter than its own 20 fixed bytes.
    Ipv4BadHeaderLength,
    /// The IPv4 packet claims to be shorter than its header (0 is fine: segmentation offload).
    Ipv4BadTotalLength,
    /// The link header says IPv6, and less than the 40 bytes of a header are there.
    Ipv6Truncated,
    /// The link header says IPv6 and the version field something else.
    Ipv6BadVersion,
    /// A raw IP frame without a single byte.
    IpTruncated,
    /// A raw IP frame whose version is neither 4 nor 6.
    IpBadVersion,
}

impl Malformed {
    /// Every reason, in the order of their discriminants, so `reason as usize` is its index.
    pub const ALL: [Malformed; 8] = [
        Malformed::Ipv4Truncated,
        Malformed::Ipv4BadVersion,
        Malformed::Ipv4BadHeaderLength,
        Malformed::Ipv4BadTotalLength,
        Malformed::Ipv6Truncated,
        Malformed::Ipv6BadVersion,
        Malformed::IpTruncated,
        Malformed::IpBadVersion,
    ];

    /// The reason as counters and JSON spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::Ipv4Truncated => "ipv4_truncated",
            Malformed::Ipv4BadVersion => "ipv4_bad_version",
            Malformed::Ipv4BadHeaderLength => "ipv4_bad_header_length",
            Malformed::Ipv4BadTotalLength => "ipv4_bad_total_length",
            Malformed::Ipv6Truncated => "ipv6_truncated",
            Malformed::Ipv6BadVersion => "ipv6_bad_version",
            Malformed::IpTruncated => "ip_truncated",
            Malformed::IpBadVersion => "ip_bad_version",
        }
    }
}

/// All that [`dissect()`] reads in a frame.
///
/// `class`, `fragment`, `transport`, `transport_ports` and `transport_truncated` describe the
/// outermost IP packet, whatever tunnels were entered; `key` and the two offsets of the packet
/// that the key was read from, the outermost one unless tunnels were entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dissection {
    /// What the frame is.
    pub class: FrameClass,
    /// What steering goes by; the default key (`ip_version` 0) unless `class` is `Ip`.
    pub key: FlowKey,
    /// The packet is a fragment, first or later. An IPv6 fragment header on a whole packet
    /// (an "atomic fragment") does not make it one.
    pub fragment: bool,
    /// The packet carries the whole fixed header of TCP, UDP, SCTP or DCCP, as a first fragment
    /// does too.
    pub transport: bool,
    /// Source and destination port as read; (0, 0) unless `transport`. In a first fragment they
    /// are here but not in `key`.
    pub transport_ports: [u16; 2],
    /// The packet should carry a transport header, but the header's fixed part (TCP 20 bytes, UDP
    /// 8, SCTP and DCCP 12) is cut short, or the extension headers before it are, or are more than
    /// are walked. The ports, which come first, are used where they are there: `transport` says so.
    /// Never set for later fragments.
    pub transport_truncated: bool,
    /// How many tunnels were entered to find `key`.
    pub tunnels: u8,
    /// Where the IP header begins, in bytes from the start of the frame; 0 unless `Ip`.
    pub l3_offset: u32,
    /// Where the header after the IP header and its extensions begins, likewise; it may lie at
    /// the end of the frame. 0 when there is none, as in later fragments.
    pub l4_offset: u32,
    /// The outermost addresses, transport protocol and ports.
    outer: FlowKey,
    /// Whether the packet that `key` was read from has the whole fixed header of its transport.
    inner_transport: bool,
}

impl Dissection {
    /// The directed 5-tuple of the outermost packet, by which flows are counted: that of every
    /// TCP, UDP, SCTP or DCCP packet that carries its ports, first fragments among them.
    #[must_use]
    pub fn outer_flow(&self) -> Option<FlowKey> {
        self.transport.then_some(self.outer)
    }

    /// The directed flow whose statistics count the packet: `key`, with the ports that a first
    /// fragment carries. Later fragments and protocols without ports have port 0. `None` unless
    /// `class` is `Ip`.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> Option<FlowKey> {
        match self.class {
            FrameClass::Ip if self.tunnels == 0 => Some(self.outer),
            // Fragments inside a tunnel are not entered.
            FrameClass::Ip => Some(self.key),
            _ => None,
        }
    }

    /// The flags of the TCP header that `l4_offset` leads to, as they stand in its byte 13; `None`
    /// without a whole one. `frame` is the frame that was dissected.
    #[inline]
    #[must_use]
    pub fn tcp_flags(&self, frame: &[u8]) -> Option<u8> {
        let is_tcp = self.flow()?.protocol == ip::TCP && self.inner_transport;
        if is_tcp { frame.get(self.l4_offset as usize + 13).copied() } else { None }
    }

    fn without_key(class: FrameClass) -> Dissection {
        Dissection { class, ..Dissection::default() }
    }

    /// Of a whole TCP or UDP packet in an untagged Ethernet frame.
    #[inline]
    fn fast_path(key: FlowKey, l4_offset: u32) -> Dissection {
        Dissection {
            class: FrameClass::Ip,
            key,
            fragment: false,
            transport: true,
            transport_ports: [key.src_port, key.dst_port],
            transport_truncated: false,
            tunnels: 0,
            l3_offset: fast_path::ETHERNET,
            l4_offset,
            outer: key,
            inner_transport: true,
        }
    }

    fn outermost(packet: &IpPacket<'_>, l3_offset: usize) -> Dissection {
        let mut dissection = Dissection {
            class: FrameClass::Ip,
            fragment: packet.fragment,
            transport: packet.transport,
            transport_ports: [packet.flow.src_port, packet.flow.dst_port],
            transport_truncated: packet.transport_truncated,
            outer: packet.flow,
            ..Dissection::default()
        };
        dissection.take_key(packet, l3_offset);
        dissection
    }

    /// Offsets fit: what is skipped before a header is bounded to a few kilobytes.
    #[allow(clippy::cast_possible_truncation)]
    fn take_key(&mut self, packet: &IpPacket<'_>, l3_offset: usize) {
        self.key = packet.key();
        self.inner_transport = packet.transport;
        self.l3_offset = l3_offset as u32;
        self.l4_offset = packet
            .upper
            .map_or(0, |(_, offset)| if offset <= packet.bytes.len() { offset as u32 } else { 0 });
    }
}

/// Reads the headers of one frame.
///
/// Never reads past `frame`, never panics, allocates nothing. A tunnel whose inside cannot be
/// read, or is a fragment, keeps the key of the last packet that could; a fragment of a tunnel
/// packet is not entered, since its later fragments could not be.
#[inline]
#[must_use]
pub fn dissect(link: LinkType, frame: &[u8], options: DissectOptions) -> Dissection {
    if link == LinkType::Ethernet {
        if let Some(packet) = fast_path::ipv4(frame, options) {
            return Dissection::fast_path(packet.key(), fast_path::IPV4_TRANSPORT);
        }
        if let Some(packet) = fast_path::ipv6(frame, options) {
            return Dissection::fast_path(packet.key(), fast_path::IPV6_TRANSPORT);
        }
    }
    dissect_by_walk(link, frame, options)
}

/// [`dissect()`] without its short cut for plain frames; public for the tests and the fuzz target
/// that prove the short cut to be none but in time.
#[doc(hidden)]
#[must_use]
pub fn dissect_by_walk(link: LinkType, frame: &[u8], options: DissectOptions) -> Dissection {
    let (next, offset) = network(link, frame);
    if next == Network::Other {
        return Dissection::without_key(FrameClass::NotIp);
    }
    let mut packet = match ip::read(frame, next, offset) {
        Ok(packet) => packet,
        Err(reason) => return Dissection::without_key(FrameClass::Malformed(reason)),
    };
    let mut dissection = Dissection::outermost(&packet, offset);
    while options.inner && dissection.tunnels < MAX_TUNNELS {
        let Some((inner, offset)) = inside(&packet) else { break };
        dissection.tunnels += 1;
        dissection.take_key(&inner, offset);
        packet = inner;
    }
    dissection
}

/// The packet a tunnel packet carries, if steering can go by it.
fn inside<'a>(packet: &IpPacket<'a>) -> Option<(IpPacket<'a>, usize)> {
    if packet.fragment {
        return None;
    }
    let (protocol, offset) = packet.upper?;
    let (next, offset) = tunnel::enter(packet.bytes, protocol, offset)?;
    let inner = ip::read(packet.bytes, next, offset).ok()?;
    (!inner.fragment).then_some((inner, offset))
}
