//! A machine that forwards packets from two 10G NICs to two others (hand-off-patch).
//!
//! ```text
//!   inline:    NIC ──► 8 RX queues ─► CPUs 0-7: receive and forward ─► other NIC
//!   hand-off:  NIC ──► 8 RX queues ─► CPUs 0-7: receive ─► CPUs 8-15: forward ─► other NIC
//! ```
//!
//! Structural choices, made with knowledge of all rows: there are as many receiving CPUs as processing ones
//! (hand-off-patch names "8 packet processing cpus" of 16 logical ones), and each pair is in one socket.

use super::{Constant, INTERRUPT, LINE_REMOTE, LINE_SHARED, WAKE_DELAY, WOKEN, cpus};
use crate::scenario::{
    self, Costs, Cpu, Headers, Interrupts, Load, Nic, Placement, Scenario, Scheduler, Share,
    Steering, Traffic,
};
use rxsteer_core::{CpuId, Policy};

/// The number of RX queues, of receiving CPUs, and of processing CPUs.
pub const PAIRS: u16 = 8;

const LINES: Constant = Constant::new(
    "cache lines that follow a packet to another CPU",
    6.0,
    "",
    "assumed: 5 of the sk_buff, 1 of headers",
);
const LIST_SPLICE: Constant =
    Constant::new("splicing a list onto another CPU's queue", 100.0, "ns", "assumed");
const FRAME: Constant = Constant::new("frame", 60.0, "bytes", "hand-off-patch");
const RATE: Constant = Constant::new("card", 10e9, "bit/s", "hand-off-patch: 10G NICs");
const RING: Constant = Constant::new(
    "ring of each queue",
    512.0,
    "frames",
    "kernel documentation of ixgbe: the default",
);
const BACKLOG: Constant = Constant::new(
    "most packets waiting for a CPU",
    400_000.0,
    "",
    "hand-off-patch: netdev_max_backlog=400000",
);
const FLOWS: Constant = Constant::new("flows", 4096.0, "", "assumed: enough to fill all queues");
const MODERATION: Constant =
    Constant::new("least time between interrupts", 125_000.0, "ns", "assumed: 8000 a second");
const WIRE: Constant = Constant::new("wire, one way", 5_000.0, "ns", "assumed: a cable");

/// The packet rate that is sent: 4.8 Mpps / (0.60 * 1.43), from predicted figures. It determines the scale of all
/// rates, and, through the fit of `packet_ns`, also the gain. The range: at least what was forwarded was sent, and at
/// most what two cards carry.
pub const SENT_PPS: Constant = Constant::new(
    "packets sent per second",
    5.6e6,
    "",
    "from predicted figures, 4.8 Mpps / (0.60 * 1.43), since hand-off-patch does not say it; from 4.8 Mpps to the rate of \
     both cards",
)
.with_range(4.8e6, 29.76e6);

/// The parts of the fit: one for [`SENT_PPS`], and one for each end of its range.
pub const PARTS: [&str; 3] = ["inline", "inline-least-sent", "inline-most-sent"];

/// The speed of each of two busy SMT siblings, for the variant with siblings.
pub const SMT_SPEED: Constant =
    Constant::new("a busy SMT sibling's speed, where it is counted", 0.65, "", "assumed");

/// All constants except the receiving share.
pub const CONSTANTS: [Constant; 16] = [
    SENT_PPS,
    LINES,
    LINE_SHARED,
    LINE_REMOTE,
    LIST_SPLICE,
    INTERRUPT,
    MODERATION,
    WOKEN,
    WAKE_DELAY,
    FRAME,
    RATE,
    RING,
    BACKLOG,
    FLOWS,
    WIRE,
    SMT_SPEED,
];

/// The time that a packet's cache lines take from a receiving CPU to its processing CPU in one socket.
#[must_use]
pub fn hand_off_miss_ns() -> f64 {
    LINES.value * LINE_SHARED.value
}

/// How a receiving CPU and its processing CPU are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Cores of one socket with a common cache.
    Socket,
    /// Siblings of one core.
    Siblings,
    /// Cores without a common cache, connected by a bus, as on the older machine ("stoakley").
    Apart,
}

/// The experiment, with or without hand-off. `packet_ns` is the cost of a packet on a CPU that does all of its
/// work; `pps` packets are sent per second.
#[must_use]
pub fn scenario(packet_ns: f64, share: f64, pps: f64, hand_off: bool, pairs: Pairs) -> Scenario {
    let receive = share * packet_ns;
    let all = if hand_off { 2 * PAIRS } else { PAIRS };
    let cpu = |id: u16| {
        let (pair, side) = (id % PAIRS, id / PAIRS);
        let core = if pairs == Pairs::Siblings { pair } else { id };
        let cache = if pairs == Pairs::Apart { id } else { pair / 4 };
        debug_assert!(side < 2, "a pair is two CPUs");
        Cpu { speed: 1.0, core, cache }
    };
    let bindings = (0..PAIRS).filter_map(|queue| Some((queue.into(), CpuId::new(PAIRS + queue)?)));
    let policy = if hand_off { Policy::Bound(bindings.collect()) } else { Policy::None };
    let mut steering = Steering::new(policy, cpus(0, all));
    steering.max_backlog = BACKLOG.value as u32;
    let half = PAIRS / 2;
    Scenario {
        title: format!("forwarding, {} pairs", PAIRS),
        duration_ns: 60_000_000,
        warm_up_ns: 20_000_000,
        cpus: (0..all).map(cpu).collect(),
        smt_speed: SMT_SPEED.value,
        pauses: vec![],
        nics: vec![
            card("in0", 0, half),
            card("in1", half, PAIRS),
            card("out0", 0, 1),
            card("out1", 0, 1),
        ],
        costs: Costs {
            interrupt: INTERRUPT.value,
            receive,
            splice: LIST_SPLICE.value,
            woken: WOKEN.value,
            wake_delay: WAKE_DELAY.value,
            protocol: packet_ns - receive,
            miss_shared: hand_off_miss_ns(),
            miss_remote: LINES.value * LINE_REMOTE.value,
            ..Costs::default()
        },
        wire_ns: WIRE.value as u64,
        steering,
        scheduler: Scheduler {
            cpus: cpus(0, all),
            placement: Placement::Sticky,
            slice_ns: 3_000_000,
            softirq_ns: 2_000_000,
            balance_ns: 0,
            newidle: false,
        },
        traffic: vec![traffic("in0 to out0", 0, 2, pps), traffic("in1 to out1", 1, 3, pps)],
        events: Vec::new(),
    }
}

/// A NIC whose queues interrupt the CPUs from `from` up to `end`, which is excluded.
fn card(name: &str, from: u16, end: u16) -> Nic {
    Nic {
        name: name.to_owned(),
        rate: RATE.value,
        irq_cpus: cpus(from, end).iter().collect(),
        interrupts: Interrupts::Fixed,
        ring: RING.value as u32,
        moderation_ns: MODERATION.value as u64,
    }
}

/// Half of the packets sent.
fn traffic(name: &str, nic: usize, out: usize, pps: f64) -> Traffic {
    Traffic {
        name: name.to_owned(),
        nic,
        out: Some(out),
        translated: false,
        headers: Headers::default(),
        flows: FLOWS.value as u32 / 2,
        start_ns: 0,
        ramp_ns: 0,
        load: Load::Constant(scenario::Constant {
            rate: pps / 2.0,
            frame_bytes: FRAME.value as u32,
            share: Share::Equal,
            poisson: false,
            application: 0.0,
        }),
    }
}
