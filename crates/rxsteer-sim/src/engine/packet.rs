//! Packets and flows.

use rxsteer_core::FlowHash;

/// A time as a float. Times are below 2^63 (a run lasts at most a day). So this conversion takes one instruction
/// instead of seven.
#[inline(always)]
pub(crate) fn float_ns(at_ns: u64) -> f64 {
    at_ns as i64 as f64
}

/// The time of a float, truncated; see [`float_ns`].
#[inline(always)]
pub(crate) fn whole_ns(at_ns: f64) -> u64 {
    (at_ns as i64).cast_unsigned()
}

/// The `data` of a packet of a burst, which belongs to no window and no request.
pub(crate) const BURST: u32 = u32::MAX;

/// One packet, from the wire to the end of its processing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// When the packet arrives at the NIC.
    pub(crate) arrived_ns: u64,
    /// The index of the packet's flow.
    pub(crate) flow: u32,
    /// The number of the packet in its flow, from 1, in the order of arrival at the NIC.
    pub(crate) number: u32,
    /// In a stream: the number of a data packet, or how many data packets an acknowledgement reports as received.
    pub(crate) data: u32,
    /// In an acknowledgement: how many data packets it reports as lost.
    pub(crate) more: u32,
    /// The bytes of the frame.
    pub(crate) bytes: u32,
    /// The CPU of the previous step.
    pub(crate) cpu: u16,
    /// The producer that queued the packet: the RX queue as the policy sees it.
    pub(crate) producer: u16,
}

/// One direction of a connection, or a flow that has only one.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) hash: FlowHash,
    pub(crate) traffic: u16,
    pub(crate) role: Role,
    /// The RX queue that the flow arrives on.
    pub(crate) queue: u32,
    /// The NIC that the flow arrives on.
    pub(crate) nic: u16,
    /// The NIC that the flow is forwarded to.
    pub(crate) out: Option<u16>,
    /// The number of packets that came to the NIC.
    pub(crate) sent: u32,
    /// The numbers of the last packets whose processing began and ended.
    pub(crate) started: u32,
    pub(crate) ended: u32,
    /// The CPU where the processing of the last packet began.
    pub(crate) cpu: u16,
    /// The window in which the flow was last counted on its CPU; see [`super::cpu::WINDOW_NS`].
    pub(crate) window: u32,
    /// The flow's packets that reached their destination in the measured part.
    pub(crate) arrived: u64,
}

/// The kind of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Data of a stream; holds the connection.
    Data(u32),
    /// Acknowledgements of a stream.
    Ack(u32),
    /// Requests of a client.
    Request(u32),
    /// Packets without an answer; holds the thread that reads them, plus one.
    Packet(u32),
}
