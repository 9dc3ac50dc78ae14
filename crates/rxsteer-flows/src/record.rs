//! The record of one flow.

use rxsteer_core::{CpuId, FlowKey, FlowWords};

/// The statistics of one flow in one direction: the reply is a separate flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowRecord {
    /// The key of the flow. Fields that the table's mask leaves out are 0.
    pub key: FlowKey,
    /// The totals over all CPUs.
    pub totals: FlowTotals,
    /// The counts of each CPU, in the order in which the CPUs first saw the flow. The listed CPUs are the used-CPU
    /// mask.
    pub per_cpu: Vec<CpuTotals>,
    /// The counts in the shared block, by CPUs that got no separate block. `totals` includes them. All 0 unless memory
    /// for blocks ran out.
    pub shared: SharedTotals,
    /// How often a different CPU than before counted the flow. Packets that several CPUs count at the same time have no
    /// order. If the packets of a flow are never on two CPUs at the same time, this is how often the flow moved.
    pub moves: u32,
    /// Why the flow was taken out of the table; `None` while it is in the table.
    pub end: Option<FlowEnd>,
}

/// Packets, bytes, flags and times of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// The number of packets.
    pub packets: u64,
    /// The original lengths of the packets in bytes, as on the wire.
    pub bytes: u64,
    /// All TCP flags seen, in the bit order of the header's byte 13; 0 for other protocols.
    pub tcp_flags: u8,
    /// The time of the earliest packet in nanoseconds of the source's clock; 0 without a packet.
    pub first_ns: u64,
    /// The time of the latest packet in the same clock. This is the latest by time, not the last one counted.
    pub last_ns: u64,
    /// The VLAN of the first packet. This is the packet that was counted first on the CPU with the earliest packet.
    pub vlan: Option<u16>,
    /// The RX queue on which that packet was received, as [`FlowPacket::rx_queue`].
    pub rx_queue: u16,
}

/// The counts of one CPU for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTotals {
    /// The CPU.
    pub cpu: CpuId,
    /// The number of packets.
    pub packets: u64,
    /// The original lengths of the packets in bytes.
    pub bytes: u64,
}

/// The counts of a flow by CPUs without a separate block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTotals {
    /// The number of packets.
    pub packets: u64,
    /// The original lengths of the packets in bytes.
    pub bytes: u64,
}

/// Why a flow was taken out of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// The flow had no packet for longer than the idle timeout.
    Idle,
    /// The flow made room for a new flow.
    Evicted,
    /// The table was emptied.
    Finished,
    /// The flow was counted for longer than the active timeout; its next packet begins another record.
    Active,
}

impl FlowEnd {
    /// The name of the reason in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FlowEnd::Idle => "idle",
            FlowEnd::Evicted => "evicted",
            FlowEnd::Finished => "finished",
            FlowEnd::Active => "active",
        }
    }
}

impl FlowTotals {
    /// Adds the counts of another block: sums, the union of the flags, the earliest and the latest time.
    pub(crate) fn merge(&mut self, other: &FlowTotals) {
        if other.packets == 0 {
            return;
        }
        if self.packets == 0 || other.first_ns < self.first_ns {
            (self.first_ns, self.vlan, self.rx_queue) =
                (other.first_ns, other.vlan, other.rx_queue);
        }
        self.last_ns = self.last_ns.max(other.last_ns);
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp_flags |= other.tcp_flags;
    }
}

/// One packet, as the statistics use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPacket {
    /// The flow of the packet, with all fields. The default key is a valid flow.
    pub flow: FlowWords,
    /// The time of the packet in nanoseconds of the source's clock.
    pub time_ns: u64,
    /// The original length of the packet in bytes.
    pub bytes: u32,
    /// The TCP flags of the packet; 0 for other protocols.
    pub tcp_flags: u8,
    /// The VLAN of the packet, if it has a tag: 0 to 4095.
    pub vlan: Option<u16>,
    /// The RX queue on which the packet was received: 0 to 2047.
    pub rx_queue: u16,
}

impl FlowPacket {
    /// The counted properties of the packet.
    #[inline(always)]
    pub(crate) fn sample(&self) -> Sample {
        let vlan = self.vlan.map_or(0, |vlan| u32::from(vlan & 0xfff) | TAGGED);
        let marks = u32::from(self.tcp_flags)
            | vlan << VLAN_SHIFT
            | u32::from(self.rx_queue) << RX_QUEUE_SHIFT;
        Sample { time_ns: self.time_ns, bytes: self.bytes, marks }
    }
}

/// The counted properties of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) time_ns: u64,
    pub(crate) bytes: u32,
    /// The TCP flags in the lowest 8 bits, then 13 bits for the VLAN and 11 for the RX queue.
    pub(crate) marks: u32,
}

/// The bit of a VLAN that exists.
const TAGGED: u32 = 1 << 12;
const VLAN_SHIFT: u32 = 8;
const RX_QUEUE_SHIFT: u32 = 21;

/// The VLAN in the marks of a sample.
pub(crate) fn vlan(marks: u32) -> Option<u16> {
    let vlan = marks >> VLAN_SHIFT;
    (vlan & TAGGED != 0).then_some((vlan & 0xfff) as u16)
}

/// The RX queue in the marks of a sample.
pub(crate) fn rx_queue(marks: u32) -> u16 {
    (marks >> RX_QUEUE_SHIFT) as u16
}
