//! Serializes CPU sets in machine-readable facts, in the kernel's list format.

use rxsteer_core::CpuSet;
use serde::Serializer;

/// `"0-3,8"`, or null.
pub(crate) fn cpu_set<S: Serializer>(set: &Option<CpuSet>, to: S) -> Result<S::Ok, S::Error> {
    match set {
        Some(set) => to.collect_str(set),
        None => to.serialize_none(),
    }
}
