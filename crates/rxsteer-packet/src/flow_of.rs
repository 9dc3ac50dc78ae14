//! The flow that a frame counts in, from the frame's bytes.

use crate::bytes::be16;
use crate::dissect::{DissectOptions, dissect_by_walk};
use crate::fast_path;
use crate::ip::TCP;
use crate::link::LinkType;
use rxsteer_core::FlowWords;

/// The properties of one frame that flow statistics use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOfFrame {
    /// The flow, as [`Dissection::flow`](crate::Dissection::flow) returns it.
    pub flow: FlowWords,
    /// The TCP flags, as [`Dissection::tcp_flags`](crate::Dissection::tcp_flags) returns them; 0 without flags.
    pub tcp_flags: u8,
    /// The id of the VLAN tag that follows the Ethernet addresses, if there is one.
    pub vlan: Option<u16>,
}

/// The flow of a frame and its TCP flags. They are those that [`dissect`](crate::dissect()) returns, but this is
/// faster. `None` for a frame without an IP packet, or whose IP header can't be read.
#[inline(always)]
#[must_use]
pub fn flow_of(link: LinkType, frame: &[u8], options: DissectOptions) -> Option<FlowOfFrame> {
    if link == LinkType::Ethernet {
        if let Some(packet) = fast_path::ipv4(frame, options) {
            let tcp_flags = fast_tcp_flags(frame, packet.protocol, fast_path::IPV4_TRANSPORT);
            return Some(FlowOfFrame { flow: packet.words(), tcp_flags, vlan: None });
        }
        if let Some(packet) = fast_path::ipv6(frame, options) {
            let tcp_flags = fast_tcp_flags(frame, packet.protocol, fast_path::IPV6_TRANSPORT);
            return Some(FlowOfFrame { flow: packet.words(), tcp_flags, vlan: None });
        }
    }
    by_walk(link, frame, options)
}

#[inline(always)]
fn fast_tcp_flags(frame: &[u8], protocol: u8, transport: u32) -> u8 {
    // The whole transport header of a fast-path packet is present.
    match frame.get(transport as usize + 13) {
        Some(flags) if protocol == TCP => *flags,
        _ => 0,
    }
}

/// Not inlined, so that the fast path stays short where it is inlined.
#[cold]
#[inline(never)]
fn by_walk(link: LinkType, frame: &[u8], options: DissectOptions) -> Option<FlowOfFrame> {
    let dissection = dissect_by_walk(link, frame, options);
    let tcp_flags = dissection.tcp_flags(frame).unwrap_or(0);
    let vlan = if link == LinkType::Ethernet { vlan(frame) } else { None };
    dissection.flow().map(|flow| FlowOfFrame { flow: flow.into(), tcp_flags, vlan })
}

/// The id of the VLAN tag that follows the addresses of an Ethernet frame, if there is one.
#[must_use]
pub fn vlan(frame: &[u8]) -> Option<u16> {
    let tag = matches!(be16(frame, 12)?, 0x8100 | 0x88a8 | 0x9100);
    be16(frame, 14).filter(|_| tag && frame.len() >= 18).map(|tag| tag & 0xfff)
}
