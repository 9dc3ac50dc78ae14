//! The header fields that the rules before the policy examine ([`rxsteer_core::matching`]).

use crate::bytes::be16;
use crate::dissect::{DissectOptions, dissect};
use crate::flow_of::vlan;
use crate::link::LinkType;
use crate::tunnel_id::{TunnelKind, tunnel_id};
use rxsteer_core::matching::{Facts, TunnelNumber};

/// The fields of a frame; `None` if it has no readable IP header. The tunnel number is read only if `with_tunnel`.
///
/// The fields belong to the packet that the steering key is read from: the inner one if a tunnel is entered, else the
/// outer one. VLAN and tunnel number are the outermost ones. A frame does not show its interface.
#[must_use]
pub fn facts(
    link: LinkType,
    frame: &[u8],
    options: DissectOptions,
    with_tunnel: bool,
) -> Option<Facts> {
    let dissection = dissect(link, frame, options);
    let flow = dissection.flow()?;
    // Fragments inside a tunnel are not entered.
    let has_ports = dissection.inner_transport && !dissection.fragment;
    // The first two bytes hold the version and the code point, which begins at bit 8 in IPv4 and at bit 4 in IPv6.
    let first = be16(frame, dissection.l3_offset as usize)?;
    let dscp = if flow.ip_version == 4 { first & 0xff } else { first >> 4 & 0xff } >> 2;
    let number = if with_tunnel { tunnel_id(link, frame) } else { None };
    Some(Facts {
        source: flow.src_addr()?,
        destination: flow.dst_addr()?,
        protocol: flow.protocol,
        ports: has_ports.then_some([flow.src_port, flow.dst_port]),
        vlan: if link == LinkType::Ethernet { vlan(frame) } else { None },
        dscp: dscp as u8,
        tunnel: number.and_then(|tunnel| {
            let kind = match tunnel.kind {
                TunnelKind::Esp => TunnelNumber::Spi,
                TunnelKind::Gtp => TunnelNumber::Teid,
                TunnelKind::Vxlan | TunnelKind::Geneve => TunnelNumber::Vni,
                TunnelKind::L2tp | TunnelKind::Wireguard => return None,
            };
            Some((kind, tunnel.id))
        }),
        interface: None,
    })
}
