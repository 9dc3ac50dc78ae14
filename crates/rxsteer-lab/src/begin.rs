//! Prepares measurements: only one lab measures at a time, and first removes what a killed lab left.

use crate::error::{LabError, Result, Tried};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::Path;

/// The measuring lab locks this file; it contains the id of its process.
const LOCK: &str = "/run/rxsteer-lab.lock";

/// A lab that may measure, until this is dropped.
#[derive(Debug)]
pub struct ActiveLab {
    /// What a killed lab left and this one cannot restore, with the reasons, in sentences.
    pub left: Vec<String>,
    _lock: Option<File>,
}

/// Begins once no other lab measures. If one does, this calls `waits` with its process, if known, to find whether to
/// wait for it. Then, as root, removes and restores what a killed lab left.
///
/// # Errors
///
/// [`LabError::Busy`] if it should not wait, or a system error.
pub fn begin(waits: impl FnOnce(Option<u32>) -> bool) -> Result<ActiveLab> {
    let lock = lock(Path::new(LOCK), waits)?;
    let mut left = Vec::new();
    if rustix::process::geteuid().is_root() {
        left.extend(crate::namespace::clear_up().iter().map(crate::lent::Lent::left));
        #[cfg(feature = "bpf")]
        left.extend(crate::sock_flow_entries::restore());
    }
    Ok(ActiveLab { left, _lock: lock })
}

/// Locks the file. A process that may not write it, because it is not root, only checks whether it is locked.
fn lock(path: &Path, waits: impl FnOnce(Option<u32>) -> bool) -> Result<Option<File>> {
    let what = || format!("lock {}", path.display());
    let ours = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let may_write = ours.is_ok();
    // Without the file, no lab has been started by root since the machine was booted.
    let Ok(mut file) = ours.or_else(|_| File::open(path)) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let process = fs::read_to_string(path).unwrap_or_default().parse().ok();
            if !waits(process) {
                return Err(LabError::Busy { process });
            }
            file.lock().tried(what)?;
        }
        Err(TryLockError::Error(why)) => return Err(why).tried(what),
    }
    if !may_write {
        return Ok(None);
    }
    file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).tried(what)?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lab_waits_until_the_first_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let at_once = |path: &Path| lock(path, |_| false);
        let first = at_once(&path).unwrap();
        assert!(first.is_some());
        let refused = at_once(&path).unwrap_err().to_string();
        let named = format!("(process {})", std::process::id());
        assert!(refused.contains(&named), "{refused}");
        let second = std::thread::scope(|scope| {
            let (asked, was_asked) = std::sync::mpsc::channel();
            let path = &path;
            let second = scope.spawn(move || lock(path, |process| asked.send(process).is_ok()));
            assert_eq!(was_asked.recv().unwrap(), Some(std::process::id()));
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap()
        });
        assert!(second.unwrap().is_some());
        assert!(at_once(&path).unwrap().is_some());
        assert!(at_once(&folder.path().join("absent/lock")).unwrap().is_none());
    }
}
