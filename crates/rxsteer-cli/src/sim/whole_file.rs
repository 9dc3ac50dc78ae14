//! Files that appear only when they are complete. Whether they can be written is checked before the simulation, not
//! after an hour of it.

use anyhow::anyhow;
use rxsteer_records::temporary::{folder_of, place_of};
use rxsteer_user::shown;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that does not exist yet.
pub(crate) struct WholeFile {
    /// The path given by the user.
    path: PathBuf,
    /// The same with links resolved.
    place: PathBuf,
    file: NamedTempFile,
    /// The option that named it, for messages.
    option: &'static str,
}

impl WholeFile {
    /// A file that will become `path`, as requested by `option`.
    pub(crate) fn create(path: &Path, option: &'static str) -> anyhow::Result<WholeFile> {
        let failed = |error: &dyn std::fmt::Display| {
            anyhow!("can't write {}: {error}; name another place with {option}", shown(path))
        };
        if path.is_dir() {
            return Err(failed(&"it is a folder"));
        }
        let place = place_of(path).map_err(|why| failed(&format!("it {why}")))?;
        let file = tempfile::Builder::new()
            .prefix(".rxsteer-sim.")
            .suffix(".part")
            // Permissions as for any other new file, limited by the umask.
            .make_in(folder_of(&place), |path| {
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
            })
            .map_err(|error: io::Error| failed(&error))?;
        Ok(WholeFile { path: path.to_owned(), place, file, option })
    }

    /// Writes the file, and gives it its final name.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let (path, option) = (shown(&self.path), self.option);
        let failed = |error: io::Error| {
            anyhow!(
                "can't write {path}: {error}; no partial file is left. Name another place with {option}"
            )
        };
        self.file.write_all(bytes).map_err(failed)?;
        self.file.as_file().sync_all().map_err(failed)?;
        self.file.persist(&self.place).map_err(|error| failed(error.error))?;
        Ok(())
    }
}
