//! Network namespaces: finds them, and runs code in one.

use crate::netlink::route;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where `ip netns` and container runtimes keep namespaces, which may have no process.
const FOLDERS: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// A network namespace. It exists at least as long as this value.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
    /// Its inode number, as `ls -l /proc/PID/ns/net` shows it.
    pub(super) inode: u64,
    /// The file by which it was found.
    pub(super) path: PathBuf,
}

impl Namespace {
    fn open(path: &Path) -> io::Result<Namespace> {
        let file = File::open(path)?;
        Ok(Namespace { inode: file.metadata()?.ino(), file, path: path.to_owned() })
    }

    /// The namespace of this thread.
    pub(super) fn own() -> io::Result<Namespace> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Runs `work` in the namespace, in a new thread. This requires CAP_SYS_ADMIN.
    pub(super) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// All namespaces, each once: those of processes, and those that are kept without one.
///
/// Namespaces that cannot be opened are skipped: they ended meanwhile, or belong to a process that this one may not
/// examine.
fn all() -> impl Iterator<Item = Namespace> {
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let is_process =
        |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = entries("/proc").filter(move |entry| is_process(&entry.file_name()));
    let kept = FOLDERS.into_iter().flat_map(entries).map(|entry| entry.path());
    let mut seen = BTreeSet::new();
    processes
        .map(|entry| entry.path().join("ns/net"))
        .chain(kept)
        // Most processes share a namespace, and reading the inode is cheaper than opening the file.
        .filter(move |path| fs::metadata(path).is_ok_and(|metadata| seen.insert(metadata.ino())))
        .filter_map(|path| Namespace::open(&path).ok())
}

/// The namespace that has this number in this thread's namespace.
pub(super) fn by_number(number: u32) -> Option<Namespace> {
    all().find(|namespace| {
        route::namespace_number(namespace.file.as_fd()).ok() == Some(Some(number))
    })
}

/// The namespace with that inode number.
pub(super) fn by_inode(inode: u64) -> Option<Namespace> {
    all().find(|namespace| namespace.inode == inode)
}

/// The inode numbers of all namespaces.
pub(super) fn inodes() -> BTreeSet<u64> {
    all().map(|namespace| namespace.inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_namespace_is_found_by_its_inode_and_has_no_number() {
        let own = Namespace::own().unwrap();
        assert_eq!(by_inode(own.inode).unwrap().inode, own.inode);
        assert!(by_inode(0).is_none() && by_number(i32::MAX as u32).is_none());
        assert_eq!(all().count(), inodes().len(), "each is there once");
    }
}
