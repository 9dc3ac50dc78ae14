//! System calls: the CPUs that this process may use, and pinning threads to them. The calls go through rustix, so
//! there is no `unsafe`.

use rustix::thread::{CpuSet as HostSet, sched_getaffinity, sched_setaffinity};
use rxsteer_core::{CpuId, CpuSet};

/// The CPUs that this process may run on; `None` if the system does not return them.
#[must_use]
pub fn allowed_cpus() -> Option<CpuSet> {
    let allowed = sched_getaffinity(None).ok()?;
    // The system call's set has the size of the C library's. On a host with more CPUs, only the CPUs within that
    // set are seen.
    let ids = (0..HostSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    CpuSet::new(ids.filter_map(|cpu| CpuId::new(cpu as u16)))
}

/// The CPU that this thread runs on now.
#[must_use]
pub fn current_cpu() -> Option<CpuId> {
    u16::try_from(rustix::thread::sched_getcpu()).ok().and_then(CpuId::new)
}

/// A thread pinned to a CPU. When this is dropped, the thread may again run where it could before.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: HostSet,
}

impl Pinned {
    /// Pins the calling thread; `None` if the system does not allow it.
    pub(crate) fn to(cpu: CpuId) -> Option<Pinned> {
        let before = sched_getaffinity(None).ok()?;
        pin_to(cpu).then_some(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // This was the setting before, so the system has no reason to refuse it.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Pins the calling thread to `cpu` permanently. Returns whether the system allowed it.
pub fn pin_to(cpu: CpuId) -> bool {
    if cpu.index() >= HostSet::MAX_CPU {
        return false;
    }
    let mut set = HostSet::new();
    set.set(cpu.index());
    sched_setaffinity(None, &set).is_ok()
}
