//! Why something could not be looked at.

use std::io;

/// Why something could not be looked at. What merely is not known is no error, but `None` among the facts.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No interface of this network namespace has that name.
    #[error("there is no interface '{name}' in this network namespace")]
    NoSuchInterface {
        /// The name that was asked for.
        name: String,
    },
    /// sysfs is that of another network namespace.
    #[error(
        "/sys shows another network namespace, so rxsteer can't read or set '{name}' there; enter the namespace \
         with its own /sys: ip netns exec NAME rxsteer host …"
    )]
    OtherNamespace {
        /// The interface that was asked for.
        name: String,
    },
    /// A pattern is none.
    #[error("'{text}' is not a pattern for interface names: {why}; e.g. veth*")]
    BadPattern {
        /// The pattern as it was given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The kernel does not list its interfaces.
    #[error("the kernel does not list its interfaces (netlink): {0}")]
    Links(#[source] io::Error),
    /// Nothing says which CPUs are online.
    #[error(
        "can't find out which CPUs are online: neither /sys/devices/system/cpu/online nor /proc/self/status can be \
         read; \
         name them with --cpus"
    )]
    NoCpus,
}
