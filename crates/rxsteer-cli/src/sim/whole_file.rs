//! Files that are there when they are whole. That they can be written is found out before anything is
//! simulated, not after an hour of it.

use anyhow::anyhow;
use rxsteer_records::temporary::folder_of;
use rxsteer_user::shown;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file to be.
pub(crate) struct WholeFile {
    path: PathBuf,
    file: NamedTempFile,
    /// Which option named it, to say what can be changed.
    option: &'static str,
}

impl WholeFile {
    /// A file to become `path`, which `option` asked for.
    pub(crate) fn beside(path: &Path, option: &'static str) -> anyhow::Result<WholeFile> {
        let failed = |error: &dyn std::fmt::Display| {
            anyhow!("can't write {}: {error}; name another place by {option}", shown(path))
        };
        if path.is_dir() {
            return Err(failed(&"it is a folder"));
        }
        let file = tempfile::Builder::new()
            .prefix(".rxsteer-sim.")
            .suffix(".part")
            // As any other new file: what the umask leaves of it.
            .make_in(folder_of(path), |path| {
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
            })
            .map_err(|error: io::Error| failed(&error))?;
        Ok(WholeFile { path: path.to_owned(), file, option })
    }

    /// Writes it and gives it its name.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let (path, option) = (shown(&self.path), self.option);
        let failed = |error: io::Error| {
            anyhow!(
                "can't write {path}: {error}; nothing new is left there. Name another place by {option}"
            )
        };
        self.file.write_all(bytes).map_err(failed)?;
        self.file.as_file().sync_all().map_err(failed)?;
        self.file.persist(&self.path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}
