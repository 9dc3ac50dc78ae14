//! A recorded host in its own folder.

use rxsteer_host::Root;
use rxsteer_host::testing::MachineSpec;
use std::path::{Path, PathBuf};

/// A recorded host, removed when this is dropped.
pub(crate) struct Recorded {
    pub(crate) root: Root,
    folder: tempfile::TempDir,
}

pub(crate) fn recorded(machine: &MachineSpec) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let root = machine.build(folder.path()).unwrap();
    Recorded { root, folder }
}

impl Recorded {
    /// All its files, by their paths below the folder, with their contents.
    #[allow(dead_code, reason = "not every test file compares them")]
    pub(crate) fn files(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        walk(self.folder.path(), Path::new("/"), &mut found);
        found.sort();
        found
    }
}

fn walk(folder: &Path, below: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (kind, below) = (entry.file_type().unwrap(), below.join(entry.file_name()));
        if kind.is_dir() {
            walk(&entry.path(), &below, found);
        } else if kind.is_file() {
            found.push((below, std::fs::read_to_string(entry.path()).unwrap()));
        }
    }
}
