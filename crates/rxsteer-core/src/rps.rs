//! RPS: the flow hash picks a CPU from the RX queue's map.
//!
//! Source: "Receive Packet Steering" (slides), part 3: hash of addresses and ports → CPU id → that CPU's backlog.
//! As in the kernel's `get_rps_cpu`, the index is `(hash × length) >> 32`. Unlike a modulo, it needs no division
//! and uses the upper bits of the hash.

use crate::cpu::{CpuId, CpuSet};
use crate::flow::FlowHash;
use alloc::boxed::Box;

/// The CPU map of one RX queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpsMap {
    cpus: Box<[CpuId]>,
}

impl RpsMap {
    /// A map over the CPUs of `cpus`.
    #[must_use]
    pub fn new(cpus: &CpuSet) -> RpsMap {
        RpsMap { cpus: cpus.as_slice().into() }
    }

    /// A map over the CPUs of `cpus` in which `substitute` replaces each CPU that can't be used now. The other
    /// CPUs keep their flows. The kernel does the same: packets for an offline CPU stay on the CPU that received
    /// them.
    #[must_use]
    pub(crate) fn with_substitute(
        cpus: &CpuSet,
        usable: impl Fn(CpuId) -> bool,
        substitute: CpuId,
    ) -> RpsMap {
        let cpus = cpus.iter().map(|cpu| if usable(cpu) { cpu } else { substitute });
        RpsMap { cpus: cpus.collect() }
    }

    /// A map with one entry for each bucket of an indirection table ([`crate::balance`]).
    #[must_use]
    pub(crate) fn of_table(table: Box<[CpuId]>) -> RpsMap {
        RpsMap { cpus: table }
    }

    /// The CPU of an entry.
    #[inline(always)]
    #[must_use]
    pub(crate) fn entry(&self, index: usize) -> CpuId {
        self.cpus[index]
    }

    /// The CPU for `hash`, which must not be "no hash".
    #[inline(always)]
    #[must_use]
    pub fn cpu(&self, hash: FlowHash) -> CpuId {
        self.cpus[self.index(hash)]
    }

    /// The index in the map for `hash`.
    #[inline(always)]
    #[must_use]
    pub fn index(&self, hash: FlowHash) -> usize {
        // The product is below length × 2³², so the index is below length.
        ((u64::from(hash.get()) * self.cpus.len() as u64) >> 32) as usize
    }

    /// The number of entries of the map.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a map is never empty")]
    pub fn len(&self) -> usize {
        self.cpus.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn map_is_indexed_by_multiply_shift() {
        let map = RpsMap::new(&"2,5,9".parse().unwrap());
        let cpu = |hash| map.cpu(FlowHash::from_raw(hash)).get();
        assert_eq!((cpu(1), cpu(0x5555_5555), cpu(0x5555_5556)), (2, 2, 5));
        assert_eq!((cpu(0xaaaa_aaaa), cpu(0xaaaa_aaab), cpu(u32::MAX)), (5, 9, 9));
    }
}
