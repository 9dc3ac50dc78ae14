//! One IP header, the extension headers after it, and the ports of the transport header; or why the header cannot be
//! read.

use crate::bytes::{array, be16, byte};
use crate::link::Network;
use rxsteer_core::FlowKey;

/// The largest number of extension headers walked in one packet. RFC 8200 recommends an order in which each header
/// occurs at most once, and destination options twice: seven headers. A packet with a longer chain is steered by
/// its addresses.
const MAX_EXTENSION_HEADERS: usize = 8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const AUTHENTICATION: u8 = 51;

/// The length of the fixed header of a transport with ports; `None` for all other protocols. In each of these
/// headers the ports are the first four bytes.
const fn transport_header_length(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(20),
        UDP => Some(8),
        SCTP | DCCP => Some(12),
        _ => None,
    }
}

/// One IP packet, as its headers describe it.
pub(crate) struct IpPacket<'a> {
    /// Addresses, transport protocol and ports as read; a first fragment includes its ports.
    pub(crate) flow: FlowKey,
    /// The protocol after the fragment header; that of `flow` if there is no fragment header.
    fragment_protocol: u8,
    /// Whether the packet is a fragment, first or later.
    pub(crate) fragment: bool,
    /// Whether `flow` includes the ports of a transport header.
    pub(crate) transport: bool,
    /// Whether a transport header should be present but is cut short or out of reach.
    pub(crate) transport_truncated: bool,
    /// The protocol after the header chain and the offset where it begins. `None` when the chain cannot be
    /// followed to its end, and in later fragments.
    pub(crate) upper: Option<(u8, usize)>,
    /// The frame up to the end of this packet, so that link padding is not taken for payload.
    pub(crate) bytes: &'a [u8],
}

impl IpPacket<'_> {
    /// The steering key. All fragments of a datagram must have the same key. So the key of a fragment has no
    /// ports, and its protocol is the one after the fragment header: the first fragment contains the whole chain
    /// of headers, later fragments contain only that protocol number.
    #[inline]
    pub(crate) fn key(&self) -> FlowKey {
        match self.fragment {
            false => self.flow,
            true => {
                FlowKey { src_port: 0, dst_port: 0, protocol: self.fragment_protocol, ..self.flow }
            }
        }
    }
}

/// Why the outermost IP header of a frame cannot be read.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The link header announces IPv4, but fewer than the 20 fixed bytes of a header are present.
    Ipv4Truncated,
    /// The link header announces IPv4, but the version field has another value.
    Ipv4BadVersion,
    /// The IPv4 header length is below the 20 fixed bytes.
    Ipv4BadHeaderLength,
    /// The IPv4 total length is below the header length (0 is valid: segmentation offload).
    Ipv4BadTotalLength,
    /// The link header announces IPv6, but fewer than the 40 bytes of a header are present.
    Ipv6Truncated,
    /// The link header announces IPv6, but the version field has another value.
    Ipv6BadVersion,
    /// A raw IP frame is empty.
    IpTruncated,
    /// The version of a raw IP frame is neither 4 nor 6.
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

    /// The name of the reason in counters and JSON.
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

/// Reads the IP header that `network` announces at `offset`.
#[inline]
pub(crate) fn read(
    frame: &[u8],
    network: Network,
    offset: usize,
) -> Result<IpPacket<'_>, Malformed> {
    match network {
        Network::Ipv4 => ipv4(frame, offset),
        Network::Ipv6 => ipv6(frame, offset),
        Network::AnyIp | Network::Other => match byte(frame, offset).map(|first| first >> 4) {
            Some(4) => ipv4(frame, offset),
            Some(6) => ipv6(frame, offset),
            Some(_) => Err(Malformed::IpBadVersion),
            None => Err(Malformed::IpTruncated),
        },
    }
}

#[inline]
fn ipv4(frame: &[u8], offset: usize) -> Result<IpPacket<'_>, Malformed> {
    let header: &[u8; 20] = array(frame, offset).ok_or(Malformed::Ipv4Truncated)?;
    if header[0] >> 4 != 4 {
        return Err(Malformed::Ipv4BadVersion);
    }
    let header_length = usize::from(header[0] & 0xf) * 4;
    if header_length < 20 {
        return Err(Malformed::Ipv4BadHeaderLength);
    }
    // A device that leaves the length to segmentation offload (TSO, BIG TCP) writes 0.
    let total_length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total_length != 0 && total_length < header_length {
        return Err(Malformed::Ipv4BadTotalLength);
    }
    let end = if total_length == 0 { frame.len() } else { offset + total_length };
    let bytes = frame.get(..end).unwrap_or(frame);

    let mut flow = FlowKey { ip_version: 4, ..FlowKey::default() };
    flow.src[..4].copy_from_slice(&header[12..16]);
    flow.dst[..4].copy_from_slice(&header[16..20]);
    let more_and_offset = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let fragment = Fragment::of(more_and_offset & 0x1fff, more_and_offset & 0x2000 != 0);
    let chain = Chain { protocol: header[9], offset: offset + header_length, fragment };
    Ok(transport(bytes, flow, chain))
}

