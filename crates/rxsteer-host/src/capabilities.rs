//! The capabilities of this process.
//!
//! Capabilities inside a user namespace do not suffice to load BPF programs: the kernel checks those in the first user
//! namespace.

use crate::files;
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

/// A capability that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Interfaces: attaching a program.
    NetAdmin,
    /// Includes the two below, and more.
    SysAdmin,
    /// Tracing programs.
    Perfmon,
    /// BPF maps and programs.
    Bpf,
}

impl Capability {
    /// The kernel's name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }

    /// What it is needed for.
    pub const fn needed_for(self) -> &'static str {
        match self {
            Self::NetAdmin => "attaching a program to an interface",
            Self::SysAdmin => "naming programs of others",
            Self::Perfmon => "the tracepoints that show what is processed",
            Self::Bpf => "loading BPF programs and maps",
        }
    }
}

/// The effective capabilities of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// CAP_BPF, or CAP_SYS_ADMIN, which includes it.
    pub bpf: bool,
    /// CAP_PERFMON, or CAP_SYS_ADMIN, which includes it.
    pub perfmon: bool,
    /// CAP_NET_ADMIN.
    pub net_admin: bool,
    /// Whether the process is in a user namespace; `None` if unknown.
    pub in_user_namespace: Option<bool>,
}

impl Capabilities {
    /// Reads those of this process.
    pub fn read() -> Option<Capabilities> {
        let uid_map = files::text("/proc/self/uid_map");
        Some(Self::of(capabilities(None).ok()?.effective, uid_map.as_deref()))
    }

    /// From an effective set and the contents of `/proc/self/uid_map`.
    fn of(effective: CapabilitySet, uid_map: Option<&str>) -> Capabilities {
        let all = effective.contains(CapabilitySet::SYS_ADMIN);
        // The first user namespace maps every id to itself.
        let first = |map: &str| map.split_whitespace().eq(["0", "0", "4294967295"]);
        Capabilities {
            bpf: all || effective.contains(CapabilitySet::BPF),
            perfmon: all || effective.contains(CapabilitySet::PERFMON),
            net_admin: effective.contains(CapabilitySet::NET_ADMIN),
            in_user_namespace: uid_map.map(|map| !first(map)),
        }
    }

    /// Those that `rxsteer run` needs and this process lacks.
    pub fn missing(&self) -> Vec<Capability> {
        let needed = [
            (self.bpf, Capability::Bpf),
            (self.net_admin, Capability::NetAdmin),
            (self.perfmon, Capability::Perfmon),
        ];
        needed.into_iter().filter(|(has, _)| !has).map(|(_, capability)| capability).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "         0          0 4294967295";

    #[test]
    fn capabilities_are_those_of_the_effective_set() {
        let of = |set: u64| Capabilities::of(CapabilitySet::from_bits_retain(set), Some(FIRST));
        let none = of(0);
        assert_eq!(none.missing(), [Capability::Bpf, Capability::NetAdmin, Capability::Perfmon]);
        assert_eq!(none.in_user_namespace, Some(false));
        assert_eq!(of(0x1ff_ffff_ffff).missing(), []);
        // CAP_SYS_ADMIN includes two of them, but not CAP_NET_ADMIN.
        assert_eq!(of(0x20_0000).missing(), [Capability::NetAdmin]);
        assert_eq!(of(0xc0_0000_1000).missing(), []);
    }

    #[test]
    fn user_namespace_is_noticed() {
        let of = |map| Capabilities::of(CapabilitySet::empty(), map).in_user_namespace;
        assert_eq!(of(Some("0 1000 1")), Some(true));
        assert_eq!(of(None), None);
    }
}
