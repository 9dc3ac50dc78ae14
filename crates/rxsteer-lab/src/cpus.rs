//! CPUs: lists them, pins threads to them, and takes one offline.

use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::{Result, Tried};
use crate::process::typed;

/// How many CPUs are online; their numbers are assumed to begin at 0 without gaps.
pub fn online_cpus() -> usize {
    let is_online = |cpu: &usize| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        // CPU 0 has no such file if it cannot be taken offline.
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

/// A kernel thread that empties a CPUMAP ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingThread {
    /// The CPU of the ring.
    pub cpu: u32,
    /// Its process id.
    pub process: u32,
    /// The CPUs on which it may run. If these are all CPUs, its own CPU was offline; this remains so.
    pub may_run_on: String,
}

impl RingThread {
    /// Its scheduling class as `chrt` and `ps` print it: "SCHED_FIFO 1", "SCHED_OTHER -5".
    pub fn class(&self) -> Result<String> {
        let report = typed(&format!("chrt -p {}", self.process))?;
        let value = |what: &str| {
            let line = report.lines().find(|line| line.contains(what));
            line.and_then(|line| line.rsplit(": ").next()).unwrap_or_default().trim().to_owned()
        };
        let policy = value("policy");
        let number = match policy.as_str() {
            "SCHED_OTHER" => typed(&format!("ps -o ni= -p {}", self.process))?.trim().to_owned(),
            _ => value("priority"),
        };
        Ok(format!("{policy} {number}"))
    }

    /// Whether the thread still exists.
    pub fn is_there(&self) -> bool {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", self.process));
        comm.is_ok_and(|name| name.starts_with("cpumap/"))
    }
}

impl RingThread {
    /// How often it went to sleep, which it does when its ring is empty.
    pub fn sleeps(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.process);
        let status = std::fs::read_to_string(&path).tried(|| format!("read {path}"))?;
        let switches = field(&status, "voluntary_ctxt_switches:").and_then(|n| n.parse().ok());
        Ok(switches.unwrap_or_default())
    }
}

impl RingThread {
    /// Gives it the lowest priority among the ordinary processes of its CPU, so that frames wait long in its ring. The
    /// thread must be in the class of ordinary processes (`--threads other`).
    pub fn set_lowest_priority(&self) -> Result<()> {
        typed(&format!("renice -n 19 -p {}", self.process)).map(drop)
    }
}

/// The threads of the CPUMAP rings in a process's maps.
pub fn ring_threads(process: u32) -> Result<Vec<RingThread>> {
    let maps: Vec<String> = descriptors(process)?
        .iter()
        .filter(|info| field(info, "map_type:") == Some(BPF_MAP_TYPE_CPUMAP))
        .filter_map(|info| Some(format!("map:{}", field(info, "map_id:")?)))
        .collect();
    let of_map = |process: PathBuf| {
        let status = std::fs::read_to_string(process.join("status")).ok()?;
        let mut name = field(&status, "Name:")?.strip_prefix("cpumap/")?.split('/');
        let cpu = name.next()?.parse().ok()?;
        let map = name.next()?;
        maps.iter().any(|known| known == map).then_some(())?;
        let process = field(&status, "Pid:")?.parse().ok()?;
        let may_run_on = field(&status, "Cpus_allowed_list:")?.to_owned();
        Some(RingThread { cpu, process, may_run_on })
    };
    let processes = std::fs::read_dir("/proc").tried(|| "list /proc".to_owned())?;
    Ok(processes.flatten().filter_map(|entry| of_map(entry.path())).collect())
}

/// The kernel's information about each descriptor of a process.
pub(crate) fn descriptors(process: u32) -> Result<Vec<String>> {
    let folder = format!("/proc/{process}/fdinfo");
    let entries = std::fs::read_dir(&folder).tried(|| format!("list {folder}"))?;
    Ok(entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect())
}

const BPF_MAP_TYPE_CPUMAP: &str = "16";

/// The text after `name` in a file of names and values.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// An offline CPU; it is brought online when this is dropped.
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
