//! The boundary between Rust and the BPF programs: types and numbers generated from `bpf/steer_shared.h`, arrays mapped
//! into memory, and the system calls for which no library used here has a safe form. All unsafe code of this crate is in
//! this file and in `abi/`.
//!
//! Rust repeats no number of the header: the build generates a type from each of its enums. Assertions check that numbers
//! that rxsteer-core also defines are equal.

#![allow(unsafe_code)]

mod memory;
mod sys;

pub(crate) use memory::{Array, Variable, activate, set_bucket};
pub use sys::Mode;
pub(crate) use sys::{link_ifindex, link_xdp, run_program, set_class};

use bytemuck::Pod;
use rxsteer_core::{
    CpuId, DevFlow, FlowKey, Policy, admission, balance, flow_limit, matching, order, slot, sparse,
};
use rxsteer_packet::HashWords;
use rxsteer_packet::{TunnelKind, TunnelKinds};
use std::mem::offset_of;

#[allow(
    missing_docs,
    unreachable_pub,
    unused,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/steer.skel.rs"));
}

/// The variables of the programs that both sides use.
pub(crate) use skeleton::types::bss as Shared;
pub(crate) use skeleton::types::{
    steer_action, steer_bucket, steer_candidates, steer_config, steer_counters, steer_delays,
    steer_ended, steer_flow, steer_flow_key, steer_hash_active, steer_limiter, steer_line,
    steer_matcher, steer_net_key, steer_pair, steer_ring, steer_row, steer_rule_end,
    steer_rule_fields as rule_fields, steer_rule_hits, steer_shadow, steer_slot, steer_sparse_slot,
    steer_tunnel_key,
};
pub(crate) use skeleton::{OpenSteerSkel, SteerSkel, SteerSkelBuilder};

use skeleton::types::{
    steer_cpu_bits as cpu_bits, steer_device_flags as device_flags, steer_limits as limits,
    steer_options as parser, steer_policy as policies, steer_rule as rules,
    steer_slot_bits as slot_bits, steer_vlan_bits as vlan_bits,
};

/// A 16-bit number of the header.
const fn short(number: u32) -> u16 {
    assert!(number <= u16::MAX as u32, "it has 16 bits");
    number as u16
}

/// A bit of a CPU, of `enum steer_cpu_bits`.
const fn byte(bit: cpu_bits) -> u8 {
    assert!(bit.0 <= u8::MAX as u32, "it has 8 bits");
    bit.0 as u8
}

