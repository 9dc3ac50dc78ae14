//! From the first byte of a frame to its network header: link headers, tags and labels.

use crate::bytes::{array, be16, byte};

/// Most VLAN and VN tags skipped in one frame. Two are in use (QinQ); four leaves room, and a
/// frame with more is not taken for IP.
const MAX_TAGS: usize = 4;
/// Most MPLS labels skipped in one frame.
const MAX_LABELS: usize = 16;

/// What kind of header the frames of a capture or device begin with.
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
    /// OpenBSD loopback: the same in network byte order.
    Loop,
    /// No link header; the version field distinguishes IPv4 from IPv6.
    Raw,
    /// No link header, IPv4.
    Ipv4,
    /// No link header, IPv6.
    Ipv6,
}

impl LinkType {
    /// Every link type that is understood.
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

    /// The link type of a capture file's LINKTYPE_ number, or of the DLT_ number that some
    /// systems wrote in its place for raw IP (12, 14). `None` for those not understood.
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

    /// The name libpcap knows it by, in lower case.
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

/// Which network header is said to come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Ipv4,
    Ipv6,
    /// It is IP, and the version field alone says which (raw IP).
    AnyIp,
    /// Something else, or the link header is cut off.
    Other,
}

/// Skips the link header: what comes next, and at which byte.
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

/// Skips an Ethernet header that begins at `offset`. A frame of the 802.3 kind has a length in
/// place of the ethertype; no ethertype is that small, so it comes out as `Other` by itself.
#[inline]
pub(crate) fn ethernet(frame: &[u8], offset: usize) -> (Network, usize) {
    match be16(frame, offset + 12) {
        Some(kind) => ethertype(frame, kind, offset + 14),
        None => (Network::Other, 0),
    }
}

/// What an ethertype announces at `offset`, through any tags, labels and PPPoE header.
#[inline]
pub(crate) fn ethertype(frame: &[u8], kind: u16, offset: usize) -> (Network, usize) {
    tags(frame, kind, offset).unwrap_or((Network::Other, 0))
}

#[inline]
fn tags(frame: &[u8], mut kind: u16, mut offset: usize) -> Option<(Network, usize)> {
    for _ in 0..=MAX_TAGS {
        // Each tag ends with the ethertype of what follows it.
        offset += match kind {
            0x0800 => return Some((Network::Ipv4, offset)),
            0x86dd => return Some((Network::Ipv6, offset)),
            0x8847 | 0x8848 => return mpls(frame, offset),
            0x8864 => return pppoe(frame, offset),
            0x8100 | 0x88a8 | 0x9100 => 4,
            // VN-Tag: between a switch and the virtual ports it extends to.
            0x8926 => 6,
            _ => return None,
        };
        kind = be16(frame, offset - 2)?;
    }
    None
}

/// Skips an MPLS label stack. Nothing in it says what it carries, so the first nibble after the
/// bottom label decides, as routers do when they spread load: 4 and 6 are IP; a pseudo-wire's
/// control word begins with 0 or 1, and is left alone.
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

/// IPv4 or IPv6 by the version nibble, where nothing else says; `None` if it is neither.
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

/// Skips a PPP header: the protocol field, with or without the address and control bytes, whole
/// or compressed to one byte (an odd first byte; RFC 1661 section 6.5).
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

/// The address family of a loopback header. Families are small numbers, so a large one was written
/// in the other byte order. IPv6 is 10 on Linux, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on
/// macOS; IPv4 is 2 everywhere.
fn loopback(family: [u8; 4]) -> Network {
    let big = u32::from_be_bytes(family);
    match if big > 0xffff { big.swap_bytes() } else { big } {
        2 => Network::Ipv4,
        10 | 24 | 28 | 30 => Network::Ipv6,
        _ => Network::Other,
    }
}
