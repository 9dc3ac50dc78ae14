//! What is recorded of one flow.

use rxsteer_core::{CpuId, FlowKey, FlowWords};

/// The statistics of one flow, direction by direction: the reply is a flow of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowRecord {
    /// The flow; fields that the table does not go by are 0.
    pub key: FlowKey,
    /// Over all CPUs.
    pub totals: FlowTotals,
    /// What each CPU counted, in the order in which the CPUs first saw the flow. The CPUs listed are
    /// the used-CPU mask.
    pub per_cpu: Vec<CpuTotals>,
    /// What was counted in the shared block by CPUs that got no block of their own; already in
    /// `totals`. All 0 unless memory for blocks ran out.
    pub shared: SharedTotals,
    /// Why the flow was taken out of the table; `None` while it is in it.
    pub end: Option<FlowEnd>,
}

/// Packets, bytes, flags and times of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Packets.
    pub packets: u64,
    /// Their original lengths in bytes, as on the wire.
    pub bytes: u64,
    /// All TCP flags seen, as they stand in the header's byte 13; 0 for other protocols.
    pub tcp_flags: u8,
    /// Time of the earliest packet in nanoseconds of the source's clock; 0 without a packet.
    pub first_ns: u64,
    /// Time of the latest packet, likewise. The latest by time, not the last one counted.
    pub last_ns: u64,
}

/// What one CPU counted of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTotals {
    /// The CPU.
    pub cpu: CpuId,
    /// Packets.
    pub packets: u64,
    /// Their original lengths in bytes.
    pub bytes: u64,
}

/// What was counted for a flow by CPUs without a block of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTotals {
    /// Packets.
    pub packets: u64,
    /// Their original lengths in bytes.
    pub bytes: u64,
}

/// Why a flow was taken out of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// No packet for longer than the idle timeout.
    Idle,
    /// It made room for a new flow.
    Evicted,
    /// The table was emptied.
    Finished,
}

impl FlowEnd {
    /// The reason as records spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FlowEnd::Idle => "idle",
            FlowEnd::Evicted => "evicted",
            FlowEnd::Finished => "finished",
        }
    }
}

impl FlowTotals {
    /// Adds what another block counted: sums, flags together, the earliest and the latest time.
    pub(crate) fn merge(&mut self, other: &FlowTotals) {
        if other.packets == 0 {
            return;
        }
        self.first_ns =
            if self.packets == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp_flags |= other.tcp_flags;
    }
}

/// One packet, as the statistics see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPacket {
    /// Its flow, by all fields; that of the default key is one too.
    pub flow: FlowWords,
    /// Its time in nanoseconds of the source's clock.
    pub time_ns: u64,
    /// Its original length in bytes.
    pub bytes: u32,
    /// Its TCP flags; 0 for other protocols.
    pub tcp_flags: u8,
}

impl FlowPacket {
    /// What is counted of it.
    #[inline(always)]
    pub(crate) fn sample(&self) -> Sample {
        Sample { time_ns: self.time_ns, bytes: self.bytes, tcp_flags: self.tcp_flags }
    }
}

/// What is counted of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) time_ns: u64,
    pub(crate) bytes: u32,
    pub(crate) tcp_flags: u8,
}
