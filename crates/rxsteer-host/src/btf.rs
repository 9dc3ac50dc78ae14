//! Finds which tracepoints the kernel describes in its type information (BTF).
//!
//! A tracepoint that BPF programs can attach to with typed arguments has a type `btf_trace_NAME`. The string section
//! contains all names one after another, so it is enough to search that section; this code parses no types.

use serde::Serialize;
use std::fs;
use std::io;

/// A tracepoint that a program of the in-kernel path attaches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tracepoint {
    /// Its name in the kernel.
    pub name: &'static str,
    /// Whether steering in order is impossible without it.
    pub needed: bool,
    /// What it is used for.
    pub used_for: &'static str,
}

/// All of them.
pub const TRACEPOINTS: [Tracepoint; 7] = [
    Tracepoint {
        name: "xdp_cpumap_kthread",
        needed: true,
        used_for: "showing what is processed while a CPU is busy",
    },
    Tracepoint {
        name: "sched_switch",
        needed: true,
        used_for: "showing what is processed when a CPU has caught up",
    },
    Tracepoint {
        name: "xdp_cpumap_enqueue",
        needed: true,
        used_for: "counting what full rings drop",
    },
    Tracepoint {
        name: "sock_recv_length",
        needed: false,
        used_for: "learning where applications receive (rfs)",
    },
    Tracepoint {
        name: "sock_send_length",
        needed: false,
        used_for: "learning where applications send (rfs)",
    },
    Tracepoint {
        name: "inet_sock_set_state",
        needed: false,
        used_for: "forgetting closed sockets (rfs)",
    },
    Tracepoint { name: "xdp_redirect_err", needed: false, used_for: "counting redirect errors" },
];

/// The kernel's type information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Btf {
    /// It exists, and describes some of [`TRACEPOINTS`].
    Readable {
        /// The names of these tracepoints.
        tracepoints: Vec<&'static str>,
    },
    /// The kernel has none.
    Missing,
    /// It cannot be read.
    Unreadable {
        /// Why.
        why: String,
    },
}

impl Btf {
    /// Reads that of the running kernel.
    pub fn read() -> Btf {
        match fs::read("/sys/kernel/btf/vmlinux") {
            Ok(bytes) => match strings(&bytes) {
                Some(strings) => Btf::Readable { tracepoints: described(strings) },
                None => {
                    let why = "it does not begin as type information does".to_owned();
                    Btf::Unreadable { why }
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Btf::Missing,
            Err(error) => Btf::Unreadable { why: error.to_string() },
        }
    }

    /// The tracepoints that it does not describe.
    pub fn missing(&self) -> Vec<Tracepoint> {
        let has: &[&str] = if let Btf::Readable { tracepoints } = self { tracepoints } else { &[] };
        TRACEPOINTS.into_iter().filter(|tracepoint| !has.contains(&tracepoint.name)).collect()
    }
}

/// The string section (struct btf_header in include/uapi/linux/btf.h); `None` if this is not BTF in the byte order of
/// this machine.
fn strings(btf: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| -> Option<usize> {
        let bytes = btf.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize)
    };
    if btf.get(..2)? != u16::to_ne_bytes(0xeb9f) {
        return None;
    }
    let (header, offset, length) = (word(4)?, word(16)?, word(20)?);
    let start = header.checked_add(offset)?;
    btf.get(start..start.checked_add(length)?)
}

/// Those of [`TRACEPOINTS`] whose types are among `strings`.
fn described(strings: &[u8]) -> Vec<&'static str> {
    let names = strings.split(|byte| *byte == 0);
    let mut found: Vec<&str> = names
        .filter_map(|name| name.strip_prefix(b"btf_trace_"))
        .filter_map(|name| TRACEPOINTS.iter().find(|tracepoint| tracepoint.name.as_bytes() == name))
        .map(|tracepoint| tracepoint.name)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf(strings: &[u8]) -> Vec<u8> {
        let mut bytes = u16::to_ne_bytes(0xeb9f).to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, 4, 4, strings.len() as u32] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend([0; 4]);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn names_are_found_whole() {
        let bytes = btf(b"\0btf_trace_sched_switch\0btf_trace_sched_switch2\0xdp_cpumap_kthread\0");
        assert_eq!(described(strings(&bytes).unwrap()), ["sched_switch"]);
        let missing = Btf::Readable { tracepoints: vec!["sched_switch"] }.missing();
        assert_eq!(missing.len(), TRACEPOINTS.len() - 1);
        assert!(missing.iter().all(|tracepoint| tracepoint.name != "sched_switch"));
    }

    #[test]
    fn what_is_cut_off_or_no_btf_is_not_read() {
        let bytes = btf(b"\0btf_trace_sched_switch\0");
        for length in 0..bytes.len() {
            assert_eq!(strings(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(strings(&[0; 64]), None);
    }
}
