//! The numbers that identify one direction of a tunnel to its two ends, and the kinds of tunnels that have them.
//!
//! Such a number can replace the ports in the steering key ([`TunnelKinds`] in
//! [`DissectOptions`](crate::DissectOptions)). It is in the first bytes of a packet, and is readable even if the inner
//! packet is encrypted:
//!
//! | kind | where | its number | packets without it |
//! |---|---|---|---|
//! | ESP | protocol 50, or UDP port 4500 (RFC 4303, 3948) | SPI | IKE (4 zeros first), NAT keepalives (1 byte) |
//! | GTP-U | UDP to port 2152 (3GPP TS 29.281) | TEID of a G-PDU or an end marker | echo, error indication, other versions |
//! | L2TPv3 | protocol 115, or UDP port 1701 (RFC 3931) | session id of a data packet | control (session 0, or the T bit); L2TPv2 |
//! | WireGuard | UDP port 51820 (the protocol paper, 5.4.6) | receiver index of transport data | handshakes, cookies |
//! | VXLAN, Geneve | UDP to ports 4789 and 8472, 6081 (RFC 7348, 8926) | VNI | other versions, control packets |
//!
//! Each direction of a tunnel has a separate number (except for a VNI), and a new one after a rekey. Packets without the
//! number keep their normal key: addresses and ports. So do all fragments, since later fragments do not contain the
//! number: one datagram has one key.

use crate::bytes::{array, be32};
use crate::ip::{IpPacket, UDP};
use crate::link::{LinkType, Network, network};
use core::fmt;
use core::str::FromStr;

const ESP: u8 = 50;
const L2TP: u8 = 115;

/// A kind of tunnel whose packets have a number.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelKind {
    /// IPsec ESP, also in UDP: the SPI.
    Esp = 1,
    /// GTP-U: the TEID.
    Gtp = 2,
    /// L2TPv3: the session.
    L2tp = 4,
    /// `WireGuard`: the receiver's index.
    Wireguard = 8,
    /// VXLAN: the VNI.
    Vxlan = 16,
    /// Geneve: the VNI.
    Geneve = 32,
}

/// The number of a packet's tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelId {
    /// The kind of tunnel.
    pub kind: TunnelKind,
    /// The number; not 0, except for a VNI.
    pub id: u32,
}

/// The kinds of tunnels whose number replaces the ports in the steering key. The default is none.
///
/// As text: `none`, `all`, or names separated by commas, as in `esp,gtp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TunnelKinds(u8);

impl TunnelKinds {
    /// No kind: keys use ports.
    pub const NONE: TunnelKinds = TunnelKinds(0);
    /// Every kind that can be chosen.
    pub const ALL: TunnelKinds = TunnelKinds(15);

    /// The kinds that can be chosen, by name. Tunnels with a VNI are not included: their senders vary the source port.
    pub const NAMES: [(&'static str, TunnelKind); 4] = [
        ("esp", TunnelKind::Esp),
        ("gtp", TunnelKind::Gtp),
        ("l2tp", TunnelKind::L2tp),
        ("wireguard", TunnelKind::Wireguard),
    ];

    /// Whether no kind is chosen.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `kind` is chosen.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, kind: TunnelKind) -> bool {
        self.0 & kind as u8 != 0
    }

    /// One bit for each kind, the values of [`TunnelKind`].
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The kinds with these bits; others are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> TunnelKinds {
        TunnelKinds(bits & TunnelKinds::ALL.0)
    }
}

impl fmt::Display for TunnelKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TunnelKinds::NONE => return f.write_str("none"),
            TunnelKinds::ALL => return f.write_str("all"),
            _ => {}
        }
        let chosen = TunnelKinds::NAMES.iter().filter(|(_, kind)| self.contains(*kind));
        for (index, (name, _)) in chosen.enumerate() {
            write!(f, "{}{name}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A part of a text is not a kind of tunnel that can be chosen; holds the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelKindsError(String);

impl fmt::Display for TunnelKindsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is no tunnel whose number can be a key: there are esp, gtp, l2tp and wireguard, several as in \
             esp,gtp, or all, or none",
            self.0
        )
    }
}

