//! The result of a run.

use rxsteer_core::{DropReason, Drops, SteerCounts};

/// The result of one run of a scenario. Rates and times are of the measured part; the packet
/// account is of all.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// Its seed.
    pub seed: u64,
    /// How long the measured part was.
    pub measured_ns: u64,
    /// By traffic, in the scenario's order.
    pub traffic: Vec<TrafficResult>,
    /// By CPU id.
    pub cpus: Vec<CpuResult>,
    /// What became of all packets.
    pub account: PacketAccount,
    /// How often each mechanism decided.
    pub steered: SteerCounts,
    /// Packets of a flow that were processed on another CPU than the flow's packet before.
    pub moves: u64,
    /// Packets whose processing began or ended before that of an earlier one of their flow.
    pub reordered: u64,
    /// Wake-ups of other CPUs.
    pub kicks: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Processed packets that were to be forwarded, and found no room at the card.
    pub tx_full: u64,
    /// Processed packets that found no room in their application's socket.
    pub socket_full: u64,
}

/// What one kind of traffic got.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficResult {
    /// The traffic's name.
    pub name: String,
    /// Packets that arrived at their goal: data at its receiver, requests at their thread.
    pub packets: u64,
    /// Their frames' bits per second.
    pub bits_per_second: f64,
    /// Jain's index of fairness over its flows' packets: 1 all alike, 1/n one has all. 1 without packets.
    pub fairness: f64,
    /// How many flows (or connections) it has.
    pub flows: u32,
    /// What the slowest and the fastest of them got, in bits per second; 0 without packets.
    pub slowest_flow: f64,
    /// See `slowest_flow`.
    pub fastest_flow: f64,
    /// Transactions per second, where there are requests.
    pub transactions_per_second: Option<f64>,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// For requests the round trip seen by the client; else from the card to the end of processing.
    pub latency: Latency,
}

/// Times, in nanoseconds; all 0 without any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub std_dev: f64,
    /// Half are no longer.
    pub p50: u64,
    /// 90 % are no longer.
    pub p90: u64,
    /// 99 % are no longer.
    pub p99: u64,
    /// 99.9 % are no longer.
    pub p999: u64,
}

/// What one CPU did, in shares of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuResult {
    /// Interrupts and polling.
    pub receiving: f64,
    /// Protocol processing, from its backlog or at once.
    pub protocol: f64,
    /// Threads.
    pub application: f64,
    /// Packets processed here.
    pub packets: u64,
}

impl CpuResult {
    /// The share of the time in which it did anything.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.receiving + self.protocol + self.application
    }
}

/// What became of the packets that arrived at cards: the sums must be equal, always.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PacketAccount {
    /// Frames that arrived at a card.
    pub arrived: u64,
    /// Frames that found the ring full.
    pub ring_full: u64,
    /// Packets refused behind the ring, by reason.
    pub drops: Drops,
    /// Packets that were processed.
    pub processed: u64,
    /// Packets that were in a ring, in a backlog or in work when the run ended.
    pub under_way: u64,
    /// Processed packets that ended here: sent on, read, an acknowledgement, or without a reader.
    pub ended: u64,
    /// Processed packets that found no room at the next card or in a socket.
    pub no_room: u64,
    /// Processed packets that were with an application when the run ended.
    pub with_application: u64,
}

impl PacketAccount {
    /// Whether each packet is in one place, before its processing and behind it.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.arrived == self.ring_full + self.dropped() + self.processed + self.under_way
            && self.processed == self.ended + self.no_room + self.with_application
    }

    /// Packets refused behind the ring.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        DropReason::ALL.iter().map(|reason| self.drops.get(*reason)).sum()
    }
}

impl RunResult {
    /// The busiest CPU's packets over the mean of those that `cpus` names; 1 is even. 1 without packets.
    #[must_use]
    pub fn imbalance(&self, cpus: impl Iterator<Item = usize>) -> f64 {
        let packets: Vec<u64> = cpus.map(|cpu| self.cpus[cpu].packets).collect();
        let sum: u64 = packets.iter().sum();
        let most = packets.iter().copied().max().unwrap_or(0);
        if sum == 0 { 1.0 } else { most as f64 * packets.len() as f64 / sum as f64 }
    }
}
