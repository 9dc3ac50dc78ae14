//! Dropping the privileges that are no longer needed once everything is loaded.
//!
//! The file descriptors of programs and maps suffice to attach, change and read. Unless the threads of the rings stay
//! in the class of ordinary processes, one capability is kept: CAP_SYS_NICE. Without it, the threads of rings that are
//! created later (for another queue size, or a CPU that is online again) could not be put into their class. The kernel
//! requires it because the threads are kernel threads, to which their own limits (RLIMIT_RTPRIO, RLIMIT_NICE) apply,
//! not ours. An attacker who takes over the instance could use it to change the scheduling of other processes, and for
//! nothing else. Processes that the instance starts do not have it.

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Kernels that charge BPF maps to the user as locked memory allow 64 KiB by default. If the limit cannot be raised,
/// loading reports that memory is short.
pub(crate) fn raise_memory_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK)
        && setrlimit(Resource::RLIMIT_MEMLOCK, u64::MAX, u64::MAX).is_err()
    {
        // Raising it up to the hard limit needs no privilege.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

/// Permanently drops every capability, and the means to regain any. CAP_SYS_NICE is kept if `keep_scheduling` is set
/// and the process has it. Capabilities belong to threads, so this must happen while there is only one thread.
pub(crate) fn drop_all(keep_scheduling: bool) -> anyhow::Result<()> {
    let may_schedule = caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_NICE);
    let kept: CapsHashSet = match keep_scheduling && may_schedule.unwrap_or(false) {
        true => [Capability::CAP_SYS_NICE].into(),
        false => CapsHashSet::new(),
    };
    // Dropping them from the bounding set requires CAP_SETPCAP. Without it, the capabilities below cannot be regained
    // either.
    for capability in caps::runtime::thread_all_supported() {
        if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap_or(false) {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    // Kernels without ambient capabilities have none to drop.
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient).context("can't drop ambient capabilities")?;
    }
    caps::clear(None, CapSet::Inheritable).context("can't drop Inheritable capabilities")?;
    // The effective set is always a subset of the permitted set.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).with_context(|| format!("can't drop {set:?} capabilities"))?;
    }
    nix::sys::prctl::set_no_new_privs().context("can't set no_new_privs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The capabilities of a thread after the drop, by the kernel's names of the sets. The thread is a new one, so that
    /// other tests keep their capabilities.
    fn left(keep_scheduling: bool) -> impl Fn(&str) -> String {
        let status = std::thread::spawn(move || {
            raise_memory_limit();
            drop_all(keep_scheduling).unwrap();
            drop_all(keep_scheduling).expect("twice is once");
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        move |name| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        }
    }

    fn set(text: &str) -> u64 {
        u64::from_str_radix(text, 16).unwrap()
    }

    #[test]
    fn nothing_is_left() {
        let left = left(false);
        for name in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(set(&left(name)), 0, "{name}");
        }
        assert_eq!(left("NoNewPrivs:"), "1");
    }

    #[test]
    fn scheduling_is_all_that_is_kept() {
        let has = |name| caps::has_cap(None, CapSet::Effective, name).unwrap();
        let scheduling = u64::from(has(Capability::CAP_SYS_NICE)) << 23;
        let may_bound = has(Capability::CAP_SETPCAP);
        let left = left(true);
        for name in ["CapEff:", "CapPrm:"] {
            assert_eq!(set(&left(name)), scheduling, "{name}");
        }
        for name in ["CapInh:", "CapAmb:"] {
            assert_eq!(set(&left(name)), 0, "{name}");
        }
        assert!(!may_bound || set(&left("CapBnd:")) == 0, "what it starts has nothing");
        assert_eq!(left("NoNewPrivs:"), "1");
    }
}
