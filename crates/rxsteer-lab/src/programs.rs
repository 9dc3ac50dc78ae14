//! The BPF programs in the kernel, according to the kernel.

use libbpf_rs::query::ProgInfoIter;

use crate::cpus::{descriptors, field};
use crate::error::Result;

/// A BPF program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The kernel's id of the program.
    pub id: u32,
    /// Its name in `rxsteer-xdp/src/bpf`, of which the kernel keeps 15 characters.
    pub name: String,
    /// Instructions that the verifier examined (Linux 5.16 and later).
    pub verified_instructions: u32,
}

/// The programs of which a process has descriptors.
pub fn loaded(process: u32) -> Result<Vec<Loaded>> {
    let ids: Vec<u32> = descriptors(process)?
        .iter()
        .filter_map(|info| field(info, "prog_id:")?.parse().ok())
        .collect();
    let of_process = ProgInfoIter::default().filter(|program| ids.contains(&program.id));
    let loaded = of_process.map(|program| Loaded {
        id: program.id,
        name: program.name.to_string_lossy().into_owned(),
        verified_instructions: program.verified_insns,
    });
    Ok(loaded.collect())
}

/// Whether the kernel has a program with this id.
pub fn is_loaded(id: u32) -> bool {
    ProgInfoIter::default().any(|program| program.id == id)
}
