//! RFS: the CPU where the application last consumed a flow's data is the flow's *desired* CPU.
//!
//! ```text
//!   application on CPU 3 ── record(hash, 3) ──► sock flow table ──► desired(hash) ──► decide
//!                                               one entry:  upper hash bits │ CPU + 1
//! ```
//!
//! Source: "rfs: Receive Flow Steering", the `rps_sock_flow_table`. As in today's kernel, an entry holds the upper
//! bits of the hash beside the CPU, so that a flow does not take the desired CPU of another flow in the same
//! entry. In rfs-commit an entry held the CPU alone. The other table of that commit has one instance per RX queue,
//! with each flow's current CPU and tail. It is in [`crate::order`], since here every decision passes it, not only
//! those of RFS.
//!
//! Invariants:
//! - An entry is one word, read and written as a whole: a reader sees a desired CPU that was recorded.
//! - An entry is written only when it changes, so the cache line stays shared while no application moves.
//! - A desired CPU is a hint: a lost or stale one costs locality, never order.

use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use alloc::boxed::Box;

/// The largest number of entries of a [`SockFlowTable`]: 256 MiB.
pub const MAX_SOCK_FLOW_ENTRIES: u32 = 1 << 26;

/// The default number of entries of a [`SockFlowTable`]: what scaling-rst suggests for a moderate server.
pub const DEFAULT_SOCK_FLOW_ENTRIES: u32 = 32768;

/// The desired CPU of each flow: the kernel's `rps_sock_flow_table`. All devices, RX queues and threads share one
/// table.
#[derive(Debug)]
pub struct SockFlowTable {
    entries: Box<[AtomicU32]>,
    /// The bits of an entry that hold the CPU plus one; the other bits hold the upper bits of the hash.
    sock_cpu_mask: u32,
    highest: CpuId,
    /// Whether a desired CPU was ever recorded.
    has_desired: AtomicBool,
}

impl SockFlowTable {
    /// A table of `entries` entries, rounded up to a power of two, for CPUs up to `highest`.
    ///
    /// # Panics
    /// When `entries` is 0 or above [`MAX_SOCK_FLOW_ENTRIES`].
    #[must_use]
    pub fn new(entries: u32, highest: CpuId) -> SockFlowTable {
        assert!((1..=MAX_SOCK_FLOW_ENTRIES).contains(&entries), "a sock flow table has a limit");
        let entries = entries.next_power_of_two();
        SockFlowTable {
            entries: (0..entries).map(|_| AtomicU32::new(0)).collect(),
            sock_cpu_mask: SockFlowTable::sock_cpu_mask(highest),
            highest,
            has_desired: AtomicBool::new(false),
        }
    }

    /// The mask of an entry's bits that hold the CPU plus one, when `highest` is the highest CPU. The bits have
    /// room for `highest` plus one and for 0, which means "no desired CPU".
    #[must_use]
    pub fn sock_cpu_mask(highest: CpuId) -> u32 {
        (u32::from(highest.get()) + 2).next_power_of_two() - 1
    }

    /// The number of entries.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a table is never empty")]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The index of the entry for `hash`.
    #[inline(always)]
    #[must_use]
    pub fn index(&self, hash: FlowHash) -> u32 {
        hash.get() & (self.entries.len() as u32 - 1)
    }

