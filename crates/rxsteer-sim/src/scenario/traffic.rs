//! What is sent, and in what way.

use std::sync::Arc;

/// One kind of traffic: a number of alike connections or flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// What it is called in results.
    pub name: String,
    /// The card it arrives on.
    pub nic: usize,
    /// The card it is forwarded to; `None`: it is for this machine.
    pub out: Option<usize>,
    /// Whether forwarding translates addresses, so that the two directions of a connection have
    /// different hashes.
    pub translated: bool,
    /// Connections or flows.
    pub flows: u32,
    /// When it begins.
    pub start_ns: u64,
    /// Over how long its connections begin, evenly.
    pub ramp_ns: u64,
    /// Its way of sending.
    pub load: Load,
}

/// A way of sending.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// As fast as windows and losses allow, like bulk TCP.
    Stream(Stream),
    /// At a constant rate, whatever happens.
    Constant(Constant),
    /// A request, its answer, a pause, and so on: a closed loop.
    Requests(Requests),
    /// What was recorded, once.
    Recorded(Recorded),
}

/// Bulk data with a window: Reno over packet numbers that are never used twice, as QUIC's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Bytes of a full frame.
    pub frame_bytes: u32,
    /// Bytes of an acknowledgement's frame.
    pub ack_bytes: u32,
    /// Data packets for each acknowledgement.
    pub packets_per_ack: u32,
    /// The largest window, in packets.
    pub window: u32,
    /// Least time without an acknowledgement after which all in flight counts as lost.
    pub min_rto_ns: u64,
    /// What the application does with each packet, where it is for this machine: cost per packet. It
    /// acknowledges then what it has read; without (0), the protocol does.
    pub application: f64,
}

/// Packets at a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Packets per second, all flows together.
    pub rate: f64,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// How they are divided among the flows.
    pub share: Share,
    /// Whether gaps are exponential (a Poisson process) or all alike.
    pub poisson: bool,
    /// What the application does with each packet, where it is for this machine: cost per packet.
    pub application: f64,
}

/// How packets are divided among flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Each has as many.
    Equal,
    /// The `k`-th has a share as `k` to the minus this.
    Zipf(f64),
}

/// Requests and answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// Bytes of a request's frame.
    pub request_bytes: u32,
    /// Bytes of an answer's frame.
    pub response_bytes: u32,
    /// Mean pause of a client between an answer and its next request; exponential.
    pub think_ns: f64,
    /// Threads that serve; `None`: one for each connection. Connections are divided among them.
    pub threads: Option<u32>,
    /// What serving a request costs the thread, on average.
    pub service: f64,
    /// Whether that cost is exponential or always the same.
    pub service_exponential: bool,
}

/// Packets as they were recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// In the order of time. Shared, since a comparison has a scenario for each policy.
    pub packets: Arc<[RecordedPacket]>,
    /// By flow the hash it is steered by, as the recording's dissection gave it.
    pub hashes: Vec<u32>,
    /// What the application does with each packet, where it is for this machine: cost per packet.
    pub application: f64,
}

/// One recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPacket {
    /// After the beginning of the recording.
    pub at_ns: u64,
    /// Its flow, an index into the hashes.
    pub flow: u32,
    /// Bytes of its frame.
    pub bytes: u32,
}
