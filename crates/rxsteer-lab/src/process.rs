//! Other programs: run until they end, or until a value is dropped.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{LabError, Result, Tried};

/// A command in the form in which a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The folders in which programs are searched: PATH, then the system's folders, which PATH often lacks (cron, su).
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty entry means the current folder, from which root should start nothing.
    let named = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    named.chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect()
}

/// Makes a command, and what it starts, search in [`folders`].
fn found(command: &mut Command) -> &mut Command {
    // They come from such a path, so they can be joined again.
    command.env("PATH", std::env::join_paths(folders()).unwrap_or_default())
}

/// Runs a command until it ends.
pub(crate) fn finish(command: &mut Command) -> Result<Output> {
    let output = found(command).stdin(Stdio::null()).output();
    output.tried(|| format!("start `{}`; is it installed?", shown(command)))
}

/// Runs a command, and returns its output unless it failed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = finish(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        command: shown(command),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Runs a command line of words without blanks.
pub(crate) fn typed(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    output(Command::new(words.next().unwrap_or_default()).args(words))
}

/// A running program; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// The command, as a user would type it.
    shown: String,
    /// The process.
    pub(crate) child: Child,
}

impl Process {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Result<Self> {
        let shown = shown(command);
        let child =
            found(command).spawn().tried(|| format!("start `{shown}`; is it installed?"))?;
        Ok(Self { shown, child })
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Ok(Some(_)) = self.child.try_wait() {
            return Ok(());
        }
        // A child keeps its process id until it is waited for, so this is no other process.
        kill_process(Pid::from_child(&self.child), signal)
            .tried(|| format!("send {signal:?} to `{}`", self.shown))
    }

    /// Whether it has ended, and its status.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().tried(|| format!("wait for `{}`", self.shown))
    }

    /// Waits until it ends.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if started.elapsed() > timeout {
                return Err(LabError::Late {
                    what: format!("`{}` did not end", self.shown),
                    seconds: timeout.as_secs(),
                    stderr: "it was killed".to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; both calls then do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
