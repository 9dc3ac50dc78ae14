//! The dissector: the class of a frame, its flow, and where its headers are.

pub use crate::ip::Malformed;
use crate::ip::{self, IpPacket};
use crate::link::{LinkType, Network, network};
pub use crate::options::DissectOptions;
use crate::tunnel_id::{self, TunnelKinds};
use crate::{fast_path, tunnel};
use rxsteer_core::FlowKey;

/// The largest number of nested tunnels that are entered.
const MAX_TUNNELS: u8 = 4;

/// The class of a frame, by its outermost IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrameClass {
    /// The frame has a readable IP header.
    Ip,
    /// The link header does not announce IP, or is cut off.
    #[default]
    NotIp,
    /// The link header announces IP, but the outermost IP header cannot be read.
    Malformed(Malformed),
}

/// All that [`dissect()`] reads from a frame.
///
/// `class`, `fragment`, `transport`, `transport_ports` and `transport_truncated` describe the outermost IP packet,
/// whatever tunnels were entered. `key` and the two offsets describe the packet that the key was read from: the
/// innermost packet that was entered, or the outermost one without tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dissection {
    /// The class of the frame.
    pub class: FrameClass,
    /// The steering key; the default key (`ip_version` 0) unless `class` is `Ip`.
    pub key: FlowKey,
    /// Whether the packet is a fragment, first or later. A whole packet with an IPv6 fragment header (an "atomic
    /// fragment") is not a fragment.
    pub fragment: bool,
    /// Whether the packet contains the whole fixed header of TCP, UDP, SCTP or DCCP. This can also be true for a
    /// first fragment.
    pub transport: bool,
    /// The source and destination port as read; (0, 0) unless `transport`. The ports of a first fragment are here
    /// but not in `key`.
    pub transport_ports: [u16; 2],
    /// Whether the packet should have a transport header, but the header's fixed part (TCP 20 bytes, UDP 8, SCTP
    /// and DCCP 12) is cut short. The extension headers before it may also be cut short, or be more than are
    /// walked. Never set for later fragments.
    pub transport_truncated: bool,
    /// How many tunnels were entered to find `key`.
    pub tunnels: u8,
    /// The offset of the IP header from the start of the frame, in bytes; 0 unless `class` is `Ip`.
    pub l3_offset: u32,
    /// The offset of the header after the IP header and its extensions, in bytes from the start of the frame. It
    /// may be the end of the frame. 0 when there is no such header, as in later fragments.
    pub l4_offset: u32,
    /// The outermost addresses, transport protocol and ports.
    outer: FlowKey,
    /// The addresses, transport protocol and ports of the packet that `key` was read from.
    inner: FlowKey,
    /// Whether the packet that `key` was read from contains the whole fixed header of its transport.
    pub(crate) inner_transport: bool,
}

impl Dissection {
    /// The directed 5-tuple of the outermost packet. `Some` for every TCP, UDP, SCTP or DCCP packet that contains
    /// its ports, including first fragments.
    #[must_use]
    pub fn outer_flow(&self) -> Option<FlowKey> {
        self.transport.then_some(self.outer)
    }

    /// The directed flow whose statistics count the packet: `key`, always with ports, also those of a first fragment. Later
    /// fragments and protocols without ports have port 0. `None` unless `class` is `Ip`.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> Option<FlowKey> {
        match self.class {
            FrameClass::Ip if self.tunnels == 0 => Some(self.outer),
            // The dissector does not enter fragments inside a tunnel.
            FrameClass::Ip => Some(self.inner),
            _ => None,
        }
    }

    /// Byte 13 of the TCP header at `l4_offset`, which holds its flags; `None` if there is no whole TCP header.
    /// `frame` is the frame that was dissected.
    #[inline]
    #[must_use]
    pub fn tcp_flags(&self, frame: &[u8]) -> Option<u8> {
        let is_tcp = self.flow()?.protocol == ip::TCP && self.inner_transport;
        if is_tcp { frame.get(self.l4_offset as usize + 13).copied() } else { None }
    }

    fn without_key(class: FrameClass) -> Dissection {
        Dissection { class, ..Dissection::default() }
    }

    /// The dissection of a whole TCP or UDP packet in an untagged Ethernet frame.
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
            inner: key,
            inner_transport: true,
        }
    }

    fn outermost(packet: &IpPacket<'_>, l3_offset: usize, keys: TunnelKinds) -> Dissection {
        let mut dissection = Dissection {
            class: FrameClass::Ip,
            fragment: packet.fragment,
            transport: packet.transport,
            transport_ports: [packet.flow.src_port, packet.flow.dst_port],
            transport_truncated: packet.transport_truncated,
            outer: packet.flow,
            ..Dissection::default()
        };
        dissection.take_key(packet, l3_offset, keys);
        dissection
    }

    /// The offsets fit: the headers skipped before a header are limited to a few kilobytes.
    #[allow(clippy::cast_possible_truncation)]
    fn take_key(&mut self, packet: &IpPacket<'_>, l3_offset: usize, keys: TunnelKinds) {
        self.key = packet.key();
        if !keys.is_empty()
            && let Some(tunnel) = tunnel_id::of_packet(packet).filter(|of| keys.contains(of.kind))
        {
            self.key.src_port = (tunnel.id >> 16) as u16;
            self.key.dst_port = tunnel.id as u16;
        }
        self.inner = packet.flow;
        self.inner_transport = packet.transport;
        self.l3_offset = l3_offset as u32;
        self.l4_offset = packet
            .upper
            .map_or(0, |(_, offset)| if offset <= packet.bytes.len() { offset as u32 } else { 0 });
    }
}

/// Reads the headers of one frame.
///
/// It never reads past `frame`, never panics and allocates nothing. If the inside of a tunnel cannot be read or is
/// a fragment, the key is that of the last packet that could be read. A fragment of a tunnel packet is not
/// entered, since its later fragments could not be entered either.
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

/// [`dissect()`] without the fast path. Public for the tests and the fuzz target, which check that the fast path
/// differs only in time.
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
    let keys = options.key_tunnels;
    let mut dissection = Dissection::outermost(&packet, offset, keys);
    while options.inner && dissection.tunnels < MAX_TUNNELS {
        let Some((inner, offset)) = inside(&packet) else { break };
        dissection.tunnels += 1;
        dissection.take_key(&inner, offset, keys);
        packet = inner;
    }
    dissection
}

/// The packet inside a tunnel packet, if it is suitable for steering.
fn inside<'a>(packet: &IpPacket<'a>) -> Option<(IpPacket<'a>, usize)> {
    if packet.fragment {
        return None;
    }
    let (protocol, offset) = packet.upper?;
    let (next, offset) = tunnel::enter(packet.bytes, protocol, offset)?;
    let inner = ip::read(packet.bytes, next, offset).ok()?;
    (!inner.fragment).then_some((inner, offset))
}
