//! A network namespace of the lab.
//!
//! Threads of this process enter it by `setns`. Other programs are started by `ip netns exec`, which mounts the
//! namespace's own /sys for them.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Result, Tried};
use crate::lent::{self, Lent};
use crate::process::{output, typed};

/// The folder in which `ip netns` keeps namespaces.
const FOLDER: &str = "/run/netns";
/// The prefix of our names; the process id and a number follow.
const PREFIX: &str = "rxs-";

/// A network namespace, deleted when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace whose loopback interface is up.
    pub fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        clear_up();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        typed(&format!("ip netns add {name}"))?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name in `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its inode number, which the kernel's structures contain.
    pub fn inode(&self) -> Result<u32> {
        let metadata = std::fs::metadata(self.path());
        // The kernel's own field is 32 bits wide.
        metadata
            .map(|metadata| metadata.ino() as u32)
            .tried(|| format!("stat {}", self.path().display()))
    }

    /// A command that runs in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a command line of words without blanks in the namespace.
    pub fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        output(self.command(words.next().unwrap_or_default()).args(words))
    }

    /// Runs `ip` on the namespace.
    pub fn ip(&self, line: &str) -> Result<String> {
        typed(&format!("ip -netns {} {line}", self.name))
    }

    /// Writes a file of the namespace's /sys.
    pub fn write_sys(&self, path: &str, text: &str) -> Result<()> {
        let script = "printf %s \"$2\" >\"$1\"";
        output(self.command("sh").args(["-c", script, "sh", path, text])).map(drop)
    }

    /// Runs `work` in a thread that is in the namespace, and returns its result.
    ///
    /// Sockets that are created there stay in the namespace, and threads that are started there begin in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = self.path();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter(&path)?;
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Ends the processes in one of our namespaces, and deletes it with its interfaces. Errors are ignored, since they mean
/// that something is already gone.
fn remove(name: &str) {
    let processes = typed(&format!("ip netns pids {name}")).unwrap_or_default();
    for process in processes.split_whitespace().filter_map(|number| number.parse().ok()) {
        if process != std::process::id() as i32
            && let Some(process) = Pid::from_raw(process)
        {
            let _ = kill_process(process, Signal::KILL);
        }
    }
    let _ = typed(&format!("ip netns del {name}"));
}

/// Moves this thread into a namespace.
fn enter(path: &Path) -> Result<()> {
    let what = || format!("enter the namespace {}", path.display());
    let file = File::open(path).tried(what)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).tried(what)
}

/// Restores the interfaces of processes that no longer exist, and deletes their namespaces, since a killed test or lab
/// cannot. Returns the interfaces that belong to another network namespace than that of this process; their namespaces
/// are kept.
pub(crate) fn clear_up() -> Vec<Lent> {
    let others = lent::restore();
    sweep(&others);
    others
}

fn sweep(others: &[Lent]) {
    let Ok(entries) = std::fs::read_dir(FOLDER) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        if let Some((process, _)) = process
            && process.parse::<u32>().is_ok()
            && !Path::new("/proc").join(process).exists()
            && !others.iter().any(|lent| lent.namespace == name)
        {
            remove(&name);
        }
    }
}
