//! RFS: the CPU where the application last consumed a flow's data is the flow's *desired* CPU.
//!
//! ```text
//!   application on CPU 3 ── record(hash, 3) ──► sock flow table ──► desired(hash) ──► decide
//!                                               one entry:  upper hash bits │ CPU + 1
//! ```
//!
//! Source: "rfs: Receive Flow Steering", the `rps_sock_flow_table`. As in today's kernel an entry
//! carries the upper bits of the hash beside the CPU, so that another flow's desired CPU in the
//! same entry is not taken for one's own; rfs-commit held the CPU alone. The other table of that
//! commit, one per RX queue with each flow's current CPU and tail, is in [`crate::order`], since
//! here every decision passes it, not only those of RFS.
//!
//! What must hold:
//! - an entry is one word, read and written whole: a reader sees some desired CPU that was
//!   recorded;
//! - it is written only when it changes, so that the line stays shared while no application moves;
//! - a desired CPU is a hint: a lost or stale one costs locality, never order.

use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use alloc::boxed::Box;

/// Most entries a [`SockFlowTable`] can have: 256 MiB of them.
pub const MAX_SOCK_FLOW_ENTRIES: u32 = 1 << 26;

/// Entries of a [`SockFlowTable`] by default: what scaling-rst suggests for a
/// moderate server.
pub const DEFAULT_SOCK_FLOW_ENTRIES: u32 = 32768;

/// For each flow its desired CPU: the kernel's `rps_sock_flow_table`, one for
/// all devices and RX queues, shared by all.
#[derive(Debug)]
pub struct SockFlowTable {
    entries: Box<[AtomicU32]>,
    /// The bits of an entry that hold the CPU plus one; the others hold the hash's.
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

    /// The bits of an entry that hold the CPU plus one, all set, where `highest` is the highest CPU: room
    /// for it, and for 0, which is "no desired CPU".
    #[must_use]
    pub fn sock_cpu_mask(highest: CpuId) -> u32 {
        (u32::from(highest.get()) + 2).next_power_of_two() - 1
    }

    /// How many entries there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a table is never empty")]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Which entry belongs to `hash`.
    #[inline(always)]
    #[must_use]
    pub fn index(&self, hash: FlowHash) -> u32 {
        hash.get() & (self.entries.len() as u32 - 1)
    }

    /// The application that consumes the flow runs on `cpu`: the kernel's `rps_record_sock_flow`,
    /// called from `recvmsg` and `sendmsg`. "No hash" and a CPU above the highest change nothing.
    #[inline]
    pub fn record(&self, hash: FlowHash, cpu: CpuId) {
        if hash.is_none() || cpu > self.highest {
            return;
        }
        let entry = &self.entries[self.index(hash) as usize];
        let desired = self.entry_of(hash, cpu);
        // ORDER: Relaxed, here and below; the word is the whole message.
        if entry.load(Ordering::Relaxed) != desired {
            entry.store(desired, Ordering::Relaxed);
            if !self.has_desired() {
                self.has_desired.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether a desired CPU was ever recorded: without one there is nothing to look up.
    #[inline(always)]
    #[must_use]
    pub fn has_desired(&self) -> bool {
        self.has_desired.load(Ordering::Relaxed)
    }

    /// The flow has ended: its desired CPU, if the entry still holds it, is forgotten, so that a
    /// later flow with the same hash does not inherit it (the kernel's `sock_rps_delete_flow`).
    #[inline]
    pub fn forget(&self, hash: FlowHash) {
        if hash.is_none() {
            return;
        }
        let entry = &self.entries[self.index(hash) as usize];
        let desired = entry.load(Ordering::Relaxed);
        if desired != 0 && (desired ^ hash.get()) & !self.sock_cpu_mask == 0 {
            // Another flow's desired CPU that is recorded in between is kept.
            let _ = entry.compare_exchange(desired, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The flow's desired CPU; `None` when none was recorded, the entry holds another flow's, or
    /// there is no hash.
    #[inline(always)]
    #[must_use]
    pub fn desired(&self, hash: FlowHash) -> Option<CpuId> {
        match self.desired_in(self.raw(hash), hash) {
            _ if hash.is_none() => None,
            0 => None,
            cpu => Some(CpuId::from_raw((cpu - 1) as u16)),
        }
    }

    /// The desired CPU plus one in `entry`, loaded for `hash` ([`SockFlowTable::raw`]); 0 when it
    /// holds none.
    #[inline(always)]
    pub(crate) fn desired_in(&self, entry: u32, hash: FlowHash) -> u32 {
        let is_its_own = (entry ^ hash.get()) & !self.sock_cpu_mask == 0;
        // An entry of 0 says CPU plus one is 0, whatever the hash.
        if is_its_own { entry & self.sock_cpu_mask } else { 0 }
    }

    /// The entry that `hash` belongs to, as it is stored: upper hash bits and CPU plus one, 0 when
    /// unset.
    #[inline(always)]
    #[must_use]
    pub fn raw(&self, hash: FlowHash) -> u32 {
        self.entries[self.index(hash) as usize].load(Ordering::Relaxed)
    }

    /// Makes the entry that `hash` belongs to what another table stores there.
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
