//! The fast path: it reads the most frequent kinds of frames with one bounds check and without a walk.
//!
//! These frames are Ethernet without a tag; IPv4 without options or IPv6 without extension headers; TCP or UDP with its
//! whole header. They are not fragments, not UDP when tunnels are to be entered, and not UDP of a tunnel whose number
//! belongs to the key. The full dissector must give the same result for every frame read here. All other frames are left
//! to the full dissector (`None`), so this file contains only conditions.

use crate::ip::{TCP, UDP};
use crate::options::DissectOptions;
use crate::tunnel_id::kind_of_ports;
use rxsteer_core::{FlowKey, FlowWords};

/// The length of an Ethernet header: the offset of the IP header on the fast path.
pub(crate) const ETHERNET: u32 = 14;
/// The offsets of the transport header on the fast path, over IPv4 and over IPv6.
pub(crate) const IPV4_TRANSPORT: u32 = ETHERNET + 20;
pub(crate) const IPV6_TRANSPORT: u32 = ETHERNET + 40;

/// The number of bytes read: up to the end of the shorter of the two transport headers.
const IPV4_FRAME: usize = IPV4_TRANSPORT as usize + UDP_HEADER;
const IPV6_FRAME: usize = IPV6_TRANSPORT as usize + UDP_HEADER;
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;

/// The fields of a fast-path packet over IPv4.
#[derive(Clone, Copy)]
pub(crate) struct FastIpv4 {
    pub(crate) src: (u32, u16),
    pub(crate) dst: (u32, u16),
    pub(crate) protocol: u8,
}

/// The fields of a fast-path packet over IPv6.
#[derive(Clone, Copy)]
pub(crate) struct FastIpv6<'a> {
    pub(crate) src: (&'a [u8; 16], u16),
    pub(crate) dst: (&'a [u8; 16], u16),
    pub(crate) protocol: u8,
}

impl FastIpv4 {
    #[inline(always)]
    pub(crate) fn words(self) -> FlowWords {
        let address = |address: u32| u128::from(address.to_be());
        let (src, dst) = ((address(self.src.0), self.src.1), (address(self.dst.0), self.dst.1));
        FlowWords::new(src, dst, self.protocol, 4)
    }

    #[inline]
    pub(crate) fn key(self) -> FlowKey {
        // Four bytes and twelve zeros, built in one register. If they were written separately, the following
        // copies of the key would have to wait for each write.
        let address = |address: u32| u128::from(address.to_be()).to_le_bytes();
        FlowKey {
            src: address(self.src.0),
            dst: address(self.dst.0),
            src_port: self.src.1,
            dst_port: self.dst.1,
            protocol: self.protocol,
            ip_version: 4,
            reserved: [0; 2],
        }
    }
}

impl FastIpv6<'_> {
    #[inline(always)]
    pub(crate) fn words(self) -> FlowWords {
        let address = |address: &[u8; 16]| u128::from_le_bytes(*address);
        let (src, dst) = ((address(self.src.0), self.src.1), (address(self.dst.0), self.dst.1));
        FlowWords::new(src, dst, self.protocol, 6)
    }

    #[inline]
    pub(crate) fn key(self) -> FlowKey {
        FlowKey {
            src: *self.src.0,
            dst: *self.dst.0,
            src_port: self.src.1,
            dst_port: self.dst.1,
            protocol: self.protocol,
            ip_version: 6,
            reserved: [0; 2],
        }
    }
}

/// Reads a fast-path frame with TCP or UDP over IPv4.
#[inline]
pub(crate) fn ipv4(frame: &[u8], options: DissectOptions) -> Option<FastIpv4> {
    let f: &[u8; IPV4_FRAME] = frame.first_chunk()?;
    let protocol = f[23];
    let total_length = usize::from(u16::from_be_bytes([f[16], f[17]]));
    let header_end = 20 + fast_transport(protocol, options)?;
    let is_fast = u16::from_be_bytes([f[12], f[13]]) == 0x0800
        && f[14] == 0x45
        // Not a fragment: the offset is 0 and more-fragments is not set. The don't-fragment bit is ignored.
        && u16::from_be_bytes([f[20], f[21]]) & 0x3fff == 0
        // The transport header lies inside the packet, not in padding after it, and was captured.
        && total_length >= header_end
        && frame.len() >= ETHERNET as usize + header_end;
    let (src_port, dst_port) =
        (u16::from_be_bytes([f[34], f[35]]), u16::from_be_bytes([f[36], f[37]]));
    if !is_fast || may_have_id(protocol, src_port, dst_port, options) {
        return None;
    }
    Some(FastIpv4 {
        src: (u32::from_be_bytes([f[26], f[27], f[28], f[29]]), src_port),
        dst: (u32::from_be_bytes([f[30], f[31], f[32], f[33]]), dst_port),
        protocol,
    })
}

/// Reads a fast-path frame with TCP or UDP over IPv6.
#[inline]
pub(crate) fn ipv6(frame: &[u8], options: DissectOptions) -> Option<FastIpv6<'_>> {
    let f: &[u8; IPV6_FRAME] = frame.first_chunk()?;
    let protocol = f[20];
    let payload_length = usize::from(u16::from_be_bytes([f[18], f[19]]));
    let header = fast_transport(protocol, options)?;
    let is_fast = u16::from_be_bytes([f[12], f[13]]) == 0x86dd
        && f[14] >> 4 == 6
        && payload_length >= header
        && frame.len() >= IPV6_TRANSPORT as usize + header;
    let (src_port, dst_port) =
        (u16::from_be_bytes([f[54], f[55]]), u16::from_be_bytes([f[56], f[57]]));
    if !is_fast || may_have_id(protocol, src_port, dst_port, options) {
        return None;
    }
    Some(FastIpv6 {
        src: (f[22..].first_chunk()?, src_port),
        dst: (f[38..].first_chunk()?, dst_port),
        protocol,
    })
}

/// Whether the number of a tunnel may belong to the key.
#[inline(always)]
fn may_have_id(protocol: u8, src_port: u16, dst_port: u16, options: DissectOptions) -> bool {
    !options.key_tunnels.is_empty()
        && protocol == UDP
        && kind_of_ports(src_port, dst_port).is_some_and(|kind| options.key_tunnels.contains(kind))
}

/// The length of the transport header, if the fast path handles this transport.
#[inline]
fn fast_transport(protocol: u8, options: DissectOptions) -> Option<usize> {
    match protocol {
        TCP => Some(TCP_HEADER),
        UDP if !options.inner => Some(UDP_HEADER),
        _ => None,
    }
}
