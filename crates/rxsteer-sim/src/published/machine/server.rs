//! A machine that answers requests: netperf's TCP_RR and the RPC test (rfs-commit, rps-slides).
//!
//! ```text
//!   500 or 100 far clients ⇄ NIC ──► CPU 0: receive ─┬─ no steering: protocol there
//!                                                    └─ RPS, RFS: protocol on CPUs 1… ─► threads on CPUs 1…
//! ```
//!
//! Structural choices, made with knowledge of all rows: threads and RPS do not use CPU 0, which interrupts fill
//! (the source says "best RPS config"). Threads run where they ran last unless that CPU is taken. The service
//! times of the RPC test are exponential. Its requests may consist of several small frames, so a ring holds fewer
//! requests than frames, and more cache lines follow each request. Far hosts cost nothing except a pause.

use super::{Constant, INTERRUPT, LINE_REMOTE, LINE_SHARED, WAKE_DELAY, WOKEN, cpus};
use crate::scenario::{
    Costs, Cpu, Headers, Interrupts, Load, Nic, Placement, Requests, Scenario, Scheduler, Steering,
    Traffic,
};
use rxsteer_core::Policy;

/// The time that the interrupt CPU spends on a packet with RPS, as a share of its time without steering. It comes
/// from rates at which this CPU is the bottleneck: 90/285, 90/292, 117/327 and 139/352. Used for the tables other
/// than that of rps-slides.
pub const RECEIVING_SHARE_BY_SLIDES: Constant = Constant::new(
    "receiving share: the interrupt CPU's work per packet with RPS over without",
    0.3442,
    "",
    "from predicted figures of rps-slides: mean over its cards of tps without RPS over tps with it; from the least card \
     to the highest",
)
.with_range(0.3082, 0.3949);

/// The same share from rfs-commit, 104/290, for the table of rps-slides. Its other pairs are 104/303, 103/174, 103/223;
/// in the pairs of the RPC test the bottleneck may be elsewhere.
pub const RECEIVING_SHARE_BY_RFS: Constant = Constant::new(
    "receiving share: the interrupt CPU's work per packet with RPS over without",
    0.3586,
    "",
    "from predicted figures of rfs-commit: 104K over 290K tps; from the least of its pairs without and with steering to \
     the highest",
)
.with_range(0.3432, 0.592);

const FRAME_LINES: Constant = Constant::new(
    "cache lines that follow a frame to another CPU",
    6.0,
    "",
    "assumed: 5 of the sk_buff, 1 of headers",
);
const SOCKET_LINES: Constant = Constant::new(
    "cache lines of the socket that follow a request",
    14.0,
    "",
    "assumed: 12 of the socket, 2 of wait queues",
);
const CONNECTION_MISS: Constant = Constant::new(
    "connection's state from the last-level cache",
    300.0,
    "ns",
    "assumed: 20 lines at 40 cycles",
);
const CONNECTION_CACHE: Constant = Constant::new(
    "connections whose state a core's own cache holds",
    128.0,
    "",
    "assumed: 2 KiB each in 256 KiB",
);
const TRANSMIT: Constant = Constant::new("sending an answer", 2000.0, "ns", "assumed");
const THREAD_WAKE: Constant = Constant::new("waking a thread", 1000.0, "ns", "assumed");
const CONTEXT_SWITCH: Constant = Constant::new("context switch", 1500.0, "ns", "assumed");
const MODERATION: Constant = Constant::new(
    "least time between interrupts",
    50_000.0,
    "ns",
    "kernel documentation of e1000e, InterruptThrottleRate: 20,000 a second for small packets",
);
const WIRE: Constant = Constant::new("wire and switch, one way", 20_000.0, "ns", "assumed");
const FRAME: Constant = Constant::new("frame of 1 byte", 67.0, "bytes", "TCP with timestamps");
const PAUSE: Constant =
    Constant::new("netperf's pause between answer and request", 50_000.0, "ns", "assumed");
const RING: Constant = Constant::new(
    "ring of the card",
    256.0,
    "frames",
    "kernel documentation of e1000e, RxDescriptors: the default",
);

/// All constants except the receiving share.
pub const CONSTANTS: [Constant; 17] = [
    FRAME_LINES,
    SOCKET_LINES,
    LINE_SHARED,
    LINE_REMOTE,
    CONNECTION_MISS,
    CONNECTION_CACHE,
    INTERRUPT,
    MODERATION,
    WOKEN,
    WAKE_DELAY,
    TRANSMIT,
    THREAD_WAKE,
    CONTEXT_SWITCH,
    WIRE,
    FRAME,
    PAUSE,
    RING,
];

/// Longer than the 200 ms after which a lost request is sent again.
const WARM_UP_NS: u64 = 300_000_000;

/// A machine and its test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// The number of cores, without SMT.
    pub cpus: u16,
    /// The number of cores that share a last-level cache.
    pub cpus_per_socket: u16,
    /// The rate of the NIC in bits per second.
    pub nic_rate: f64,
    /// Connections, each with a thread.
    pub connections: u32,
    /// See [`RECEIVING_SHARE_BY_SLIDES`].
    pub receiving_share: f64,
    /// The measured time.
    pub measured_ns: u64,
    /// Whether the application's cost of a request is exponential, or constant.
    pub exponential: bool,
}