    /// Records that the application that consumes the flow runs on `cpu`: the kernel's `rps_record_sock_flow`,
    /// called from `recvmsg` and `sendmsg`. "No hash" and a CPU above the highest change nothing.
    #[inline]
    pub fn record(&self, hash: FlowHash, cpu: CpuId) {
        if hash.is_none() || cpu > self.highest {
            return;
        }
        let entry = &self.entries[self.index(hash) as usize];
        let desired = self.entry_of(hash, cpu);
        // ORDER: Relaxed, here and below: the word carries all of the information.
        if entry.load(Ordering::Relaxed) != desired {
            entry.store(desired, Ordering::Relaxed);
            if !self.has_desired() {
                self.has_desired.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether a desired CPU was ever recorded. If none was, no lookup is needed.
    #[inline(always)]
    #[must_use]
    pub fn has_desired(&self) -> bool {
        self.has_desired.load(Ordering::Relaxed)
    }

    /// Forgets the desired CPU of a flow that has ended, if the entry still holds it, so that a later flow with
    /// the same hash does not inherit it (the kernel's `sock_rps_delete_flow`).
    #[inline]
    pub fn forget(&self, hash: FlowHash) {
        if hash.is_none() {
            return;
        }
        let entry = &self.entries[self.index(hash) as usize];
        let desired = entry.load(Ordering::Relaxed);
        if desired != 0 && (desired ^ hash.get()) & !self.sock_cpu_mask == 0 {
            // If another flow's desired CPU is recorded in between, that one is kept.
            let _ = entry.compare_exchange(desired, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The flow's desired CPU. `None` when none was recorded, when the entry holds another flow's, or when there
    /// is no hash.
    #[inline(always)]
    #[must_use]
    pub fn desired(&self, hash: FlowHash) -> Option<CpuId> {
        match self.desired_in(self.raw(hash), hash) {
            _ if hash.is_none() => None,
            0 => None,
            cpu => Some(CpuId::from_raw((cpu - 1) as u16)),
        }
    }

    /// The desired CPU plus one in `entry`, which was loaded for `hash` ([`SockFlowTable::raw`]); 0 when the entry
    /// holds no desired CPU of this flow.
    #[inline(always)]
    pub(crate) fn desired_in(&self, entry: u32, hash: FlowHash) -> u32 {
        let is_its_own = (entry ^ hash.get()) & !self.sock_cpu_mask == 0;
        // In an entry of 0, the CPU plus one is 0, whatever the hash.
        if is_its_own { entry & self.sock_cpu_mask } else { 0 }
    }

    /// The stored entry for `hash`: upper hash bits and CPU plus one; 0 when unset.
    #[inline(always)]
    #[must_use]
    pub fn raw(&self, hash: FlowHash) -> u32 {
        self.entries[self.index(hash) as usize].load(Ordering::Relaxed)
    }

    /// Sets the entry for `hash` to `entry`, the value that another table stores there.
    pub(crate) fn restore(&self, hash: FlowHash, entry: u32) {
        self.entries[self.index(hash) as usize].store(entry, Ordering::Relaxed);
        self.has_desired.store(entry != 0 || self.has_desired(), Ordering::Relaxed);
    }

    fn entry_of(&self, hash: FlowHash, cpu: CpuId) -> u32 {
        hash.get() & !self.sock_cpu_mask | (u32::from(cpu.get()) + 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    fn hash(hash: u32) -> FlowHash {
        FlowHash::from_raw(hash)
    }

    #[test]
    fn sizes_are_rounded_up_to_powers_of_two() {
        for (asked, got) in [(1, 1), (2, 2), (3, 4), (32768, 32768), (32769, 65536)] {
            assert_eq!(SockFlowTable::new(asked, cpu(0)).len(), got);
        }
    }

    #[test]
    fn every_cpu_differs_from_no_desired_cpu() {
        for highest in [0, 1, 2, 3, 63, 64, 8191] {
            let table = SockFlowTable::new(16, cpu(highest));
            for hash in [hash(1), hash(0x10), hash(u32::MAX)] {
                assert_eq!(table.desired(hash), None, "nothing was recorded");
                for id in [0, highest / 2, highest] {
                    table.record(hash, cpu(id));
                    assert_eq!(table.desired(hash), Some(cpu(id)), "highest {highest}");
                }
                table.forget(hash);
                assert_eq!(table.desired(hash), None);
            }
        }
    }

    #[test]
    fn desired_cpu_of_another_flow_is_not_taken() {
        let table = SockFlowTable::new(16, cpu(7));
        table.record(hash(0x1001), cpu(3));
        assert_eq!(table.desired(hash(0x2001)), None, "same entry, other upper bits");
        table.forget(hash(0x2001));
        assert_eq!(table.desired(hash(0x1001)), Some(cpu(3)), "one can't forget for another");
        table.record(hash(0x2001), cpu(4));
        assert_eq!(table.desired(hash(0x1001)), None, "the entry is the later flow's");
    }

    #[test]
    fn what_means_nothing_changes_nothing() {
        let table = SockFlowTable::new(4, cpu(1));
        table.record(FlowHash::NONE, cpu(1));
        table.record(hash(5), cpu(2));
        table.record(hash(5), CpuId::NONE);
        assert_eq!((table.raw(hash(4)), table.raw(hash(5))), (0, 0));
    }
}