#[inline]
fn ipv6(frame: &[u8], offset: usize) -> Result<IpPacket<'_>, Malformed> {
    let header: &[u8; 40] = array(frame, offset).ok_or_else(|| match byte(frame, offset) {
        // The version is readable, and a wrong version is a better reason than missing bytes.
        Some(first) if first >> 4 != 6 => Malformed::Ipv6BadVersion,
        _ => Malformed::Ipv6Truncated,
    })?;
    if header[0] >> 4 != 6 {
        return Err(Malformed::Ipv6BadVersion);
    }
    // 0 means a jumbogram (RFC 2675) or BIG TCP: the packet extends to the end of the capture.
    let payload_length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = if payload_length == 0 { frame.len() } else { offset + 40 + payload_length };
    let bytes = frame.get(..end).unwrap_or(frame);

    let mut flow = FlowKey { ip_version: 6, ..FlowKey::default() };
    flow.src.copy_from_slice(&header[8..24]);
    flow.dst.copy_from_slice(&header[24..40]);
    let chain = Chain { protocol: header[6], offset: offset + 40, fragment: Fragment::Whole };
    Ok(transport(bytes, flow, chain))
}

/// Whether a packet is part of a larger datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Whole,
    First,
    Later,
}

impl Fragment {
    /// Classifies by the fragment offset (in any unit) and the more-fragments bit.
    ///
    /// Offset 0 without more fragments is a whole datagram. This also holds in IPv6, where such an "atomic
    /// fragment" (RFC 6946) still has a fragment header. It keeps its ports: there is no second part that could go
    /// to another CPU, and packets of the same connection without the header must go to the same CPU. (The
    /// kernel's flow dissector treats it as a fragment.)
    #[inline]
    fn of(offset: u16, more: bool) -> Fragment {
        match (offset, more) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        }
    }
}

/// The position of the walk through a packet's headers.
struct Chain {
    /// The protocol of the header at `offset`.
    protocol: u8,
    offset: usize,
    fragment: Fragment,
}

/// Follows the chain to the transport header and reads its ports.
#[inline]
fn transport(bytes: &[u8], mut flow: FlowKey, mut chain: Chain) -> IpPacket<'_> {
    let mut fragment_protocol = chain.protocol;
    let mut reached = false;
    for _ in 0..=MAX_EXTENSION_HEADERS {
        if chain.fragment == Fragment::Later {
            break;
        }
        let extension = Extension::of(flow.ip_version, chain.protocol);
        if extension == Extension::None {
            reached = true;
            break;
        }
        let before = chain.fragment;
        if chain.skip(bytes, extension).is_none() {
            break;
        }
        if before == Fragment::Whole {
            fragment_protocol = chain.protocol;
        }
    }

    let header_length = if reached { transport_header_length(chain.protocol) } else { None };
    let there = bytes.len().saturating_sub(chain.offset);
    // A truncated header is not used, not even if its ports are present. It is damaged, or the capture's snap
    // length is too short (68 bytes contain 14 bytes of TCP over IPv6). If half of a header counted, packets of
    // one flow could get two keys, depending on where each was cut. The kernel would use the four bytes.
    let whole = header_length.filter(|length| there >= *length);
    let ports: Option<&[u8; 4]> = whole.and_then(|_| array(bytes, chain.offset));
    flow.protocol = chain.protocol;
    if let Some(&[a, b, c, d]) = ports {
        flow.src_port = u16::from_be_bytes([a, b]);
        flow.dst_port = u16::from_be_bytes([c, d]);
    }
    IpPacket {
        flow,
        fragment_protocol,
        fragment: chain.fragment != Fragment::Whole,
        transport: ports.is_some(),
        transport_truncated: chain.fragment != Fragment::Later
            && (!reached || header_length.is_some() && whole.is_none()),
        upper: if reached { Some((chain.protocol, chain.offset)) } else { None },
        bytes,
    }
}

/// How a header between the IP header and the transport encodes its length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// Not an extension header: the transport, ESP (which hides the rest), or "no next header".
    None,
    /// In units of 8 bytes, not counting the first 8.
    Options,
    /// In units of 4 bytes, not counting the first 8.
    Authentication,
    /// Always 8 bytes.
    Fragment,
}

impl Extension {
    #[inline]
    fn of(ip_version: u8, protocol: u8) -> Extension {
        match (protocol, ip_version) {
            (AUTHENTICATION, _) => Extension::Authentication,
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6. In IPv4 these numbers have other
            // meanings.
            (0 | 43 | 60 | 135 | 139 | 140, 6) => Extension::Options,
            (44, 6) => Extension::Fragment,
            _ => Extension::None,
        }
    }
}

impl Chain {
    /// Steps over one extension header; `None` if it is cut off.
    fn skip(&mut self, bytes: &[u8], extension: Extension) -> Option<()> {
        let [next, length] = *array::<2>(bytes, self.offset)?;
        let length = usize::from(length);
        self.offset += match extension {
            Extension::None => 0,
            Extension::Options => (length + 1) * 8,
            Extension::Authentication => (length + 2) * 4,
            Extension::Fragment => {
                let offset_and_more = be16(bytes, self.offset + 2)?;
                // A packet has one fragment header. A second one cannot make a fragment whole again.
                if self.fragment == Fragment::Whole {
                    self.fragment = Fragment::of(offset_and_more >> 3, offset_and_more & 1 != 0);
                }
                8
            }
        };
        self.protocol = next;
        Some(())
    }
}
