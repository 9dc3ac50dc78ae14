//! The packet inside a tunnel packet, and its offset.

use crate::bytes::{array, be16, byte};
use crate::ip::UDP;
use crate::link::{Network, by_version, ethernet, ethertype, ppp};

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

/// The ethertype of a whole Ethernet frame inside GRE or Geneve.
const TRANSPARENT_BRIDGING: u16 = 0x6558;
/// The largest number of extension headers walked in a GTP-U header.
const MAX_GTP_EXTENSIONS: usize = 4;

/// The inner packet, if `protocol` at `offset` is a tunnel that is entered. `bytes` ends where the outer packet
/// ends.
pub(crate) fn enter(bytes: &[u8], protocol: u8, offset: usize) -> Option<(Network, usize)> {
    let inner = match protocol {
        IPV4_IN_IP => (Network::Ipv4, offset),
        IPV6_IN_IP => (Network::Ipv6, offset),
        GRE => gre(bytes, offset)?,
        UDP => match be16(bytes, offset + 2)? {
            4789 | 8472 => vxlan(bytes, offset + 8)?,
            6081 => geneve(bytes, offset + 8)?,
            2152 => gtp_u(bytes, offset + 8)?,
            _ => return None,
        },
        _ => return None,
    };
    (inner.0 != Network::Other).then_some(inner)
}

/// GRE (RFC 2784, 2890), and its version 1 as PPTP uses it (RFC 2637).
fn gre(bytes: &[u8], offset: usize) -> Option<(Network, usize)> {
    let flags = be16(bytes, offset)?;
    let protocol = be16(bytes, offset + 2)?;
    let (checksum, routing) = (flags & 0x8000 != 0, flags & 0x4000 != 0);
    let (key, sequence) = (flags & 0x2000 != 0, flags & 0x1000 != 0);
    let acknowledgement = flags & 0x0080 != 0;
    let field = |present: bool| if present { 4 } else { 0 };
    match flags & 7 {
        // The source routes of RFC 1701 have no fixed length, and RFC 2784 removed them.
        0 if !routing => {
            let inner = offset + 4 + field(checksum) + field(key) + field(sequence);
            Some(carried(bytes, protocol, inner))
        }
        // A PPTP packet without a sequence number is an acknowledgement without payload.
        1 if protocol == 0x880b && key && sequence => {
            ppp(bytes, offset + 12 + field(acknowledgement))
        }
        _ => None,
    }
}

/// VXLAN (RFC 7348): 8 bytes with the I flag set, then an Ethernet frame.
fn vxlan(bytes: &[u8], offset: usize) -> Option<(Network, usize)> {
    let header: &[u8; 8] = array(bytes, offset)?;
    (header[0] & 0x08 != 0).then(|| ethernet(bytes, offset + 8))
}

/// Geneve (RFC 8926): version 0, options in units of 4 bytes. Control packets are not entered.
fn geneve(bytes: &[u8], offset: usize) -> Option<(Network, usize)> {
    let header: &[u8; 8] = array(bytes, offset)?;
    let (version, options) = (header[0] >> 6, usize::from(header[0] & 0x3f) * 4);
    let control = header[1] & 0x80 != 0;
    if version != 0 || control {
        return None;
    }
    Some(carried(bytes, u16::from_be_bytes([header[2], header[3]]), offset + 8 + options))
}

/// GRE and Geneve name their payload by an ethertype; one ethertype means an Ethernet frame.
fn carried(bytes: &[u8], protocol: u16, offset: usize) -> (Network, usize) {
    match protocol {
        TRANSPARENT_BRIDGING => ethernet(bytes, offset),
        _ => ethertype(bytes, protocol, offset),
    }
}

/// GTP-U (3GPP TS 29.281): version 1, a G-PDU, with its optional fields and extension headers.
fn gtp_u(bytes: &[u8], offset: usize) -> Option<(Network, usize)> {
    const G_PDU: u8 = 255;
    let header: &[u8; 8] = array(bytes, offset)?;
    let (flags, message) = (header[0], header[1]);
    if flags >> 4 != 0b0011 || message != G_PDU {
        return None;
    }
    let mut inner = offset + 8;
    // If any of the three flags is set, all three optional fields are present. The type of the first extension
    // header counts only with its own flag.
    if flags & 0b111 != 0 {
        inner += 4;
    }
    if flags & 0b100 != 0 {
        let mut extensions = 0;
        while byte(bytes, inner - 1)? != 0 {
            let length = usize::from(byte(bytes, inner)?) * 4;
            if length == 0 || extensions == MAX_GTP_EXTENSIONS {
                return None;
            }
            inner += length;
            extensions += 1;
        }
    }
    by_version(bytes, inner)
}
