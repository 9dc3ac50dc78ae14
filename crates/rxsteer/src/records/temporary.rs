//! A file that gets its name when it is complete.

use anyhow::Context;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file under a temporary name in the folder where it is to be; gone if it is dropped before it is
/// complete. Its name begins with a point, so whoever reads the folder meanwhile passes it over.
#[derive(Debug)]
pub(crate) struct Temporary {
    file: NamedTempFile,
    /// The name it gets.
    path: PathBuf,
}

impl Temporary {
    /// A file to become `path`, whose folder there is.
    pub(crate) fn beside(path: &Path) -> anyhow::Result<Temporary> {
        let folder = folder_of(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".part")
            // As any other new file: what the umask leaves of it.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .with_context(|| format!("can't write flow records into {}", folder.display()))?;
        Ok(Temporary { file, path: path.to_owned() })
    }

    /// To write to it by.
    pub(crate) fn writer(&self) -> anyhow::Result<File> {
        self.file.as_file().try_clone().map_err(|error| self.failed(error))
    }

    /// What to say of a failed write.
    pub(crate) fn failed(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let path = self.path.display();
        error.into().context(format!("can't write flow records to {path}; nothing is left there"))
    }

    /// Sees to it that what was written is on the disk: some file systems report only then that there
    /// was no room.
    pub(crate) fn sync(&self) -> anyhow::Result<()> {
        self.file.as_file().sync_all().map_err(|error| self.failed(error))
    }

    /// Gives it its name, in place of what had that name.
    pub(crate) fn name(self) -> anyhow::Result<()> {
        let Temporary { file, path } = self;
        let named = file.persist(&path).map_err(|error| error.error);
        named.with_context(|| {
            format!("can't give the flow records their name {}", path.display())
        })?;
        Ok(())
    }
}

/// The folder that a path's file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
