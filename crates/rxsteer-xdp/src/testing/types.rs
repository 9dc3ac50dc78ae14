//! Inputs and results of the programs in tests.

use crate::abi::MAX_CPUS;

/// Sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub struct TestSizes {
    /// The highest CPU id plus one.
    pub cpus: u32,
    /// How many CPUs may receive.
    pub rx_cpus: u32,
    /// Flow tables.
    pub tables: u32,
    /// Logarithm of the number of slots of one flow table.
    pub flow_log: u32,
    /// Entries of the sock flow table.
    pub sock_entries: u32,
    /// Bits of an entry that hold the CPU plus one.
    pub sock_cpu_mask: u32,
    /// Logarithm of the number of chains of sparse slots.
    pub chains_log: u32,
    /// Lines of 64 counts of the flow limit.
    pub limit_lines: u32,
}

/// The rules that make decisions.
#[derive(Clone, Copy, Debug)]
pub struct TestRules<'a> {
    /// A value of `enum steer_policy`.
    pub policy: u32,
    /// Sparse slots of a CPU.
    pub loops: u32,
    /// The packet of a flow from which on it may get a sparse slot.
    pub after: u32,
    /// Capacity of a ring in packets.
    pub ring_size: u32,
    /// As in `struct steer_config`.
    pub flow_limit: u32,
    /// Likewise.
    pub inactive_after: u64,
    /// Likewise.
    pub local_by_ring: bool,
    /// Likewise.
    pub unguarded: bool,
    /// Likewise.
    pub no_hysteresis: bool,
    /// Likewise.
    pub boundary_slots: bool,
    /// Likewise.
    pub else_local: bool,
    /// The entries of the general map.
    pub map_len: u32,
    /// The number of buckets; 0: none.
    pub buckets: u16,
    /// Where the CPUs of buckets begin in `map`.
    pub first_bucket: u16,
    /// All maps, the general one first, with `STEER_NO_CPU` for offline CPUs.
    pub map: &'a [u16],
    /// The settings of each flow table's queue, if queues have any: where its map begins, its length, its number, and
    /// the CPU that the queue is bound to, or `STEER_NO_CPU`.
    pub rows: &'a [[u16; 4]],
    /// For each CPU its bits.
    pub cpu: &'a [u8; MAX_CPUS as usize],
}

/// Where frames go that a rule before the policy matches.
#[derive(Clone, Copy, Debug)]
pub struct TestAction {
    /// Where its CPUs begin in `map`.
    pub first: u16,
    /// How many they are; 0: frames stay on the CPU that receives them.
    pub len: u16,
    /// The number of the policy that decides instead, plus one; 0: none does.
    pub policy: u8,
}

/// An interface.
#[derive(Clone, Copy, Debug)]
pub struct TestDevice {
    /// Its RX queues.
    pub queues: u16,
    /// The flow table of its first RX queue.
    pub first_table: u32,
}

/// Where and when a frame is received.
#[derive(Clone, Copy, Debug)]
pub struct RxContext {
    /// The CPU.
    pub rx_cpu: u32,
    /// The queue of the interface.
    pub queue: u32,
    /// The interface, counted from 0.
    pub device: u32,
    /// The time.
    pub now: u64,
    /// Whether the driver supports metadata.
    pub has_metadata: bool,
}

/// What the program did with a frame.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    /// Its flow hash.
    pub hash: u32,
    /// Its target, and the rule that chose it.
    pub target: u32,
    /// See `target`.
    pub by: u32,
    /// The CPU that the frame was sent to, and the generation of its ring.
    pub cpu: u32,
    /// See `cpu`.
    pub generation: u32,
    /// Whether the frame passes instead of going through a ring.
    pub passes: bool,
    /// The sequence number that it got.
    pub seq: u32,
    /// The program's verdict, a value of `enum xdp_action`.
    pub verdict: u32,
    /// Whether the frame was changed.
    pub is_changed: bool,
}
