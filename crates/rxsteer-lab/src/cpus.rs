//! CPUs: which are there, pinning to them, and taking one away.

use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Result, Tried};

/// How many CPUs are online; they are taken to be numbered from 0.
pub fn online_cpus() -> usize {
    let is_online = |cpu: &usize| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        // CPU 0 has no such file where it cannot be taken away.
        Path::new(&folder).is_dir()
            && std::fs::read_to_string(format!("{folder}/online"))
                .map_or(true, |text| text.trim() == "1")
    };
    (0..CpuSet::MAX_CPU).take_while(is_online).count()
}

/// Keeps this thread on one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).tried(|| format!("run on CPU {cpu}"))
}

/// A CPU that is offline; online again when this is dropped.
#[derive(Debug)]
pub struct Offline {
    file: PathBuf,
}

/// Takes a CPU offline.
pub fn offline(cpu: usize) -> Result<Offline> {
    let file = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
    let guard = Offline { file };
    std::fs::write(&guard.file, "0").tried(|| format!("take CPU {cpu} offline"))?;
    Ok(guard)
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.file, "1");
    }
}
