//! A file that gets its name when it is complete.

use anyhow::{Context, anyhow};
use rxsteer_user::shown;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file under a temporary name in the folder where it is to be; gone if it is dropped before it is
/// complete. Its name begins with a point, so whoever reads the folder meanwhile passes it over.
#[derive(Debug)]
pub struct Temporary {
    file: NamedTempFile,
    /// The name it gets, as the user gave it.
    path: PathBuf,
    /// What that is without links: they stay, and what they lead to is replaced.
    place: PathBuf,
}

impl Temporary {
    /// A file to become `path`, whose folder there is. Who may read the one it replaces may read it,
    /// and by no other.
    pub fn beside(path: &Path) -> anyhow::Result<Temporary> {
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = folder_of(&place);
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let failed = |error: io::Error| {
            let shown = shown(folder_of(path));
            anyhow!("can't write flow records into {shown}: {error}{}", advice(&error))
        };
        let file = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".part")
            // As any other new file: what the umask leaves of it.
            .make_in(folder, |path| {
                OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
            })
            .map_err(failed)?;
        if let Ok(replaced) = place.metadata() {
            let mode = replaced.permissions().mode() & 0o777;
            file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(Temporary { file, path: path.to_owned(), place })
    }

    /// To write to it by.
    pub fn writer(&self) -> anyhow::Result<File> {
        self.file.as_file().try_clone().map_err(|error| self.failed(error))
    }

    /// What to say of a failed write.
    pub fn failed(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        // Formats wrap what the system said in words of their own, which say nothing more.
        let cause = error.chain().find_map(io_error);
        let (why, advice) = match cause {
            Some(cause) => (cause.to_string(), advice(cause)),
            None => (format!("{error}"), ""),
        };
        let path = shown(&self.path);
        anyhow!("can't write flow records to {path}: {why}; nothing new is left there{advice}")
    }

    /// Sees to it that what was written is on the disk: some file systems report only then that there
    /// was no room.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.file.as_file().sync_all().map_err(|error| self.failed(error))
    }

    /// Gives it its name, in place of what had that name.
    pub fn name(self) -> anyhow::Result<()> {
        let Temporary { file, path, place } = self;
        let named = file.persist(&place).map_err(|error| error.error);
        named
            .with_context(|| format!("can't give the flow records their name {}", shown(&path)))?;
        Ok(())
    }
}

/// The system's own error in one that wraps it; csv names none as its source.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let of_csv = || match error.downcast_ref::<csv::Error>()?.kind() {
        csv::ErrorKind::Io(cause) => Some(cause),
        _ => None,
    };
    error.downcast_ref::<io::Error>().or_else(of_csv)
}

/// What can be done about a failed write, to follow what is said of it.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    /// As the C library has them; the standard library has no kind for either.
    const TOO_MANY_OPEN_FILES: [i32; 2] = [23, 24];
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ". Make room there, or name a place with more of it by --flows"
        }
        ErrorKind::FileTooLarge => {
            ". Raise the limit of files' sizes (ulimit -f), or make more and smaller files by \
             --partition-by hash-prefix"
        }
        _ if error.raw_os_error().is_some_and(|code| TOO_MANY_OPEN_FILES.contains(&code)) => {
            ". Raise the limit of open files (ulimit -n), or make fewer by --partition-by hash-prefix:1"
        }
        _ => "",
    }
}

/// The folder that a path's file is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
