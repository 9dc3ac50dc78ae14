//! Flow statistics on the workers: what a handler calls to have its packets counted.

use crate::handler::PacketList;
use rxsteer_flows::{FlowPacket, FlowWriter};
use rxsteer_packet::{DissectOptions, flow_of};

/// What happens to packets of new flows while the flow table has no room, because flows that ended
/// are not collected yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The worker waits for the thread that collects, and nothing is refused. There has to be one.
    Wait,
    /// They are counted as refused, and are in no record.
    Refuse,
}

/// Counts the packets of one worker's lists in a flow table, each in the flow that
/// [`Dissection::flow`](rxsteer_packet::Dissection::flow) names.
#[derive(Debug)]
pub struct FlowStats {
    writer: FlowWriter,
    options: DissectOptions,
    when_full: WhenFull,
    list: Vec<FlowPacket>,
    without_flow: u64,
}

impl FlowStats {
    /// Counts by `writer`, which is that of the worker's CPU.
    #[must_use]
    pub fn new(writer: FlowWriter, options: DissectOptions, when_full: WhenFull) -> FlowStats {
        FlowStats { writer, options, when_full, list: Vec::with_capacity(64), without_flow: 0 }
    }

    /// Counts the packets of a list: their original lengths, at their receive times.
    #[inline]
    pub fn record(&mut self, list: &PacketList<'_>) {
        self.list.clear();
        for packet in list.iter() {
            let meta = packet.meta();
            let Some(of) = flow_of(meta.link, packet.bytes(), self.options) else {
                self.without_flow += 1;
                continue;
            };
            self.list.push(FlowPacket {
                flow: of.flow,
                time_ns: meta.timestamp_ns,
                bytes: meta.wire_len,
                tcp_flags: of.tcp_flags,
            });
        }
        match self.when_full {
            WhenFull::Refuse => {
                self.writer.update_or_refuse(&self.list);
            }
            WhenFull::Wait => {
                let mut done = self.writer.update(&self.list);
                while done < self.list.len() {
                    std::thread::yield_now();
                    done += self.writer.update(&self.list[done..]);
                }
            }
        }
    }

    /// Packets in no flow: frames that carry no IP packet, or whose IP header can't be read.
    #[must_use]
    pub fn without_flow(&self) -> u64 {
        self.without_flow
    }
}
