//! Packets and flows.

use rxsteer_core::FlowHash;

/// A time as a float. Times that matter are below 2^63 (a run has a day at most), and so converted they
/// take one instruction, not seven.
#[inline(always)]
pub(crate) fn float_ns(at_ns: u64) -> f64 {
    at_ns as i64 as f64
}

/// A time of a float, cut off: as [`float_ns`].
#[inline(always)]
pub(crate) fn whole_ns(at_ns: f64) -> u64 {
    (at_ns as i64).cast_unsigned()
}

/// The `data` of a packet of a burst: nothing waits for it.
pub(crate) const BURST: u32 = u32::MAX;

/// One packet, from the wire to the end of its processing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// When it arrives at the card.
    pub(crate) arrived_ns: u64,
    /// Its flow, an index.
    pub(crate) flow: u32,
    /// Its number among the flow's, from 1, in the order in which they come to the card.
    pub(crate) number: u32,
    /// Of a stream: a data packet's number, or how many data packets an acknowledgement has received.
    pub(crate) data: u32,
    /// Of an acknowledgement: how many data packets it takes for lost.
    pub(crate) more: u32,
    /// Bytes of its frame.
    pub(crate) bytes: u32,
    /// The CPU that did the step before.
    pub(crate) cpu: u16,
    /// Who queued it: the RX queue as the policy sees it.
    pub(crate) producer: u16,
}

/// One direction of a connection, or a flow that has only one.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) hash: FlowHash,
    pub(crate) traffic: u16,
    pub(crate) role: Role,
    /// The RX queue it arrives on.
    pub(crate) queue: u32,
    /// The card it arrives on.
    pub(crate) nic: u16,
    /// The card it is forwarded to.
    pub(crate) out: Option<u16>,
    /// Packets that came to the card.
    pub(crate) sent: u32,
    /// The last packets whose processing began, and ended.
    pub(crate) begun: u32,
    pub(crate) ended: u32,
    /// Where the last one began.
    pub(crate) cpu: u16,
    /// When it was last noted among the flows of its CPU, in [`super::cpu::WINDOW_NS`].
    pub(crate) window: u32,
    /// Packets of it that came to their goal in the measured part.
    pub(crate) arrived: u64,
}

/// What a flow's packets are.
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
