//! The router of sparse-patch: a MIPS board at 25 MHz with four CPUs and two NICs. It translates addresses between
//! two PCs.
//!
//! ```text
//!   PC 1 ── NIC 0 ──┐             ┌─► CPU 1 ─┐
//!                   ├─► CPU 0 ─ RPS ─► CPU 2 ─┼─► the other NIC
//!   PC 2 ── NIC 1 ──┘  interrupts └─► CPU 3 ─┘          cores: 0+1, 2+3
//! ```
//!
//! Structural choices, made with knowledge of all rows, since sparse-patch does not specify them:
//! - The two directions were measured one after the other: a single direction reaches the rates of both columns.
//! - From PC 1 to PC 2, a connection's data and acknowledgements have different hashes, because of the
//!   translation. From PC 2 to PC 1 they share one hash. The original column has four levels for one connection in
//!   the first direction, and two in the second.
//! - A direction is limited to the rate of the best runs in the *original* column (46.2 Mbit/s). No CPU causes
//!   this limit, since it is the same for one to three connections. The PCI bus of a 25 MHz board could be such a
//!   limit.

use super::{Constant, cpus};
use crate::scenario::{
    Costs, Cpu, Headers, Interrupts, Load, Nic, Placement, Scenario, Scheduler, Steering, Stream,
    Traffic,
};
use rxsteer_core::{CpuId, Policy};

/// The measured time of each run, and the start before it. The 100 s of sparse-patch would show no more: after the
/// start a run does not change.
pub const MEASURED_NS: u64 = 2_000_000_000;
const START_NS: u64 = 500_000_000;

const WALL: Constant = Constant::new(
    "most that a direction carries, on the wire",
    49.07e6,
    "bit/s",
    "the best runs of the original column: 46.2 Mbit/s of 1448 in 1538 bytes",
);
/// The same limit as data, in Mbit/s for one direction: the highest figure of the original column.
pub const WALL_DATA_MBITS: f64 = 46.2;
const INTERRUPT: Constant = Constant::new(
    "interrupt, waking, being woken, the way between",
    20_000.0,
    "ns each",
    "assumed",
);
const RING: Constant = Constant::new("ring", 256.0, "frames", "kernel sources: e1000's default");
const BACKLOG: Constant = Constant::new(
    "most packets waiting for a CPU",
    1000.0,
    "",
    "kernel sources: netdev_max_backlog",
);
const WINDOW: Constant =
    Constant::new("largest window", 45.0, "packets", "assumed: 64 KiB, without window scaling");
const PER_ACK: Constant =
    Constant::new("data packets for each acknowledgement", 2.0, "", "RFC 5681 section 4.2");
const WIRE: Constant =
    Constant::new("wire, one way", 20_000.0, "ns", "assumed: a cable and two PCs");
const MIN_RTO: Constant =
    Constant::new("least retransmission timeout", 200e6, "ns", "kernel sources: TCP_RTO_MIN");

/// The bytes of a full frame, and of the data in it.
const FRAME: u32 = 1514;
const DATA: u32 = 1448;
/// The bytes of an acknowledgement's frame.
const ACK: u32 = 66;

/// All constants.
pub const CONSTANTS: [Constant; 8] =
    [WALL, INTERRUPT, RING, BACKLOG, WINDOW, PER_ACK, WIRE, MIN_RTO];

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// "1->2".
    There,
    /// "2->1".
    Back,
}

/// The values that a fit finds, in this order.
pub const VALUES: [&str; 6] =
    ["receive_ns", "protocol_ns", "protocol_byte_ns", "smt_speed", "flow_miss_ns", "flow_cache"];

/// The experiment with `connections` connections in one direction; `values` are the costs in the order of
/// [`VALUES`].
#[must_use]
pub fn scenario(values: &[f64], connections: u32, way: Way, policy: Policy) -> Scenario {
    let card = |name: &str| Nic {
        name: name.to_owned(),
        rate: WALL.value,
        irq_cpus: CpuId::new(0).into_iter().collect(),
        interrupts: Interrupts::Fixed,
        ring: RING.value as u32,
        moderation_ns: 0,
    };
    let mut steering = Steering::new(policy, cpus(1, 4));
    steering.max_backlog = BACKLOG.value as u32;
    let (nic, out) = if way == Way::There { (0, 1) } else { (1, 0) };
    Scenario {
        title: format!("router of 25 MHz, {connections} connections"),
        duration_ns: START_NS + MEASURED_NS,
        warm_up_ns: START_NS,
        cpus: (0..4).map(|id| Cpu { speed: 1.0, core: id / 2, cache: 0 }).collect(),
        smt_speed: values[3].min(1.0),
        pauses: vec![],
        nics: vec![card("to PC 1"), card("to PC 2")],
        costs: Costs {
            interrupt: INTERRUPT.value,
            wake_up: INTERRUPT.value,
            woken: INTERRUPT.value,
            wake_delay: INTERRUPT.value,
            receive: values[0],
            protocol: values[1],
            protocol_byte: values[2],
            flow_miss: values[4],
            flow_cache: values[5],
            ..Costs::default()
        },
        wire_ns: WIRE.value as u64,
        steering,
        scheduler: Scheduler {
            cpus: cpus(0, 4),
            placement: Placement::Sticky,
            slice_ns: 10_000_000,
            softirq_ns: 10_000_000,
            balance_ns: 0,
            newidle: false,
        },
        traffic: vec![Traffic {
            name: "iperf".to_owned(),
            nic,
            out: Some(out),
            translated: way == Way::There,
            headers: Headers::default(),
            flows: connections,
            start_ns: 0,
            ramp_ns: 100_000_000,
            load: Load::Stream(Stream {
                frame_bytes: FRAME,
                ack_bytes: ACK,
                packets_per_ack: PER_ACK.value as u32,
                window: WINDOW.value as u32,
                min_rto_ns: MIN_RTO.value as u64,
                application: 0.0,
            }),
        }],
        events: Vec::new(),
    }
}

/// The rate of data in Mbit/s, as iperf prints it.
#[must_use]
pub fn mbits(result: &crate::RunResult) -> f64 {
    let frames = result.traffic.iter().map(|traffic| traffic.bits_per_second).sum::<f64>();
    frames / 1e6 * f64::from(DATA) / f64::from(FRAME)
}
