//! Allows one change at a time, by a lock on a file. The kernel releases the lock however the process ends.

use super::STATE;
use crate::root::Root;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process changes settings.
    #[error(
        "process {holder} is changing the kernel's steering settings ({} is locked); wait until it ends, or end it",
        path.display()
    )]
    Held {
        /// Its id, or `?`.
        holder: String,
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("can't lock {}: {error}; this requires root", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or returns which process holds it.
    pub fn take(root: &Root) -> Result<Lock, LockError> {
        let path = root.path(STATE).join("host.lock");
        let failed = |error| LockError::System { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(root.path(STATE)).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {
                let mut name = || {
                    file.set_len(0)?;
                    file.rewind()?;
                    writeln!(file, "{}", std::process::id())
                };
                name().map_err(failed)?;
                Ok(Lock { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder may not have written its id yet.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "?" } else { holder }.to_owned();
                Err(LockError::Held { holder, path })
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}
