//! Flow statistics on the workers: a handler calls this module to count its packets.

use crate::handler::PacketList;
use rxsteer_flows::{FlowPacket, FlowWriter, WhenFull};
use rxsteer_packet::flow_of;

/// Counts the packets of one worker's lists in a flow table. The flow of a packet is that of
/// [`Dissection::flow`](rxsteer_packet::Dissection::flow).
#[derive(Debug)]
pub struct FlowStats {
    writer: FlowWriter,
    when_full: WhenFull,
    without_flow: u64,
}

impl FlowStats {
    /// Counts with `writer`, which must be the writer of the worker's CPU.
    #[must_use]
    pub fn new(writer: FlowWriter, when_full: WhenFull) -> FlowStats {
        FlowStats { writer, when_full, without_flow: 0 }
    }

    /// Counts the packets of a list, with their original lengths and receive times.
    #[inline]
    pub fn record(&mut self, list: &PacketList<'_>) {
        // The options are read once for the list. Reading them for each packet costs 8 ns more (`Packet::flow`).
        let (options, mut without_flow) = (list.options, 0);
        let packets = list.iter().filter_map(|packet| {
            let meta = packet.meta();
            let Some(of) = flow_of(meta.link, packet.bytes(), options) else {
                without_flow += 1;
                return None;
            };
            Some(FlowPacket {
                flow: of.flow,
                time_ns: meta.timestamp_ns,
                bytes: meta.wire_len,
                tcp_flags: of.tcp_flags,
                vlan: of.vlan,
                rx_queue: meta.rx_queue,
            })
        });
        self.writer.update_all(packets, self.when_full);
        self.without_flow += without_flow;
    }

    /// Packets that belong to no flow: frames without an IP packet, or whose IP header can't be read.
    #[must_use]
    pub fn without_flow(&self) -> u64 {
        self.without_flow
    }
}
