//! DPDK's distributor and rings, to compare with rxsteer's userspace path: a C program that is compiled where DPDK's
//! headers are installed.

use crate::error::{LabError, Result, Tried};
use crate::live::LiveFrames;
use crate::process::{Process, output};
use crate::receiving::Receiving;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const SOURCE: &str = include_str!("dpdk.c");

/// Why it cannot be measured here, if so.
pub(crate) fn unavailable() -> Option<String> {
    let has =
        |program: &str, arguments: &[&str]| output(Command::new(program).args(arguments)).is_ok();
    (!has("pkg-config", &["--exists", "libdpdk"]) || !has("cc", &["--version"])).then(|| {
        "a C compiler, pkg-config and DPDK's headers (Debian: libdpdk-dev); then run it again"
            .to_owned()
    })
}

/// The compiled program, in a file without a name, which needs no removal.
fn program() -> Result<&'static File> {
    static PROGRAM: OnceLock<File> = OnceLock::new();
    if let Some(program) = PROGRAM.get() {
        return Ok(program);
    }
    let folder = tempfile::tempdir().tried(|| "make a folder for DPDK's program".to_owned())?;
    let [source, built] = ["dpdk.c", "dpdk"].map(|name| folder.path().join(name));
    std::fs::write(&source, SOURCE).tried(|| format!("write {}", source.display()))?;
    let flags = output(Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&built).arg(&source).args(flags.split_whitespace());
    output(&mut compiler)?;
    let file = File::open(&built).tried(|| format!("open {}", built.display()))?;
    Ok(PROGRAM.get_or_init(|| file))
}

/// DPDK's folder for a process, removed when this is dropped.
struct Runtime(PathBuf);

impl Drop for Runtime {
    fn drop(&mut self) {
        // Without one there is nothing to remove.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Receiving<'_> {
    /// Packets finished per second while the sender sends, and those of each worker. `kind` is `distributor` or `ring`.
    ///
    /// The reading thread and one of the two workers share CPU 1; the other worker shares CPU 0 with the sender.
    pub(crate) fn dpdk(&self, source: &LiveFrames, kind: &str) -> Result<(f64, [u64; 2])> {
        let program = format!("/proc/{}/fd/{}", std::process::id(), program()?.as_raw_fd());
        let counters = tempfile::Builder::new()
            .tempfile_in("/dev/shm")
            .tried(|| "make a file for DPDK's counts".to_owned())?;
        counters.as_file().set_len(16).tried(|| "make room for DPDK's counts".to_owned())?;
        let name = &self.testbed.link().far.name;
        let mut command = self.testbed.receiver().command(program);
        command.arg(name).arg(counters.path()).arg(kind);
        // Without huge pages DPDK refuses --in-memory, so it creates a folder, which is removed below.
        let prefix = format!("rxs-{}", std::process::id());
        let _folder = Runtime(Path::new("/run/dpdk").join(&prefix));
        command.args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf"]);
        command.args(["--file-prefix", &prefix]);
        command.args(["--lcores", "0@1,1@0,2@1", "--main-lcore", "0"]);
        command.arg(format!("--vdev=net_af_packet0,iface={name},blocksz=65536,framecnt=4096"));
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let taken =
            |what: &str| LabError::Unreadable { who: "DPDK".to_owned(), why: what.to_owned() };
        let stdout = process.child.stdout.take().ok_or_else(|| taken("no output"))?;
        let is_ready =
            BufReader::new(stdout).lines().any(|line| line.is_ok_and(|line| line == "ready"));
        if !is_ready {
            let mut message = String::new();
            if let Some(mut stderr) = process.child.stderr.take() {
                // If this fails, the message is incomplete; the failure to start is reported anyway.
                let _ = stderr.read_to_string(&mut message);
            }
            // The last line has the reason; a usage message may come before it.
            let why = message.trim().lines().last().unwrap_or_default();
            return Err(taken(&format!("it did not start: {why}")));
        }
        std::thread::sleep(Duration::from_millis(100));
        let took = source.send(self.testbed.sender(), 0, self.frames)?;
        let mut words = [0; 16];
        counters
            .as_file()
            .read_exact_at(&mut words, 0)
            .tried(|| "read DPDK's counts".to_owned())?;
        let (first, second) = words.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let done = [word(first), word(second)];
        Ok((done.iter().sum::<u64>() as f64 / took.as_secs_f64(), done))
    }
}
