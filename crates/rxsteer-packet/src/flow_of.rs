//! From frame bytes to the flow that statistics count it in.

use crate::dissect::{DissectOptions, dissect_by_walk};
use crate::fast_path;
use crate::ip::TCP;
use crate::link::LinkType;
use rxsteer_core::FlowWords;

/// What flow statistics need to know of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOfFrame {
    /// Its flow, as [`Dissection::flow`](crate::Dissection::flow).
    pub flow: FlowWords,
    /// Its TCP flags, as [`Dissection::tcp_flags`](crate::Dissection::tcp_flags); 0 without any.
    pub tcp_flags: u8,
}

/// The flow of a frame and its TCP flags, as [`dissect`](crate::dissect()) returns them, sooner;
/// `None` for a frame that carries no IP packet, or whose IP header can't be read.
#[inline(always)]
#[must_use]
pub fn flow_of(link: LinkType, frame: &[u8], options: DissectOptions) -> Option<FlowOfFrame> {
    if link == LinkType::Ethernet {
        if let Some(packet) = fast_path::ipv4(frame, options) {
            let tcp_flags = fast_tcp_flags(frame, packet.protocol, fast_path::IPV4_TRANSPORT);
            return Some(FlowOfFrame { flow: packet.words(), tcp_flags });
        }
        if let Some(packet) = fast_path::ipv6(frame, options) {
            let tcp_flags = fast_tcp_flags(frame, packet.protocol, fast_path::IPV6_TRANSPORT);
            return Some(FlowOfFrame { flow: packet.words(), tcp_flags });
        }
    }
    by_walk(link, frame, options)
}

#[inline(always)]
fn fast_tcp_flags(frame: &[u8], protocol: u8, transport: u32) -> u8 {
    // Of a plain packet the whole header is there.
    match frame.get(transport as usize + 13) {
        Some(flags) if protocol == TCP => *flags,
        _ => 0,
    }
}

/// Kept out of line, so that the path of the plain frame stays short where it is inlined.
#[cold]
#[inline(never)]
fn by_walk(link: LinkType, frame: &[u8], options: DissectOptions) -> Option<FlowOfFrame> {
    let dissection = dissect_by_walk(link, frame, options);
    let tcp_flags = dissection.tcp_flags(frame).unwrap_or(0);
    dissection.flow().map(|flow| FlowOfFrame { flow: flow.into(), tcp_flags })
}
