//! The result of a run.

use rxsteer_core::{DropReason, Drops, PacketRule, SteerCounts};

/// The result of one run of a scenario. Rates and times cover the measured part; the packet account covers the
/// whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// The seed of the run.
    pub seed: u64,
    /// The length of the measured part.
    pub measured_ns: u64,
    /// By traffic, in the scenario's order.
    pub traffic: Vec<TrafficResult>,
    /// By CPU id.
    pub cpus: Vec<CpuResult>,
    /// The account of all packets.
    pub account: PacketAccount,
    /// How many packets each mechanism decided on.
    pub steered: SteerCounts,
    /// All rules before the policy that were active during the run, in order of activation, and the packets that each
    /// matched.
    pub rules: Vec<(PacketRule, u64)>,
    /// Packets that arrived while there were rules, and matched none.
    pub unmatched: u64,
    /// Packets that were processed on a CPU other than that of the flow's previous packet.
    pub moves: u64,
    /// Packets whose processing began or ended before that of an earlier packet of their flow.
    pub reordered: u64,
    /// Wake-ups of other CPUs.
    pub kicks: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Processed packets that should have been forwarded, but found no room at the NIC.
    pub tx_full: u64,
    /// Processed packets that found no room in their application's socket.
    pub socket_full: u64,
}

/// The results of one kind of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficResult {
    /// The traffic's name.
    pub name: String,
    /// Packets that reached their destination: data its receiver, requests their thread.
    pub packets: u64,
    /// The bits per second of the packets' frames.
    pub bits_per_second: f64,
    /// Jain's index of fairness over the packets of the flows: 1 if all are equal, 1/n if one flow has all
    /// packets. 1 without packets.
    pub fairness: f64,
    /// The number of flows or connections.
    pub flows: u32,
    /// The rate of the slowest flow, in bits per second; 0 without packets.
    pub slowest_flow: f64,
    /// The rate of the fastest flow, in bits per second; 0 without packets.
    pub fastest_flow: f64,
    /// Transactions per second, for traffic with requests.
    pub transactions_per_second: Option<f64>,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// For requests, the round trip that the client measures; otherwise the time from the NIC to the end of
    /// processing.
    pub latency: Latency,
}

/// Statistics of times in nanoseconds; all 0 without any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The number of times.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub std_dev: f64,
    /// Half of the times are at most this long.
    pub p50: u64,
    /// 90 % of the times are at most this long.
    pub p90: u64,
    /// 99 % of the times are at most this long.
    pub p99: u64,
    /// 99.9 % of the times are at most this long.
    pub p999: u64,
}

/// The time use of one CPU, in shares of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuResult {
    /// Interrupts and polling.
    pub receiving: f64,
    /// Protocol processing, from its backlog or inline.
    pub protocol: f64,
    /// Threads.
    pub application: f64,
    /// Packets processed on this CPU.
    pub packets: u64,
}

impl CpuResult {
    /// The share of the time in which the CPU worked.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.receiving + self.protocol + self.application
    }
}

/// The account of the packets that arrived at NICs: the sums must always be equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PacketAccount {
    /// Frames that arrived at a NIC.
    pub arrived: u64,
    /// Frames that found the ring full.
    pub ring_full: u64,
    /// Packets refused after the ring, by reason.
    pub drops: Drops,
    /// Packets that were processed.
    pub processed: u64,
    /// Packets that were in a ring, in a backlog or being processed when the run ended.
    pub under_way: u64,
    /// Processed packets that ended on this machine: sent on, read, an acknowledgement, or without a reader.
    pub ended: u64,
    /// Processed packets that found no room at the next NIC or in a socket.
    pub no_room: u64,
    /// Processed packets that were with an application when the run ended.
    pub with_application: u64,
}

impl PacketAccount {
    /// Whether each packet is in exactly one place, before its processing and after it.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.arrived == self.ring_full + self.dropped() + self.processed + self.under_way
            && self.processed == self.ended + self.no_room + self.with_application
    }

    /// Packets refused after the ring.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        DropReason::ALL.iter().map(|reason| self.drops.get(*reason)).sum()
    }
}

impl RunResult {
    /// The busiest CPU's packets divided by the mean of the CPUs in `cpus`; 1 is even. 1 without packets.
    #[must_use]
    pub fn imbalance(&self, cpus: impl Iterator<Item = usize>) -> f64 {
        let packets: Vec<u64> = cpus.map(|cpu| self.cpus[cpu].packets).collect();
        let sum: u64 = packets.iter().sum();
        let most = packets.iter().copied().max().unwrap_or(0);
        if sum == 0 { 1.0 } else { most as f64 * packets.len() as f64 / sum as f64 }
    }
}
