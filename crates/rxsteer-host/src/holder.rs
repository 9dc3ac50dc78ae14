//! Finds the process that holds an attached XDP program.
//!
//! To read the name of another user's program requires CAP_SYS_ADMIN and a BPF system call. The process that holds it
//! is more useful, and `/proc/PID/fdinfo` shows it for processes that this one may examine.

use crate::files;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A process that has a descriptor of the program, or of the link that attaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name, as `ps` shows it.
    pub name: String,
}

impl Holder {
    /// The first process that holds the program `id`.
    pub(crate) fn of(id: u32) -> Option<Holder> {
        let mut pids: Vec<u32> = fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids.into_iter().find(|pid| holds(*pid, id)).map(|pid| Holder {
            pid,
            name: files::text(format!("/proc/{pid}/comm")).unwrap_or_default(),
        })
    }
}

/// Whether a descriptor of process `pid` is the program or its link. Processes may start and end meanwhile.
fn holds(pid: u32, program: u32) -> bool {
    let dir = Path::new("/proc").join(pid.to_string());
    let Ok(descriptors) = fs::read_dir(dir.join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        // Reading fdinfo of every descriptor would be slow for a process with many open files.
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        target.to_string_lossy().starts_with("anon_inode:bpf")
            && files::text(dir.join("fdinfo").join(descriptor.file_name()))
                .and_then(|info| files::field(&info, "prog_id")?.parse().ok())
                == Some(program)
    })
}
