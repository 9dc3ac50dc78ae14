//! The link headers, tags and labels from the start of a frame to its network header.

use crate::bytes::{array, be16, byte};

/// The largest number of VLAN and VN tags skipped in one frame. Two are common (QinQ); four leaves a margin. A
/// frame with more tags is not treated as IP.
const MAX_TAGS: usize = 4;
/// The largest number of MPLS labels skipped in one frame.
const MAX_LABELS: usize = 16;

/// The kind of header that the frames of a capture or device begin with.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet II or 802.3.
    Ethernet,
    /// Linux "cooked" capture, version 1: 16 bytes.
    LinuxSll,
    /// Linux "cooked" capture, version 2: 20 bytes.
    LinuxSll2,
    /// BSD loopback: an address family in the byte order of the machine that wrote the capture.
    Null,
    /// OpenBSD loopback: an address family in network byte order.
    Loop,
    /// No link header; the version field distinguishes IPv4 from IPv6.
    Raw,
    /// No link header, IPv4.
    Ipv4,
    /// No link header, IPv6.
    Ipv6,
}

impl LinkType {
    /// All supported link types.
    pub const ALL: [LinkType; 8] = [
        LinkType::Ethernet,
        LinkType::LinuxSll,
        LinkType::LinuxSll2,
        LinkType::Null,
        LinkType::Loop,
        LinkType::Raw,
        LinkType::Ipv4,
        LinkType::Ipv6,
    ];

    /// The link type of a capture file's LINKTYPE_ number, or of the DLT_ number that some systems wrote in its
    /// place for raw IP (12, 14). `None` for numbers that are not supported.
    #[must_use]
    pub const fn from_dlt(dlt: u32) -> Option<LinkType> {
        Some(match dlt {
            1 => LinkType::Ethernet,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            0 => LinkType::Null,
            108 => LinkType::Loop,
            12 | 14 | 101 => LinkType::Raw,
            228 => LinkType::Ipv4,
            229 => LinkType::Ipv6,
            _ => return None,
        })
    }

    /// The LINKTYPE_ number of the link type, as capture files have it: <https://www.tcpdump.org/linktypes.html>.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            LinkType::Ethernet => 1,
            LinkType::LinuxSll => 113,
            LinkType::LinuxSll2 => 276,
            LinkType::Null => 0,
            LinkType::Loop => 108,
            LinkType::Raw => 101,
            LinkType::Ipv4 => 228,
            LinkType::Ipv6 => 229,
        }
    }

    /// The name that libpcap uses for the link type, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LinkType::Ethernet => "ethernet",
            LinkType::LinuxSll => "linux_sll",
            LinkType::LinuxSll2 => "linux_sll2",
            LinkType::Null => "null",
            LinkType::Loop => "loop",
            LinkType::Raw => "raw",
            LinkType::Ipv4 => "ipv4",
            LinkType::Ipv6 => "ipv6",
        }
    }
}

/// The network header that the link header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Ipv4,
    Ipv6,
    /// IP; only the version field gives the version (raw IP).
    AnyIp,
    /// Another protocol, or a link header that is cut off.
    Other,
}

/// Skips the link header. Returns the next header and its offset.
#[inline]
pub(crate) fn network(link: LinkType, frame: &[u8]) -> (Network, usize) {
    let found = match link {
        LinkType::Ethernet => return ethernet(frame, 0),
        LinkType::LinuxSll => be16(frame, 14).map(|protocol| ethertype(frame, protocol, 16)),
        LinkType::LinuxSll2 => be16(frame, 0).map(|protocol| ethertype(frame, protocol, 20)),
        LinkType::Null | LinkType::Loop => array(frame, 0).map(|family| (loopback(*family), 4)),
        LinkType::Raw => Some((Network::AnyIp, 0)),
        LinkType::Ipv4 => Some((Network::Ipv4, 0)),
        LinkType::Ipv6 => Some((Network::Ipv6, 0)),
    };
    found.unwrap_or((Network::Other, 0))
}

