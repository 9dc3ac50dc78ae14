//! The inputs and results of the C policy: the structures of `shim_policy.c`, `shim_tables.h` and the headers.

use crate::abi;

/// Sizes of the policy's tables: `struct native_sizes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The highest CPU id plus one.
    pub cpus: u32,
    /// The highest id of a receiving CPU, plus one.
    pub rx_cpus: u32,
    /// Flow tables: one for each RX queue of all devices.
    pub tables: u32,
    /// Logarithm of the number of slots of one flow table.
    pub flow_log: u32,
    /// Entries of the sock flow table, a power of two of at least 16.
    pub sock_entries: u32,
    /// The bits of an entry that hold the CPU plus one.
    pub sock_cpu_mask: u32,
    /// Logarithm of the number of chains of sparse slots, at least 4.
    pub chains_log: u32,
    /// Lines of 64 counts that the flow limit has for each RX CPU.
    pub limit_lines: u32,
}

/// The rules that make decisions: `struct native_rules`.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Rules {
    /// A value of `enum steer_policy`.
    pub policy: u32,
    /// Sparse slots of a CPU.
    pub loops: u32,
    /// The packet of a flow from which on it may get a sparse slot.
    pub after: u32,
    /// Capacity of a ring in packets.
    pub ring_size: u32,
    /// Logarithm of the number of the flow limit's buckets, plus one; 0: no limit.
    pub flow_limit: u32,
    /// How long sparse slots and hashing count as active.
    pub inactive_after: u64,
    /// Not 0: local packets go through a ring.
    pub local_by_ring: u32,
    /// Not 0: flows that no rule places stay on the CPU that receives them.
    pub else_local: u32,
    /// Not 0: `rows` apply.
    pub by_queue: u32,
    /// Not 0: a flow goes to its target as soon as the order rule allows it.
    pub no_hysteresis: u32,
    /// Not 0: the flows of some slots have two targets.
    pub boundary_slots: u32,
    /// Not 0: slots are not used.
    pub unguarded: u32,
    /// Entries of the general map, which comes first in `map`.
    pub map_len: u32,
    /// The number of buckets; 0: none.
    pub buckets: u32,
    /// Where the CPUs of buckets begin in `map`.
    pub first_bucket: u32,
    /// All maps, one after another: CPUs, or [`NO_CPU`].
    pub map: [u16; abi::STEER_MAP_ENTRIES as usize],
    /// By flow table.
    pub rows: [Row; abi::MAX_ROWS as usize],
    /// Bits of `enum steer_cpu_bits`.
    pub cpu: [u8; abi::STEER_MAX_CPUS as usize],
    /// By rule before the policy.
    pub actions: [Act; abi::STEER_MAX_RULES as usize],
}

/// Where packets go that a rule matches: `struct steer_action`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Act {
    /// Where its CPUs begin in `map`.
    pub first: u16,
    /// How many they are; 0: packets stay on the CPU that receives them.
    pub len: u16,
    /// Not 0: packets pass.
    pub passes: u8,
    /// The number of the policy that decides instead, plus one; 0: none does.
    pub policy: u8,
}

/// The settings of one RX queue: `struct steer_row`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where its map begins.
    pub first: u16,
    /// The entries of its map.
    pub len: u16,
    /// The number of its map.
    pub number: u16,
    /// The CPU it is bound to, or [`NO_CPU`].
    pub bound: u16,
}

/// In tables of CPUs: no CPU.
pub const NO_CPU: u16 = abi::STEER_NO_CPU as u16;
const _: () = assert!(NO_CPU as u32 == abi::STEER_NO_CPU);

/// A packet: `struct steer_arrival`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The flow hash, not 0.
    pub hash: u32,
    /// The CPU that receives it.
    pub rx_cpu: u32,
    /// Its device's RX queue.
    pub queue: u32,
    /// Its device.
    pub device: u16,
    /// The number plus one of the rule before the policy that matches it; 0: none.
    pub rule: u16,
    /// The hash under which its desired CPU is stored.
    pub sock_hash: u32,
    /// Its flow table, which is also the row of its queue.
    pub row: u32,
    /// The time.
    pub now: u64,
}

/// The decision about a packet: `struct native_decision`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Its target.
    pub target: u32,
    /// The rule that chose the target, a value of `enum steer_rule`.
    pub by: u32,
    /// The CPU that it went to.
    pub cpu: u32,
    /// The generation of the ring that it went through.
    pub generation: u32,
    /// Not 0: it passed, and went through no ring.
    pub passes: u32,
    /// Not 0: the flow limit dropped it.
    pub dropped: u32,
    /// Its sequence number.
    pub seq: u32,
    /// Not 0: it carries its sequence number.
    pub carries: u32,
    /// Not 0: it is counted as off target.
    pub off_target: u32,
    /// Not 0: it passes because there is no ring.
    pub without_ring: u32,
}

impl Decision {
    /// The ring that it went to: CPU and generation.
    #[must_use]
    pub fn ring(&self) -> u32 {
        self.cpu * abi::STEER_GENERATIONS + self.generation
    }
}

/// The last packet that a slot records: `struct native_last_packet`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastPacket {
    /// Its sequence number among the packets from `rx_cpu` to its ring.
    pub seq: u32,
    /// The CPU it was sent to.
    pub cpu: u32,
    /// The generation of the ring that it was sent through.
    pub generation: u32,
    /// The CPU that received it.
    pub rx_cpu: u32,
    /// How many more packets in a row may follow the slot instead of their target.
    pub hysteresis: u32,
}

impl LastPacket {
    /// The ring that it was sent through: CPU and generation.
    #[must_use]
    pub fn ring(&self) -> u32 {
        self.cpu * abi::STEER_GENERATIONS + self.generation
    }
}

// Both sides have the same members in the same order.
const _: () = {
    assert!(size_of::<Sizes>() == abi::SIZE_OF_SIZES as usize);
    assert!(size_of::<Rules>() == abi::SIZE_OF_RULES as usize);
    assert!(size_of::<Packet>() == abi::SIZE_OF_ARRIVAL as usize);
    assert!(size_of::<Decision>() == abi::SIZE_OF_DECISION as usize);
    assert!(size_of::<LastPacket>() == abi::SIZE_OF_LAST_PACKET as usize);
};

/// The buckets of the flow limit's last packets.
pub type LimitHistory = [u32; abi::STEER_FLOW_LIMIT_HISTORY as usize];
