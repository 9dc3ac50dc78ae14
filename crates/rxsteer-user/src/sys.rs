//! System calls: which CPUs this process may use, and pinning threads to them. Through rustix, so
//! without `unsafe`.

use rustix::thread::{CpuSet as HostSet, sched_getaffinity, sched_setaffinity};
use rxsteer_core::{CpuId, CpuSet};

/// CPUs this process may run on; `None` when the host does not say.
#[must_use]
pub fn allowed_cpus() -> Option<CpuSet> {
    let allowed = sched_getaffinity(None).ok()?;
    // The set of the system call reaches as far as the C library's; hosts with more CPUs than
    // that are seen as having those.
    let ids = (0..HostSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    CpuSet::new(ids.filter_map(|cpu| CpuId::new(cpu as u16)))
}

/// The CPU this thread runs on at the moment.
#[must_use]
pub fn current_cpu() -> Option<CpuId> {
    u16::try_from(rustix::thread::sched_getcpu()).ok().and_then(CpuId::new)
}

/// A thread pinned to a CPU, until this is dropped: then it may run where it could before.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: HostSet,
}

impl Pinned {
    /// Pins the calling thread; `None` when the host does not let it.
    pub(crate) fn to(cpu: CpuId) -> Option<Pinned> {
        let before = sched_getaffinity(None).ok()?;
        pin_to(cpu).then_some(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was so before, so the host has no reason to refuse.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Pins the calling thread to `cpu` for good; says whether the host let it.
pub fn pin_to(cpu: CpuId) -> bool {
    if cpu.index() >= HostSet::MAX_CPU {
        return false;
    }
    let mut set = HostSet::new();
    set.set(cpu.index());
    sched_setaffinity(None, &set).is_ok()
}
