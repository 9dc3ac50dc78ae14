//! The folder below which `/sys`, `/proc`, `/etc` and `/run` are read and written: `/`, or a folder with a recorded
//! tree.

use crate::files;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Settings of the network core. Most of them are visible only in the first network namespace, and apply to all
/// namespaces.
const NET_CORE: &str = "/proc/sys/net/core/";

/// Files by their absolute paths, as the kernel names them. Tests replace it by a simulated kernel.
pub trait Tree {
    /// The whole text of a file, unchanged.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Writes a file that exists, with one system call.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
}

/// A folder that stands for `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root::host()
    }
}

impl Root {
    /// This host.
    pub fn host() -> Root {
        Root(PathBuf::from("/"))
    }

    /// A recorded tree.
    pub fn at(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Whether it is this host, so that netlink and system calls refer to it as well.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The real path of a file with this absolute path.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// The file's text without surrounding white space; `None` if it cannot be read.
    pub(crate) fn text(&self, absolute: &str) -> Option<String> {
        self.read(absolute).ok().map(|text| text.trim().to_owned())
    }

    /// The number in the file.
    pub(crate) fn number<T: std::str::FromStr>(&self, absolute: &str) -> Option<T> {
        self.text(absolute)?.parse().ok()
    }

    /// The names in a folder, in ascending order; none if it cannot be read.
    pub(crate) fn names(&self, absolute: impl AsRef<Path>) -> Vec<String> {
        files::names(self.path(absolute))
    }

    /// Whether a file may be written; this writes nothing.
    pub(crate) fn may_write(&self, path: &str) -> io::Result<()> {
        let at = self.path(path);
        self.anywhere(path, || OpenOptions::new().write(true).open(&at).map(drop))
    }

    /// Runs `work` on a file here, or, if the file does not exist here, in the first network namespace.
    fn anywhere<T: Send>(
        &self,
        path: &str,
        work: impl Fn() -> io::Result<T> + Send + Sync,
    ) -> io::Result<T> {
        match work() {
            // Settings of the network core are visible only in the first namespace.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.starts_with(NET_CORE) => {
                self.in_first_namespace(work).unwrap_or(Err(error))
            }
            result => result,
        }
    }

    /// Runs `work` in the first network namespace; `None` if this process is already in it or may not enter it.
    ///
    /// No name identifies that namespace. It is the namespace of process 1, or that of an ancestor of this process
    /// (after `ip netns exec`): the first one in which the file exists.
    fn in_first_namespace<T: Send>(
        &self,
        work: impl Fn() -> io::Result<T> + Send + Sync,
    ) -> Option<io::Result<T>> {
        if !self.is_host() {
            return None;
        }
        let own = fs::metadata("/proc/self/ns/net").ok()?.ino();
        let candidates = std::iter::once(1).chain(ancestors());
        let results = candidates.filter_map(|process| {
            let there = fs::File::open(format!("/proc/{process}/ns/net")).ok()?;
            (there.metadata().ok()?.ino() != own).then(|| inside(&there, &work)).flatten()
        });
        let mut found = results.filter(|result| !is_absent(result));
        found.next()
    }
}

fn is_absent<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Runs `work` in a thread that enters that network namespace; the calling thread stays in its own.
fn inside<T: Send>(
    namespace: &fs::File,
    work: &(impl Fn() -> io::Result<T> + Sync),
) -> Option<io::Result<T>> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).ok().map(|()| work())
        });
        thread.join().unwrap_or(None)
    })
}

/// The ancestors of this process: its parent first.
fn ancestors() -> impl Iterator<Item = u32> {
    let parent = |process: &str| {
        let status = files::text(format!("/proc/{process}/status"))?;
        files::field(&status, "PPid")?.parse().ok().filter(|parent: &u32| *parent > 1)
    };
    // The limit prevents an endless loop, since process ids can be reused.
    std::iter::successors(parent("self"), move |process| parent(&process.to_string())).take(64)
}

impl Tree for Root {
    fn read(&self, path: &str) -> io::Result<String> {
        let at = self.path(path);
        self.anywhere(path, || fs::read_to_string(&at))
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let at = self.path(path);
        self.anywhere(path, || {
            // Truncating matters only in a recorded tree.
            let mut file = OpenOptions::new().write(true).truncate(true).open(&at)?;
            file.write_all(text.as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_root() {
        assert_eq!(Root::at("/tmp/x").path("/sys/a"), Path::new("/tmp/x/sys/a"));
        assert_eq!(Root::host().path("/sys/a"), Path::new("/sys/a"));
        assert!(Root::host().is_host() && !Root::at("/tmp").is_host());
    }

    #[test]
    fn only_files_that_exist_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::write(dir.path().join("a"), "long text\n").unwrap();
        root.write("/a", "x\n").unwrap();
        assert_eq!(root.read("/a").unwrap(), "x\n");
        assert!(root.write("/b", "x").is_err() && !dir.path().join("b").exists());
    }
}