impl std::error::Error for TunnelKindsError {}

impl FromStr for TunnelKinds {
    type Err = TunnelKindsError;

    fn from_str(text: &str) -> Result<TunnelKinds, TunnelKindsError> {
        match text.trim() {
            "none" => return Ok(TunnelKinds::NONE),
            "all" => return Ok(TunnelKinds::ALL),
            _ => {}
        }
        let mut kinds = TunnelKinds::NONE;
        for part in text.split(',').map(str::trim) {
            let named = TunnelKinds::NAMES.iter().find(|(name, _)| *name == part);
            let (_, kind) = named.ok_or_else(|| TunnelKindsError(part.to_owned()))?;
            kinds.0 |= *kind as u8;
        }
        Ok(kinds)
    }
}

/// The kind of tunnel that UDP between these ports may be. One end of ESP, L2TP and `WireGuard` may have any port.
#[inline(always)]
pub(crate) const fn kind_of_ports(src: u16, dst: u16) -> Option<TunnelKind> {
    match (src, dst) {
        (_, 2152) => Some(TunnelKind::Gtp),
        (_, 4789 | 8472) => Some(TunnelKind::Vxlan),
        (_, 6081) => Some(TunnelKind::Geneve),
        (_, 4500) => Some(TunnelKind::Esp),
        (_, 1701) => Some(TunnelKind::L2tp),
        (_, 51820) => Some(TunnelKind::Wireguard),
        (4500, _) => Some(TunnelKind::Esp),
        (1701, _) => Some(TunnelKind::L2tp),
        (51820, _) => Some(TunnelKind::Wireguard),
        _ => None,
    }
}

/// The number of the tunnel that a frame's outermost packet belongs to. `None` for fragments, and for packets without a
/// number.
#[must_use]
pub fn tunnel_id(link: LinkType, frame: &[u8]) -> Option<TunnelId> {
    let (next, offset) = network(link, frame);
    if next == Network::Other {
        return None;
    }
    of_packet(&crate::ip::read(frame, next, offset).ok()?)
}

/// The number of the tunnel that `packet` belongs to.
pub(crate) fn of_packet(packet: &IpPacket<'_>) -> Option<TunnelId> {
    if packet.fragment {
        return None;
    }
    let (protocol, offset) = packet.upper?;
    let (kind, id) = match protocol {
        ESP => (TunnelKind::Esp, be32(packet.bytes, offset)?),
        L2TP => (TunnelKind::L2tp, be32(packet.bytes, offset)?),
        UDP if packet.transport => {
            let kind = kind_of_ports(packet.flow.src_port, packet.flow.dst_port)?;
            (kind, in_udp(kind, array(packet.bytes, offset + 8)?)?)
        }
        _ => return None,
    };
    let has_vni = matches!(kind, TunnelKind::Vxlan | TunnelKind::Geneve);
    (id != 0 || has_vni).then_some(TunnelId { kind, id })
}

/// The number in the first bytes after a UDP header, if they are a header of `kind`.
fn in_udp(kind: TunnelKind, header: &[u8; 8]) -> Option<u32> {
    let [a, b, c, d, last @ ..] = *header;
    let number = u32::from_be_bytes(last);
    match kind {
        TunnelKind::Esp => Some(u32::from_be_bytes([a, b, c, d])),
        // Version 1: a G-PDU, or the end marker that follows the last G-PDU of a TEID.
        TunnelKind::Gtp => (a >> 4 == 0b0011 && b >= 254).then_some(number),
        // A data packet of version 3.
        TunnelKind::L2tp => (a & 0x80 == 0 && b & 0x0f == 3).then_some(number),
        // Transport data; the index is in little-endian order.
        TunnelKind::Wireguard => ([a, b, c, d] == [4, 0, 0, 0]).then_some(number.swap_bytes()),
        TunnelKind::Vxlan => (a & 0x08 != 0).then_some(number >> 8),
        TunnelKind::Geneve => (a >> 6 == 0 && b & 0x80 == 0).then_some(number >> 8),
    }
}
