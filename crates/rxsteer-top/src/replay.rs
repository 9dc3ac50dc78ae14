//! `rxsteer replay` as a child process, which is shown while it runs.

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a replay may take until its socket answers, and how long it may take to end.
const STARTS: Duration = Duration::from_secs(10);
const ENDS: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running replay. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Replay {
    child: Child,
    /// Contains the socket, and a file with the standard error of the child.
    folder: tempfile::TempDir,
}

impl Replay {
    /// Starts `program` to replay a capture at its recorded speed, and waits until it answers.
    ///
    /// # Errors
    /// If it cannot be started, or ends at once: with its message.
    pub fn start(program: &Path, arguments: &[&OsStr]) -> anyhow::Result<Replay> {
        let folder = tempfile::tempdir().context("can't create a folder for the control socket")?;
        let mut command = std::process::Command::new(program);
        command.arg("replay").args(arguments).arg("--socket").arg(folder.path().join("socket"));
        let messages = std::fs::File::create(folder.path().join("messages"));
        let messages = messages.context("can't create a file for the replay's messages")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
        let child = command.spawn().context("can't start the replay")?;
        let mut replay = Replay { child, folder };
        let started = Instant::now();
        while UnixStream::connect(replay.socket()).is_err() {
            if let Some(status) = replay.child.try_wait().context("can't wait for the replay")? {
                anyhow::ensure!(!status.success(), "the replay ended before it could be shown");
                anyhow::bail!("{}", replay.message(status));
            }
            anyhow::ensure!(started.elapsed() < STARTS, "the replay does not answer");
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(replay)
    }

    /// The socket on which it answers.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(match status.code() {
            Some(0) => "THE REPLAY IS OVER: this is the last reading".to_owned(),
            // Everything was replayed that could be.
            Some(1) => format!("THE REPLAY IS OVER: {}", self.message(status)),
            _ => format!("THE REPLAY FAILED: {}", self.message(status)),
        })
    }

    /// Its output on standard error, or how it ended.
    fn message(&self, status: ExitStatus) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("messages")).unwrap_or_default();
        match text.trim() {
            "" => format!("the replay ended: {status}"),
            text => text.trim_start_matches("rxsteer: ").to_owned(),
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id())
            && matches!(self.child.try_wait(), Ok(None))
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > ENDS {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