/// Skips an Ethernet header at `offset`. An 802.3 frame has a length in place of the ethertype. No ethertype is
/// that small, so such a frame gives `Other` without a separate case.
#[inline]
pub(crate) fn ethernet(frame: &[u8], offset: usize) -> (Network, usize) {
    match be16(frame, offset + 12) {
        Some(kind) => ethertype(frame, kind, offset + 14),
        None => (Network::Other, 0),
    }
}

/// The network header that an ethertype announces at `offset`, after any tags, labels and PPPoE header.
#[inline]
pub(crate) fn ethertype(frame: &[u8], kind: u16, offset: usize) -> (Network, usize) {
    tags(frame, kind, offset).unwrap_or((Network::Other, 0))
}

#[inline]
fn tags(frame: &[u8], mut kind: u16, mut offset: usize) -> Option<(Network, usize)> {
    for _ in 0..=MAX_TAGS {
        // Each tag ends with the ethertype of the next header.
        offset += match kind {
            0x0800 => return Some((Network::Ipv4, offset)),
            0x86dd => return Some((Network::Ipv6, offset)),
            0x8847 | 0x8848 => return mpls(frame, offset),
            0x8864 => return pppoe(frame, offset),
            0x8100 | 0x88a8 | 0x9100 => 4,
            // VN-Tag: used between a switch and the virtual ports of its extenders.
            0x8926 => 6,
            _ => return None,
        };
        kind = be16(frame, offset - 2)?;
    }
    None
}

/// Skips an MPLS label stack. The stack does not name its payload. As in routers that spread load, the first
/// nibble after the bottom label decides: 4 and 6 are IP. A pseudo-wire's control word begins with 0 or 1 and is
/// not treated as IP.
fn mpls(frame: &[u8], mut offset: usize) -> Option<(Network, usize)> {
    for _ in 0..MAX_LABELS {
        let label: &[u8; 4] = array(frame, offset)?;
        offset += 4;
        if label[2] & 1 == 1 {
            return by_version(frame, offset);
        }
    }
    None
}

/// IPv4 or IPv6 by the version nibble, when no other field gives the version; `None` for other values.
pub(crate) fn by_version(frame: &[u8], offset: usize) -> Option<(Network, usize)> {
    match byte(frame, offset)? >> 4 {
        4 => Some((Network::Ipv4, offset)),
        6 => Some((Network::Ipv6, offset)),
        _ => None,
    }
}

/// Skips a PPPoE session header (RFC 2516: version 1, type 1, code 0).
fn pppoe(frame: &[u8], offset: usize) -> Option<(Network, usize)> {
    let header: &[u8; 6] = array(frame, offset)?;
    if header[0] != 0x11 || header[1] != 0 {
        return None;
    }
    ppp(frame, offset + 6)
}

/// Skips a PPP header: the protocol field, with or without the address and control bytes. The protocol field may
/// be two bytes, or compressed to one byte (an odd first byte; RFC 1661 section 6.5).
pub(crate) fn ppp(frame: &[u8], mut offset: usize) -> Option<(Network, usize)> {
    if be16(frame, offset) == Some(0xff03) {
        offset += 2;
    }
    let first = byte(frame, offset)?;
    let (protocol, length) =
        if first & 1 == 1 { (u16::from(first), 1) } else { (be16(frame, offset)?, 2) };
    match protocol {
        0x0021 => Some((Network::Ipv4, offset + length)),
        0x0057 => Some((Network::Ipv6, offset + length)),
        _ => None,
    }
}

/// The protocol of an address family in a loopback header. Families are small numbers, so a large number was
/// written in the other byte order. IPv6 is 10 on Linux, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS;
/// IPv4 is 2 everywhere.
fn loopback(family: [u8; 4]) -> Network {
    let big = u32::from_be_bytes(family);
    match if big > 0xffff { big.swap_bytes() } else { big } {
        2 => Network::Ipv4,
        10 | 24 | 28 | 30 => Network::Ipv6,
        _ => Network::Other,
    }
}