/// The number of CPU ids for which the programs' tables have room.
pub const MAX_CPUS: u16 = short(limits::STEER_MAX_CPUS.0);
/// The most CPU maps of a configuration, including the general one.
pub(crate) const MAX_MAPS: usize = limits::STEER_MAX_MAPS.0 as usize;
/// The most CPUs in all maps of a configuration together.
pub(crate) const MAP_ENTRIES: usize = limits::STEER_MAP_ENTRIES.0 as usize;
/// Interfaces are stored by their index modulo this number.
pub(crate) const MAX_DEVICES: u32 = limits::STEER_MAX_DEVICES.0;
/// The number of CPUMAP entries that a CPU can have: one drains while the other is in use.
pub(crate) const GENERATIONS: u32 = limits::STEER_GENERATIONS.0;
/// In tables of CPUs: no CPU.
pub(crate) const NO_CPU: u16 = short(limits::STEER_NO_CPU.0);
/// Lines in one set of flow statistics.
pub(crate) const WAYS: u32 = limits::STEER_WAYS.0;
/// Sparse slots of a CPU in the table.
pub(crate) const SPARSE_ROW: u32 = limits::STEER_SPARSE_ROW.0;
/// The parser's option to enter tunnels.
pub(crate) const PARSE_INNER: u8 = parser::STEER_INNER.0 as u8;
/// The logarithm of the number of sets of flows without a sparse slot.
pub(crate) const SETS_LOG: u32 = limits::STEER_SETS_LOG.0;
/// In a list of CPUs plus one: several CPUs that are counted together.
pub(crate) const OTHER_CPUS: u16 = short(limits::STEER_OTHER_CPUS.0);
/// Words in a line.
pub(crate) const LINE_WORDS: u32 = limits::STEER_LINE_WORDS.0;
/// Flow-limit counts in a line.
pub(crate) const LINE_BYTES: u32 = limits::STEER_LINE_BYTES.0;
/// The configuration of interfaces that flush; the configurations before it can be active.
pub(crate) const CONFIG_FLUSHING: u32 = limits::STEER_CONFIG_FLUSHING.0;
/// The most buckets of a table. After their counters, each RX CPU has counters for each CPU.
pub(crate) const MAX_BUCKETS: u32 = limits::STEER_MAX_BUCKETS.0;
/// Distinguishes the two directions of a flow in the sock flow table.
pub(crate) const REVERSED: u32 = limits::STEER_REVERSED.0;
/// Bits of a CPU.
pub(crate) const CPU_LINGER: u8 = byte(cpu_bits::STEER_CPU_LINGER);
pub(crate) const CPU_GENERATION: u8 = byte(cpu_bits::STEER_CPU_GENERATION);
pub(crate) const CPU_DESIRED: u8 = byte(cpu_bits::STEER_CPU_DESIRED);
/// A bit of a VLAN: there is a tag.
pub(crate) const TAGGED: u16 = short(vlan_bits::STEER_TAGGED.0);
/// Flags of an interface.
pub(crate) const FLUSHING: u32 = device_flags::STEER_FLUSHING.0;
pub(crate) const MAY_BE_PARTIAL: u32 = device_flags::STEER_MAY_BE_PARTIAL.0;
/// Buckets of the delays of sampled frames.
pub(crate) const DELAY_BUCKETS: usize = limits::STEER_DELAY_BUCKETS.0 as usize;
/// Rules, as indices of counters by rule.
pub(crate) const BY_LOCAL: usize = rules::STEER_BY_LOCAL.0 as usize;
pub(crate) const BY_BOUND: usize = rules::STEER_BY_BOUND.0 as usize;
pub(crate) const BY_HASH: usize = rules::STEER_BY_HASH.0 as usize;
pub(crate) const BY_SLOT: usize = rules::STEER_BY_SLOT.0 as usize;
pub(crate) const BY_RFS: usize = rules::STEER_BY_RFS.0 as usize;
pub(crate) const BY_MATCH: usize = rules::STEER_BY_MATCH.0 as usize;
pub(crate) const BY_PASS: usize = rules::STEER_BY_PASS.0 as usize;
/// Rules before the policy, and their tables.
pub(crate) const MAX_RULES: usize = limits::STEER_MAX_RULES.0 as usize;
pub(crate) const RULE_SETS: usize = limits::STEER_RULE_SETS.0 as usize;
pub(crate) const RULE_COUNTERS: usize = limits::STEER_RULE_COUNTERS.0 as usize;
/// The parser's option to read the number of the outermost tunnel.
pub(crate) const PARSE_NUMBERS: u32 = parser::STEER_NUMBERS.0;

/// The number of a policy in the programs.
pub(crate) fn number_of(policy: &Policy) -> u32 {
    let number = match policy {
        Policy::None => policies::STEER_NONE,
        Policy::Rps => policies::STEER_RPS,
        Policy::Bound(_) => policies::STEER_BOUND,
        Policy::Sparse(_) => policies::STEER_SPARSE,
        Policy::Rfs => policies::STEER_RFS,
        Policy::RfsSparse(_) => policies::STEER_RFS_SPARSE,
        Policy::Balance(front, _) => match (front.rfs, front.slots) {
            (false, None) => policies::STEER_BALANCE,
            (false, Some(_)) => policies::STEER_SPARSE,
            (true, None) => policies::STEER_RFS,
            (true, Some(_)) => policies::STEER_RFS_SPARSE,
        },
    };
    number.0
}