/// The values that fits find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// The cost of receiving, protocol and waking a thread for one request on one CPU, in nanoseconds.
    pub request_ns: f64,
    /// The application's own cost of one request, in nanoseconds.
    pub service_ns: f64,
    /// The client's pause between an answer and the next request, in nanoseconds.
    pub pause_ns: f64,
    /// The number of frames of a request: the ring holds that many fewer requests.
    pub frames: f64,
}

impl Values {
    /// The values for netperf, where the clients' pause is a constant and a request is one frame.
    #[must_use]
    pub fn netperf(request_ns: f64, service_ns: f64) -> Values {
        Values { request_ns, service_ns, pause_ns: PAUSE.value, frames: 1.0 }
    }
}

impl Server {
    /// The experiment under `policy`, with one RX queue, or with one for each CPU.
    #[must_use]
    pub fn scenario(&self, values: Values, policy: Policy, queue_per_cpu: bool) -> Scenario {
        let first = if queue_per_cpu { 0 } else { 1 };
        let queues = if queue_per_cpu { self.cpus } else { 1 };
        let cpu = |id| Cpu { speed: 1.0, core: id, cache: id / self.cpus_per_socket };
        let others = cpus(first, self.cpus);
        Scenario {
            title: format!("{} connections, {policy}", self.connections),
            duration_ns: WARM_UP_NS + self.measured_ns,
            warm_up_ns: WARM_UP_NS,
            cpus: (0..self.cpus).map(cpu).collect(),
            smt_speed: 1.0,
            pauses: vec![],
            nics: vec![Nic {
                name: "eth0".to_owned(),
                rate: self.nic_rate,
                irq_cpus: cpus(0, queues).iter().collect(),
                interrupts: Interrupts::Fixed,
                ring: ((RING.value / values.frames).round() as u32).max(1),
                moderation_ns: MODERATION.value as u64,
            }],
            costs: self.costs(values),
            wire_ns: WIRE.value as u64,
            steering: Steering::new(policy, others.clone()),
            scheduler: Scheduler {
                cpus: others,
                placement: Placement::Sticky,
                slice_ns: 3_000_000,
                softirq_ns: 2_000_000,
                balance_ns: 4_000_000,
                newidle: false,
            },
            traffic: vec![Traffic {
                name: "requests".to_owned(),
                nic: 0,
                out: None,
                translated: false,
                headers: Headers::default(),
                flows: self.connections,
                start_ns: 0,
                ramp_ns: 10_000_000,
                load: Load::Requests(Requests {
                    request_bytes: FRAME.value as u32,
                    response_bytes: FRAME.value as u32,
                    think_ns: values.pause_ns,
                    threads: None,
                    service: values.service_ns,
                    service_exponential: self.exponential,
                }),
            }],
            events: Vec::new(),
        }
    }

    /// The receiving share includes steering, hand-off and waking other CPUs, since it was measured with RPS. So
    /// their separate costs are 0.
    fn costs(&self, values: Values) -> Costs {
        let receive = self.receiving_share * values.request_ns;
        let lines = SOCKET_LINES.value + FRAME_LINES.value * values.frames;
        Costs {
            interrupt: INTERRUPT.value,
            receive,
            woken: WOKEN.value,
            wake_delay: WAKE_DELAY.value,
            protocol: (values.request_ns - receive - THREAD_WAKE.value).max(0.0),
            transmit: TRANSMIT.value,
            thread_wake: THREAD_WAKE.value,
            context_switch: CONTEXT_SWITCH.value,
            miss_shared: lines * LINE_SHARED.value,
            miss_remote: lines * LINE_REMOTE.value,
            flow_miss: CONNECTION_MISS.value,
            flow_cache: CONNECTION_CACHE.value,
            ..Costs::default()
        }
    }
}

/// 500 × netperf TCP_RR on the machine of rfs-commit: "e1000e on 8 core Intel", two sockets assumed.
pub const RFS_NETPERF: Server = Server {
    cpus: 8,
    cpus_per_socket: 4,
    nic_rate: 1e9,
    connections: 500,
    receiving_share: RECEIVING_SHARE_BY_SLIDES.value,
    measured_ns: 400_000_000,
    exponential: false,
};

/// The RPC test of rfs-commit on the same machine: 100 threads on each host. Few losses determine its deviation,
/// so it is measured for longer.
pub const RFS_RPC: Server =
    Server { connections: 100, measured_ns: 1_000_000_000, exponential: true, ..RFS_NETPERF };

/// The NICs of rps-slides, in their order. netperf as in rfs-commit and sockets of four cores are assumed.
pub const RPS_CARDS: [(&str, Server); 4] = {
    let intel = Server { receiving_share: RECEIVING_SHARE_BY_RFS.value, ..RFS_NETPERF };
    let amd = Server { cpus: 16, ..intel };
    let fast = Server { nic_rate: 10e9, ..amd };
    [("tg3", intel), ("e1000", intel), ("forcedeth", amd), ("bnx2x", fast)]
};
