//! Giving up what is not needed any more once everything is loaded.
//!
//! File descriptors of programs and maps are all it takes to attach, change and read. One capability is kept, unless
//! the threads of the rings are to stay in the class of ordinary processes: CAP_SYS_NICE, without which the threads
//! of rings that are made later (another queue size, a CPU that comes back) could not be put into their class. The
//! kernel asks for it because the threads are kernel threads, whose own limits (RLIMIT_RTPRIO, RLIMIT_NICE) count,
//! not ours. With it whoever took the instance over could change the scheduling of other processes, and no more;
//! nothing that it starts would have it.

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Kernels that charge BPF maps to the user as locked memory allow 64 KiB by default. Where it may
/// not be raised, loading says that memory is short.
pub(crate) fn raise_memory_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK)
        && setrlimit(Resource::RLIMIT_MEMLOCK, u64::MAX, u64::MAX).is_err()
    {
        // As far as the hard limit goes no privilege is needed.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

/// Drops every capability, but CAP_SYS_NICE where `keep_scheduling` and it is there, and the means to get any, for
/// good. Capabilities are a thread's, so this has to come while there is only one.
pub(crate) fn drop_all(keep_scheduling: bool) -> anyhow::Result<()> {
    let may_schedule = caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_NICE);
    let kept: CapsHashSet = match keep_scheduling && may_schedule.unwrap_or(false) {
        true => [Capability::CAP_SYS_NICE].into(),
        false => CapsHashSet::new(),
    };
    // Dropping them from the bounding set takes CAP_SETPCAP; without it nothing below can be had back either.
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
    // The effective ones are among the permitted ones at any time.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).with_context(|| format!("can't drop {set:?} capabilities"))?;
    }
    nix::sys::prctl::set_no_new_privs().context("can't set no_new_privs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread of its own has left, by the kernel's names of the sets: the other tests keep what they have.
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
