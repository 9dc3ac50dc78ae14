//! The folder below which `/sys`, `/proc`, `/etc` and `/run` are looked at and written: `/`, or one with a recorded tree.

use crate::files;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Settings of the network core. All but a few can be seen in the first network namespace only, and hold for all.
const NET_CORE: &str = "/proc/sys/net/core/";

/// Files by their absolute paths, as the kernel names them. A test puts a simulated kernel in its place.
pub trait Tree {
    /// The whole text of a file, as it is.
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
    /// This host itself.
    pub fn host() -> Root {
        Root(PathBuf::from("/"))
    }

    /// A recorded tree.
    pub fn at(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Whether it is this host itself, so that netlink and system calls speak of it, too.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where a file named by an absolute path is.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// The file's text without blanks around it; `None` where it can't be read.
    pub(crate) fn text(&self, absolute: &str) -> Option<String> {
        self.read(absolute).ok().map(|text| text.trim().to_owned())
    }

    /// The file's number.
    pub(crate) fn number<T: std::str::FromStr>(&self, absolute: &str) -> Option<T> {
        self.text(absolute)?.parse().ok()
    }

    /// The names in a folder, in ascending order; none where it can't be read.
    pub(crate) fn names(&self, absolute: impl AsRef<Path>) -> Vec<String> {
        files::names(self.path(absolute))
    }

    /// Does something in the first network namespace, that of process 1, where this process may; else `None`.
    fn in_first_namespace<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> Option<io::Result<T>> {
        let first = fs::File::open("/proc/1/ns/net").ok().filter(|_| self.is_host())?;
        let own = fs::metadata("/proc/self/ns/net").ok()?;
        if first.metadata().ok()?.ino() == own.ino() {
            return None;
        }
        // A thread of its own: this one stays where it is.
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(first.as_fd(), network).ok().map(|()| work())
            });
            thread.join().unwrap_or(None)
        })
    }
}

impl Tree for Root {
    fn read(&self, path: &str) -> io::Result<String> {
        let at = self.path(path);
        match fs::read_to_string(&at) {
            Err(error) if is_elsewhere(&error, path) => {
                self.in_first_namespace(|| fs::read_to_string(&at)).unwrap_or(Err(error))
            }
            result => result,
        }
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let at = self.path(path);
        let write = || {
            // Cutting it off first means something in a recorded tree alone.
            let mut file = OpenOptions::new().write(true).truncate(true).open(&at)?;
            file.write_all(text.as_bytes())
        };
        match write() {
            Err(error) if is_elsewhere(&error, path) => {
                self.in_first_namespace(write).unwrap_or(Err(error))
            }
            result => result,
        }
    }
}

/// Whether it is a setting that another network namespace may show.
fn is_elsewhere(error: &io::Error, path: &str) -> bool {
    error.kind() == io::ErrorKind::NotFound && path.starts_with(NET_CORE)
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
