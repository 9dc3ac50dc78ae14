//! The traffic of a scenario.

use super::headers::Headers;
use std::sync::Arc;

/// One kind of traffic: a number of similar connections or flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The name in results.
    pub name: String,
    /// The NIC that the traffic arrives on.
    pub nic: usize,
    /// The NIC that forwards the traffic; `None`: the traffic is addressed to this machine.
    pub out: Option<usize>,
    /// Whether forwarding translates addresses, so that the two directions of a connection have different hashes.
    pub translated: bool,
    /// The header fields of the packets to this machine, for rules before the policy.
    pub headers: Headers,
    /// The number of connections or flows.
    pub flows: u32,
    /// The time of the start.
    pub start_ns: u64,
    /// The time over which the connections begin, evenly spaced.
    pub ramp_ns: u64,
    /// The way of sending.
    pub load: Load,
}

/// A way of sending.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// As fast as windows and losses allow, like bulk TCP.
    Stream(Stream),
    /// At a constant rate, independent of losses.
    Constant(Constant),
    /// A request, its answer, a pause, and so on: a closed loop.
    Requests(Requests),
    /// The recorded packets, once.
    Recorded(Recorded),
}

/// Bulk data with a window: Reno over packet numbers that are never reused, as in QUIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Bytes of a full frame.
    pub frame_bytes: u32,
    /// Bytes of an acknowledgement's frame.
    pub ack_bytes: u32,
    /// The number of data packets per acknowledgement.
    pub packets_per_ack: u32,
    /// The largest window, in packets.
    pub window: u32,
    /// The least time without an acknowledgement after which all packets in flight count as lost.
    pub min_rto_ns: u64,
    /// The application's cost per packet, for traffic addressed to this machine. The application then acknowledges
    /// what it has read. With 0, the protocol acknowledges.
    pub application: f64,
}

/// Packets at a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Packets per second, over all flows.
    pub rate: f64,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// How the packets are divided among the flows.
    pub share: Share,
    /// Whether the gaps are exponential (a Poisson process) or constant.
    pub poisson: bool,
    /// The application's cost per packet, for traffic addressed to this machine.
    pub application: f64,
}

/// How packets are divided among flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// All flows have the same share.
    Equal,
    /// The share of the `k`-th flow is proportional to `k` to the power of minus this value.
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
    /// The number of threads that serve; `None`: one for each connection. The connections are divided among the
    /// threads.
    pub threads: Option<u32>,
    /// The mean cost of serving a request.
    pub service: f64,
    /// Whether that cost is exponential or constant.
    pub service_exponential: bool,
}

/// Recorded packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The packets in the order of time. They are shared, since a comparison has one scenario per policy.
    pub packets: Arc<[RecordedPacket]>,
    /// For each flow, its steering hash from the recording's dissection.
    pub hashes: Vec<u32>,
    /// The application's cost per packet, for traffic addressed to this machine.
    pub application: f64,
}

/// One recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPacket {
    /// The time since the beginning of the recording.
    pub at_ns: u64,
    /// The flow, as an index into the hashes.
    pub flow: u32,
    /// The bytes of the frame.
    pub bytes: u32,
}
