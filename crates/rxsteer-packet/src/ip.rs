//! One IP header, the extension headers after it, and the ports of the transport they lead to.

use crate::bytes::{array, be16, byte};
use crate::dissect::Malformed;
use crate::link::Network;
use rxsteer_core::FlowKey;

/// Most extension headers walked in one packet. RFC 8200 recommends an order that uses each at
/// most once, destination options twice: seven. A longer chain is steered by its addresses.
const MAX_EXTENSION_HEADERS: usize = 8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const AUTHENTICATION: u8 = 51;

/// Bytes of the fixed header of a transport that has ports; `None` for all other protocols. The
/// ports are the first four in each.
const fn transport_header_length(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(20),
        UDP => Some(8),
        SCTP | DCCP => Some(12),
        _ => None,
    }
}

/// One IP packet as its headers describe it.
pub(crate) struct IpPacket<'a> {
    /// Addresses, transport protocol and ports as read, in a first fragment too.
    pub(crate) flow: FlowKey,
    /// The protocol after the fragment header, or that of `flow` where there is none.
    fragment_protocol: u8,
    /// Whether it is a fragment, first or later.
    pub(crate) fragment: bool,
    /// Whether `flow` has the ports of a transport header.
    pub(crate) transport: bool,
    /// Whether a transport header should be there but is cut short or out of reach.
    pub(crate) transport_truncated: bool,
    /// The protocol after the header chain and the byte it begins at; `None` where the chain
    /// cannot be followed to its end, and in later fragments.
    pub(crate) upper: Option<(u8, usize)>,
    /// The frame up to the end of this packet: link padding cannot pass for its payload.
    pub(crate) bytes: &'a [u8],
}

impl IpPacket<'_> {
    /// The steering key. All fragments of a datagram must share it, so it has no ports in any of
    /// them, and for the protocol what follows the fragment header: the first fragment has the
    /// whole chain of headers, later ones have nothing else.
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
    // 0 is what a device writes that leaves the length to segmentation offload (TSO, BIG TCP).
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
        // The version is there to be read, and a wrong one says more than that bytes are missing.
        Some(first) if first >> 4 != 6 => Malformed::Ipv6BadVersion,
        _ => Malformed::Ipv6Truncated,
    })?;
    if header[0] >> 4 != 6 {
        return Err(Malformed::Ipv6BadVersion);
    }
    // 0 is a jumbogram (RFC 2675) or BIG TCP: the packet is what was captured.
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
    /// From the fragment offset (any unit) and the more-fragments bit.
    ///
    /// Offset 0 and nothing to follow is the whole datagram, also in IPv6, where such an "atomic
    /// fragment" (RFC 6946) has a fragment header all the same. It keeps its ports: no second
    /// part exists that could go to another CPU, and the same connection's packets without
    /// the header must go where it goes. (The kernel's flow dissector takes it for a fragment.)
    #[inline]
    fn of(offset: u16, more: bool) -> Fragment {
        match (offset, more) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        }
    }
}

/// Where the walk along a packet's headers stands.
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
    // A header that is cut is not used, not even where its ports are still there: it is damaged,
    // or the capture's snap length is too short (68 bytes hold 14 of TCP over IPv6), and half a
    // header of one packet beside a whole one of the next must not be two keys of one flow by
    // the accident of where the cut is. The kernel would use the four bytes.
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

/// How a header that stands between the IP header and the transport gives its length.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// It is no extension header: the transport, ESP (which hides the rest), or "no next header".
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
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6. The numbers
            // mean nothing of the kind in IPv4.
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
                // A packet has one fragment header; what a second one claims cannot make whole
                // what the first one split.
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