// Numbers that the core also defines.
const _: () = {
    assert!(NO_CPU == CpuId::NONE.get() && MAX_CPUS <= CpuId::MAX.get());
    assert!(limits::STEER_MAX_LOOPS.0 == sparse::MAX_LOOPS as u32);
    assert!(limits::STEER_MAX_LOOPS.0 <= SPARSE_ROW);
    assert!(parser::STEER_KEY_ESP.0 == TunnelKind::Esp as u32);
    assert!(parser::STEER_KEY_GTP.0 == TunnelKind::Gtp as u32);
    assert!(parser::STEER_KEY_L2TP.0 == TunnelKind::L2tp as u32);
    assert!(parser::STEER_KEY_WIREGUARD.0 == TunnelKind::Wireguard as u32);
    assert!(parser::STEER_KEYS.0 == TunnelKinds::ALL.bits() as u32);
    assert!(parser::STEER_KIND_VXLAN.0 == TunnelKind::Vxlan as u32);
    assert!(MAX_RULES == matching::MAX_RULES && RULE_COUNTERS == 2 * MAX_RULES);
    assert!(limits::STEER_RULE_WORDS.0 as usize * 64 == MAX_RULES);
    assert!(limits::STEER_NO_VLAN.0 as usize == matching::NO_VLAN);
    assert!(limits::STEER_SETS_LOG.0 == admission::SETS_LOG);
    assert!(limits::STEER_PACKETS_SHIFT.0 == admission::PACKETS_SHIFT);
    assert!(limits::STEER_HYSTERESIS.0 == order::HYSTERESIS);
    assert!(limits::STEER_MAX_BUCKETS.0 == balance::BUCKETS[1] as u32);
    assert!(limits::STEER_BUCKET_SAMPLE.0 == balance::SAMPLE);
    assert!(limits::STEER_MAX_VOTES.0 == balance::MAX_VOTES);
    assert!(limits::STEER_FLOW_LIMIT_HISTORY.0 as usize == flow_limit::FLOW_LIMIT_HISTORY);
    assert!(limits::STEER_GOLDEN_RATIO.0 == slot::hash_32(1, u32::BITS));
    assert!(size_of::<steer_flow_key>() == size_of::<FlowKey>());
    assert!(offset_of!(steer_flow_key, src) == offset_of!(FlowKey, src));
    assert!(offset_of!(steer_flow_key, dst) == offset_of!(FlowKey, dst));
    assert!(offset_of!(steer_flow_key, src_port) == offset_of!(FlowKey, src_port));
    assert!(offset_of!(steer_flow_key, dst_port) == offset_of!(FlowKey, dst_port));
    assert!(offset_of!(steer_flow_key, protocol) == offset_of!(FlowKey, protocol));
    assert!(offset_of!(steer_flow_key, ip_version) == offset_of!(FlowKey, ip_version));
    assert!(size_of::<skeleton::types::steer_hash_words>() == size_of::<HashWords>());
    // Without statistics a slot consists of its first 8 bytes, which `exchange_word` compares and replaces as one word.
    assert!(offset_of!(steer_slot, last_seq) == 0 && offset_of!(steer_slot, packed) == 4);
    assert!(offset_of!(steer_slot, addresses) == size_of::<DevFlow>());
    let cpu = CpuId::new(MAX_CPUS - 1).expect("it is a CPU");
    let last = LastPacket {
        seq: 7,
        cpu: cpu.get() as u32,
        generation: 0,
        rx_cpu: cpu.get() as u32 - 1,
        hysteresis: order::HYSTERESIS,
    };
    let flow = DevFlow::of_words([0; 2]).queued(cpu, cpu, last.rx_cpu as u16, last.seq);
    let (ours, cores) = (last.words(), flow.words());
    assert!(ours[0] == cores[0] && ours[1] == cores[1]);
};

