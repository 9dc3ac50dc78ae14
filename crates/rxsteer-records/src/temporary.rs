//! A file that gets its name when it is complete.

use anyhow::{Context, anyhow};
use rxsteer_user::shown;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file under a temporary name in its final folder. If it is dropped before it is complete, it is removed. The
/// temporary name begins with a dot, so programs that read the folder meanwhile ignore the file.
#[derive(Debug)]
pub struct Temporary {
    file: NamedTempFile,
    /// The final name, as the user gave it.
    path: PathBuf,
    /// The final name with links resolved: the links stay, and their target is replaced.
    place: PathBuf,
    /// Whether a file with the final name is replaced; otherwise it stays, and naming this one fails.
    replaces: bool,
}

impl Temporary {
    /// Creates the temporary file for `path`, whose folder must exist. The new file gets the permissions of the
    /// file that it replaces.
    pub fn for_path(path: &Path) -> anyhow::Result<Temporary> {
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
            // The mode of any new file: 0666 less the umask.
            .make_in(folder, |path| {
                OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
            })
            .map_err(failed)?;
        if let Ok(replaced) = place.metadata() {
            let mode = replaced.permissions().mode() & 0o777;
            file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(Temporary { file, path: path.to_owned(), place, replaces: true })
    }

    /// The same for a file that replaces no other.
    pub fn without_replacing(path: &Path) -> anyhow::Result<Temporary> {
        Ok(Temporary { replaces: false, ..Temporary::for_path(path)? })
    }

    /// A handle for writing to the file.
    pub fn writer(&self) -> anyhow::Result<File> {
        self.file.as_file().try_clone().map_err(|error| self.failed(error))
    }

    /// The error message for a failed write.
    pub fn failed(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        let error = error.into();
        // The formats wrap the system's error in their own words, which add no information.
        let cause = error.chain().find_map(io_error);
        let (why, advice) = match cause {
            Some(cause) => (cause.to_string(), advice(cause)),
            None => (format!("{error}"), ""),
        };
        let path = shown(&self.path);
        anyhow!("can't write flow records to {path}: {why}{advice}")
    }

    /// Ensures that the data is on the disk: some file systems report only then that there was no room.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.file.as_file().sync_all().map_err(|error| self.failed(error))
    }

    /// Gives the file its final name, and replaces a file with that name.
    pub fn name(self) -> anyhow::Result<()> {
        let Temporary { file, path, place, replaces } = self;
        let named = match replaces {
            true => file.persist(&place),
            false => file.persist_noclobber(&place),
        };
        let named = named.map_err(|error| error.error);
        named.with_context(|| format!("can't rename the flow records to {}", shown(&path)))?;
        Ok(())
    }
}

/// The system's error inside an error that wraps it; csv does not return it as its source.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let of_csv = || match error.downcast_ref::<csv::Error>()?.kind() {
        csv::ErrorKind::Io(cause) => Some(cause),
        _ => None,
    };
    error.downcast_ref::<io::Error>().or_else(of_csv)
}

/// Advice about a failed write, to append to its message.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    /// The numbers of the C library; the standard library has no kind for either.
    const TOO_MANY_OPEN_FILES: [i32; 2] = [23, 24];
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ". Make room there, or choose another place with --flows"
        }
        ErrorKind::FileTooLarge => {
            ". Raise the limit on file size (ulimit -f), or write smaller files with \
             --partition-by hash-prefix"
        }
        _ if error.raw_os_error().is_some_and(|code| TOO_MANY_OPEN_FILES.contains(&code)) => {
            ". Raise the limit on open files (ulimit -n), or write fewer files with --partition-by hash-prefix:1"
        }
        _ => "",
    }
}

/// The file that a new one called `path` would replace, or where it would be: the path with links resolved.
///
/// # Errors
/// If `path` exists and is not a regular file (a device, a pipe, a dangling link), because it would be lost.
pub fn place_of(path: &Path) -> Result<PathBuf, &'static str> {
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match place.symlink_metadata() {
        Ok(metadata) if !metadata.is_file() => Err("is not a regular file, and would be replaced"),
        _ => Ok(place),
    }
}

/// The folder that contains a path's file.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
