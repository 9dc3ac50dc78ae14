//! Giving up what is not needed any more once everything is loaded.
//!
//! File descriptors of programs and maps are all it takes to attach, change and read, so a running instance has
//! no capability, can't get one, and has nothing to give to whoever takes it over.

use anyhow::Context;
use caps::{CapSet, Capability};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Kernels that charge BPF maps to the user as locked memory allow 64 KiB unless told otherwise. Where it may
/// not be raised, loading says that memory is short.
pub(crate) fn raise_memory_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK)
        && setrlimit(Resource::RLIMIT_MEMLOCK, u64::MAX, u64::MAX).is_err()
    {
        // As far as the hard limit goes nobody has to be asked.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

/// Drops every capability and the means to get any, for good. Capabilities are a thread's, so this has to come
/// while there is only one.
pub(crate) fn drop_all() -> anyhow::Result<()> {
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
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).with_context(|| format!("can't drop {set:?} capabilities"))?;
    }
    nix::sys::prctl::set_no_new_privs().context("can't set no_new_privs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left() {
        // A thread of its own: the other tests keep what they have.
        let status = std::thread::spawn(|| {
            raise_memory_limit();
            drop_all().unwrap();
            drop_all().expect("twice is once");
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(u64::from_str_radix(&field(set), 16), Ok(0), "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
    }
}
