//! Why the facts could not be collected.

use std::io;

/// Why the facts could not be collected. An unknown fact is not an error, but `None`.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No interface of this network namespace has that name.
    #[error("there is no interface '{name}' in this network namespace")]
    NoSuchInterface {
        /// The requested name.
        name: String,
    },
    /// sysfs shows another network namespace.
    #[error(
        "/sys shows another network namespace, so rxsteer can't read or set '{name}' through it; enter the \
         namespace with its own /sys: ip netns exec NAME rxsteer host …"
    )]
    OtherNamespace {
        /// The requested name.
        name: String,
    },
    /// The text is not a valid pattern.
    #[error("'{text}' is not a pattern for interface names: {why}; e.g. veth*")]
    BadPattern {
        /// The given pattern.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The kernel does not list its interfaces.
    #[error("the kernel does not list its interfaces (netlink): {0}")]
    Links(#[source] io::Error),
    /// No source reports which CPUs are online.
    #[error(
        "can't find out which CPUs are online: neither /sys/devices/system/cpu/online nor /proc/self/status can be \
         read; \
         name them with --cpus"
    )]
    NoCpus,
}
