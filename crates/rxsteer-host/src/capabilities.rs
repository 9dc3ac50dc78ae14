//! What this process may do.
//!
//! Capabilities inside a user namespace do not count for loading BPF programs: the kernel asks for those of the
//! first one.

use crate::files;
use serde::Serialize;

/// A capability that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Interfaces: attaching a program.
    NetAdmin,
    /// Everything the two below allow, and more.
    SysAdmin,
    /// Tracing programs.
    Perfmon,
    /// BPF maps and programs.
    Bpf,
}

impl Capability {
    /// The bit in the kernel's sets (include/uapi/linux/capability.h).
    const fn bit(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::SysAdmin => 21,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }

    /// The kernel's name.
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
    /// Whether they are those of a user namespace; `None` where that is unknown.
    pub in_user_namespace: Option<bool>,
}

impl Capabilities {
    /// Looks at this process.
    pub fn look() -> Option<Capabilities> {
        Self::read(&files::text("/proc/self/status")?, files::text("/proc/self/uid_map").as_deref())
    }

    /// Reads `/proc/self/status` and `/proc/self/uid_map`.
    fn read(status: &str, uid_map: Option<&str>) -> Option<Capabilities> {
        let set = u64::from_str_radix(files::field(status, "CapEff")?, 16).ok()?;
        let has = |capability: Capability| set & (1 << capability.bit()) != 0;
        let all = has(Capability::SysAdmin);
        // The first user namespace maps every id to itself.
        let first = |map: &str| map.split_whitespace().eq(["0", "0", "4294967295"]);
        Some(Capabilities {
            bpf: all || has(Capability::Bpf),
            perfmon: all || has(Capability::Perfmon),
            net_admin: has(Capability::NetAdmin),
            in_user_namespace: uid_map.map(|map| !first(map)),
        })
    }

    /// Those that `rxsteer run` needs and this process has not.
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
    fn sets_are_read() {
        let read =
            |set: &str| Capabilities::read(&format!("Name:\tx\nCapEff:\t{set}\n"), Some(FIRST));
        let none = read("0000000000000000").unwrap();
        assert_eq!(none.missing(), [Capability::Bpf, Capability::NetAdmin, Capability::Perfmon]);
        assert_eq!(none.in_user_namespace, Some(false));
        assert_eq!(read("000001ffffffffff").unwrap().missing(), []);
        // CAP_SYS_ADMIN stands for two of them, not for CAP_NET_ADMIN.
        assert_eq!(read("0000000000200000").unwrap().missing(), [Capability::NetAdmin]);
        assert_eq!(read("000000c000001000").unwrap().missing(), []);
        assert_eq!(read("x"), None);
    }

    #[test]
    fn user_namespace_is_noticed() {
        let read = |map| Capabilities::read("CapEff:\t0", map).unwrap().in_user_namespace;
        assert_eq!(read(Some("0 1000 1")), Some(true));
        assert_eq!(read(None), None);
    }
}