/// The last packet of a slot's flows, as the slot records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    const CPU: u32 = slot_bits::STEER_SLOT_CPU.0;
    const GENERATION_SHIFT: u32 = slot_bits::STEER_SLOT_GENERATION_SHIFT.0;
    const RX_CPU_SHIFT: u32 = slot_bits::STEER_SLOT_RX_CPU_SHIFT.0;
    const RX_CPU: u32 = slot_bits::STEER_SLOT_RX_CPU.0;
    const HYSTERESIS_SHIFT: u32 = slot_bits::STEER_HYSTERESIS_SHIFT.0;

    /// Decodes `last_seq` and `packed` of a slot; `None` when the slot is unset.
    pub(crate) fn of_words([seq, packed]: [u32; 2]) -> Option<LastPacket> {
        Some(LastPacket {
            seq,
            cpu: (packed & Self::CPU).checked_sub(1)?,
            generation: packed >> Self::GENERATION_SHIFT & (GENERATIONS - 1),
            rx_cpu: packed >> Self::RX_CPU_SHIFT & Self::RX_CPU,
            hysteresis: packed >> Self::HYSTERESIS_SHIFT,
        })
    }

    /// Decodes a slot; `None` when it is unset.
    pub(crate) fn of(slot: &steer_slot) -> Option<LastPacket> {
        LastPacket::of_words([slot.last_seq, slot.packed])
    }

    /// `last_seq` and `packed` of the slot, encoded as `steer_slot_word` does in the programs.
    pub(crate) const fn words(self) -> [u32; 2] {
        let rx_cpu = (self.rx_cpu & Self::RX_CPU) << Self::RX_CPU_SHIFT;
        let ring = self.generation << Self::GENERATION_SHIFT | (self.cpu + 1);
        [self.seq, self.hysteresis << Self::HYSTERESIS_SHIFT | rx_cpu | ring]
    }

    /// The ring that the packet was sent to.
    pub(crate) fn ring(self) -> u32 {
        self.cpu * GENERATIONS + self.generation
    }

    /// The slot as the core represents it, without generations.
    pub(crate) fn in_core(self) -> DevFlow {
        DevFlow::of_words(LastPacket { generation: 0, ..self }.words())
    }
}

/// Implements `bytemuck`'s traits for the types of the shared header that arrays hold. `libbpf-cargo` generates these
/// types without a way to add a derive. The traits hold: the types consist of numbers without gaps, since the generator
/// inserts members where C pads.
macro_rules! pod {
    ($($type:ty),*) => { $(
        // SAFETY: its members are numbers and arrays of them, or such types again, and padding is among them.
        unsafe impl bytemuck::Zeroable for $type {}
        // SAFETY: as above; it is `repr(C)` and `Copy`.
        unsafe impl bytemuck::Pod for $type {}
    )* };
}
pod!(
    steer_bucket,
    steer_candidates,
    steer_counters,
    steer_delays,
    steer_ring,
    steer_flow,
    steer_flow_key,
    steer_hash_active,
    steer_limiter,
    steer_line,
    steer_ended,
    steer_matcher,
    steer_net_key,
    steer_pair,
    steer_row,
    steer_rule_end,
    steer_rule_hits,
    steer_shadow,
    steer_slot,
    steer_sparse_slot,
    steer_tunnel_key
);

/// A value of the shared header that is too large for the stack, all 0.
pub(crate) fn zeroed<T: Pod>() -> Box<T> {
    bytemuck::zeroed_box()
}

/// The key words of the hash in the form of the programs.
pub(crate) fn hash_words(words: &HashWords) -> skeleton::types::steer_hash_words {
    skeleton::types::steer_hash_words {
        nh_ipv4: words.nh_ipv4,
        nh_ipv6: words.nh_ipv6,
        finish_ipv4: words.finish_ipv4,
        finish_ipv6: words.finish_ipv6,
    }
}

/// Converts a flow key of the programs.
pub(crate) fn key_of(key: &steer_flow_key) -> FlowKey {
    FlowKey {
        src: key.src,
        dst: key.dst,
        src_port: key.src_port,
        dst_port: key.dst_port,
        protocol: key.protocol,
        ip_version: key.ip_version,
        reserved: [0; 2],
    }
}
