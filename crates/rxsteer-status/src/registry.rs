//! Where to find running instances: each listens at `PID.sock` in a directory that belongs to its user.
//!
//! If an instance was killed, its socket has no listener and no process. The next process that reads the directory
//! removes it.

use anyhow::Context;
use rxsteer_user::shown;
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The directories, in order of preference.
pub fn directories() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = own.map(|dir| Path::new(&dir).join("rxsteer"));
    [Some(PathBuf::from("/run/rxsteer")), own].into_iter().flatten().collect()
}

/// The socket of this instance; it is removed when this is dropped.
pub struct Registered {
    /// The path of the socket.
    pub path: PathBuf,
    /// The link in the registry, if the socket itself is elsewhere.
    name: Option<PathBuf>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // They may already be gone, which is fine.
        let _ = fs::remove_file(&self.path);
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}

/// Listens at `socket`, or at this process's path in the registry.
pub fn register(socket: Option<&Path>) -> anyhow::Result<(UnixListener, Registered)> {
    register_in(&directories(), socket)
}

fn register_in(
    directories: &[PathBuf],
    socket: Option<&Path>,
) -> anyhow::Result<(UnixListener, Registered)> {
    let directory = usable(directories);
    let own = |directory: &PathBuf| directory.join(format!("{}.sock", std::process::id()));
    let Some(socket) = socket else {
        let path = own(&directory.map_err(|why| {
            anyhow::anyhow!(
                "there is no place for the control socket ({why}); name one with --socket PATH"
            )
        })?);
        return Ok((listen(&path)?, Registered { path, name: None }));
    };
    let path = std::path::absolute(socket).context("the working directory is gone")?;
    let listener = listen(&path)?;
    // Other processes find the socket through the registry, if there is one.
    let name = directory.ok().map(|directory| own(&directory)).filter(|name| {
        let _ = fs::remove_file(name);
        symlink(&path, name).is_ok()
    });
    Ok((listener, Registered { path, name }))
}

/// The first directory that exists or can be created, and that no other user can write to.
fn usable(directories: &[PathBuf]) -> Result<PathBuf, String> {
    let mut why = Vec::new();
    for directory in directories {
        match prepared(directory) {
            Ok(()) => return Ok(directory.clone()),
            Err(error) => why.push(format!("{}: {error}", shown(directory))),
        }
    }
    Err(why.join(", "))
}

fn prepared(directory: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.to_string()),
        _ => {}
    }
    let found = fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    if !found.is_dir()
        || found.uid() != nix::unistd::geteuid().as_raw()
        || found.mode() & 0o022 != 0
    {
        return Err(
            "it is not a directory that this user owns and that only this user can write to"
                .to_owned(),
        );
    }
    Ok(())
}

fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && let Err(error) = UnixStream::connect(path)
        && error.kind() == ErrorKind::ConnectionRefused
    {
        // A killed instance left it.
        let _ = fs::remove_file(path);
    }
    let failed = || {
        format!(
            "can't listen at {}; check that it is not in use, and that this user can write there",
            shown(path)
        )
    };
    let listener = UnixListener::bind(path).with_context(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).with_context(failed)?;
    Ok(listener)
}

/// The sockets of all instances; sockets without a listener are removed.
pub fn instances() -> Vec<PathBuf> {
    directories().iter().flat_map(|directory| instances_in(directory)).collect()
}

/// The directories that this user can't read.
pub fn unreadable() -> Vec<PathBuf> {
    let denied = |directory: &PathBuf| {
        fs::read_dir(directory).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    directories().into_iter().filter(denied).collect()
}

fn instances_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let pid = path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some((pid, path))
        })
        .collect();
    found.sort_unstable();
    found.retain(|(pid, path)| *pid == std::process::id() || !is_stale(*pid, path));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Whether a killed instance left this socket; if so, removes it. A socket that was just created may not listen yet, so
/// its process has to be gone as well.
fn is_stale(pid: u32, path: &Path) -> bool {
    let is_stale = match UnixStream::connect(path) {
        Ok(_) => false,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound),
    };
    if is_stale && !Path::new("/proc").join(pid.to_string()).exists() {
        let _ = fs::remove_file(path);
        return true;
    }
    is_stale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_found_and_stale_ones_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let registry = dir.path().join("rxsteer");
        let (listener, registered) = register_in(std::slice::from_ref(&registry), None).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&registry), mode(&registered.path)), (0o700, 0o600));
        // No process has an id above the kernel's limit of 2^22.
        let dead = registry.join("4194305.sock");
        drop(UnixListener::bind(&dead).unwrap());
        fs::write(registry.join("notes"), "").unwrap();
        assert_eq!(instances_in(&registry), std::slice::from_ref(&registered.path));
        assert!(!dead.exists(), "a stale socket is taken away");
        assert!(registry.join("notes").exists(), "and nothing else");
        drop(registered);
        assert!(instances_in(&registry).is_empty());
        drop(listener);
    }

    #[test]
    fn socket_elsewhere_is_found_too() {
        let dir = tempfile::tempdir().unwrap();
        let registry = dir.path().join("rxsteer");
        let path = dir.path().join("my.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, registered) =
            register_in(std::slice::from_ref(&registry), Some(&path)).unwrap();
        let found = instances_in(&registry);
        assert_eq!(found.len(), 1);
        UnixStream::connect(&found[0]).unwrap();
        drop(registered);
        assert!(!path.exists() && instances_in(&registry).is_empty());
    }

    #[test]
    fn what_is_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "mine").unwrap();
        let error = register_in(&[], Some(&path)).err().expect("a file is in the way");
        assert!(format!("{error:#}").contains("can't listen at"), "{error:#}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let error =
            register_in(&[dir.path().to_owned()], None).err().expect("any user could write there");
        assert!(format!("{error:#}").contains("only this user can write to"), "{error:#}");
    }
}
