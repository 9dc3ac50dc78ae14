//! A file with the former state of peers. It is complete and on disk before anything is switched off.

use super::{PeersError, Switched};
use crate::change::STATE;
use crate::root::Root;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// The file's content. After a reboot its values no longer apply.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    boot: String,
    peers: Vec<Switched>,
}

/// The file, and the lock that prevents other processes from changing peers.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    boot: String,
    _lock: File,
}

impl Journal {
    /// Takes the lock, and reads what an earlier process left.
    pub(super) fn open(root: &Root) -> Result<(Journal, Vec<Switched>), PeersError> {
        let folder = root.path(STATE);
        let path = folder.join("peers.json");
        let failed = |error| PeersError::Journal { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(folder.join("peers.lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PeersError::Held),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let boot = root.text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let content: Content = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(failed(error)),
        };
        let peers = if content.boot == boot { content.peers } else { Vec::new() };
        Ok((Journal { path, boot, _lock: lock }, peers))
    }

    /// Replaces the recorded peers by these. Without any, the file is removed.
    pub(super) fn keep(&self, peers: &[Switched]) -> Result<(), PeersError> {
        let failed = |error| PeersError::Journal { path: self.path.clone(), error };
        if peers.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            };
        }
        let content = Content { boot: self.boot.clone(), peers: peers.to_vec() };
        let next = self.path.with_extension("next");
        let write = || {
            let mut file = File::create(&next)?;
            file.write_all(&serde_json::to_vec(&content)?)?;
            file.sync_data()?;
            fs::rename(&next, &self.path)
        };
        write().map_err(failed)
    }
}
