//! The kernel's table of desired CPUs, `rps_sock_flow_entries`: one number for the whole machine, so what an
//! experiment sets also holds outside its namespaces.
//!
//! A record of the old value is written before the new one, so that the next experiment restores what a killed one left.

use crate::error::{Result, Tried};
use std::fs;
use std::path::Path;

const SETTING: &str = "/proc/sys/net/core/rps_sock_flow_entries";
const RECORD: &str = "/run/rxsteer-lab.rps_sock_flow_entries";

/// The setting, restored when this is dropped.
#[derive(Debug)]
pub(crate) struct SockFlowEntries(());

impl SockFlowEntries {
    pub(crate) fn set(entries: u32) -> Result<SockFlowEntries> {
        restore();
        let old = fs::read_to_string(SETTING).tried(|| format!("read {SETTING}"))?;
        let record = format!("{} {}", std::process::id(), old.trim());
        fs::write(RECORD, record).tried(|| format!("write {RECORD}"))?;
        let guard = SockFlowEntries(());
        fs::write(SETTING, entries.to_string()).tried(|| format!("write {SETTING}"))?;
        Ok(guard)
    }
}

impl Drop for SockFlowEntries {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the value of a record of this process, or of one that no longer exists. Returns why this is not possible,
/// if so.
pub(crate) fn restore() -> Option<String> {
    let record = fs::read_to_string(RECORD).ok()?;
    let (process, old) = record.split_once(' ')?;
    let is_ours = process == std::process::id().to_string();
    if !is_ours && Path::new("/proc").join(process).exists() {
        return None;
    }
    // Only the first network namespace of the machine shows the setting.
    if let Err(why) = fs::write(SETTING, old) {
        return Some(format!(
            "rps_sock_flow_entries is not restored to {old}, because {SETTING} can't be written here ({why}). Run \
             sudo rxsteer lab list in the network namespace in which the killed lab was started"
        ));
    }
    let _ = fs::remove_file(RECORD);
    None
}
