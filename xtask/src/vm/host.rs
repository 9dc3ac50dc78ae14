//! What this host needs to boot machines: programs, the binaries of the tests, kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::matrix::Kernel;
use crate::shell;

/// The programs that are used here, and their Debian packages.
const PROGRAMS: [(&str, &str); 8] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("cpio", "cpio"),
    ("gzip", "gzip"),
    ("xz", "xz-utils"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
];

/// The files that each machine needs.
pub(crate) struct Kit {
    /// The binary of the live tests.
    pub(crate) live: PathBuf,
    /// The program under test.
    pub(crate) rxsteer: PathBuf,
}

impl Kit {
    /// Finds and builds everything; the inner error is why no machine can be booted here.
    pub(crate) fn new() -> Result<Result<Self, String>> {
        if let Some(why) = missing()? {
            return Ok(Err(why));
        }
        // Both are built as for the tests on this host: the same build, in the same folder. The program is built for its
        // own tests.
        let rxsteer = built("rxsteer-cli", "it", "bin", "rxsteer")?;
        let live = built("rxsteer-live", "live", "test", "live")?;
        Ok(Ok(Self { live, rxsteer }))
    }

    /// The live tests whose names contain one of these.
    pub(crate) fn tests(&self, parts: &[String]) -> Result<Vec<String>> {
        let mut list = shell::command(&self.live.to_string_lossy());
        match shell::output(list.args(["--list", "--format=terse"]).args(parts))? {
            Ok(stderr) => listed(&stderr, parts),
            Err(stderr) => bail!("the live tests cannot be listed: {stderr}"),
        }
    }
}

/// The folder of a kernel, which is downloaded if it is missing; the inner error is why that failed.
pub(crate) fn kernel(name: &str, kernel: &Kernel) -> Result<Result<PathBuf, String>> {
    let all = shell::target_dir("vm/kernels");
    fs::create_dir_all(&all).with_context(|| format!("cannot make {}", all.display()))?;
    let folder = all.join(name);
    if folder.join("vmlinuz").is_file() {
        return Ok(Ok(folder));
    }
    eprintln!("fetching Linux {name} from {}", kernel.suite);
    let mut fetch = shell::command("bash");
    fetch.arg(script("kernel.sh")).args([&kernel.suite, &kernel.package]).arg(&folder);
    Ok(shell::output(&mut fetch)?.map(|_| folder).map_err(|stderr| {
        let last = stderr.lines().last().unwrap_or("it gave no reason").to_owned();
        format!("the kernel cannot be fetched: {last}")
    }))
}

/// The initramfs of a kernel, whose init becomes `command` (of busybox; the root is at `/new`). It is created each
/// time, which is fast, so that it always matches the scripts.
pub(crate) fn initramfs(name: &str, kernel: &Path, command: &str) -> Result<PathBuf> {
    let all = shell::target_dir("vm/initramfs");
    fs::create_dir_all(&all).with_context(|| format!("cannot make {}", all.display()))?;
    let out = all.join(name);
    let mut make = shell::command("bash");
    make.arg(script("initramfs.sh")).arg(kernel).arg(&out).arg(command);
    match shell::output(&mut make)? {
        Ok(_) => Ok(out),
        Err(stderr) => bail!("the initramfs of Linux {name} cannot be created: {stderr}"),
    }
}

/// A script of xtask/vm.
pub(crate) fn script(name: &str) -> PathBuf {
    shell::root().join("xtask/vm").join(name)
}

/// Why no machine can be booted here, if none can be.
pub(crate) fn missing() -> Result<Option<String>> {
    if std::env::consts::ARCH != "x86_64" {
        return Ok(Some("the kernels are those of x86-64 machines".to_owned()));
    }
    if let Some(why) = shell::missing_programs(&PROGRAMS) {
        return Ok(Some(why));
    }
    // The machine accesses the host's files as this user, and needs files that only root may read.
    Ok((!shell::is_root()?)
        .then(|| "it requires root, to show the host's files to the machine".to_owned()))
}

/// Builds something with cargo; returns its path.
fn built(package: &str, tests: &str, kind: &str, name: &str) -> Result<PathBuf> {
    let mut cargo = shell::cargo();
    cargo
        .args(["test", "--no-run", "--test", tests])
        .args(shell::packages(package))
        .args(["--quiet", "--message-format=json"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = cargo.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{name} does not build; it requires clang, libelf and zlib");
    }
    let stderr = String::from_utf8_lossy(&output.stdout);
    stderr
        .lines()
        .find_map(|line| executable(line, kind, name))
        .with_context(|| format!("cargo does not say where {name} is"))
}

/// The executable in a message of cargo, if it is the one that was built.
fn executable(line: &str, kind: &str, name: &str) -> Option<PathBuf> {
    let output: Value = serde_json::from_str(line).ok()?;
    let target = &output["target"];
    let is_it =
        target["name"] == name && target["kind"].as_array()?.iter().any(|this| this == kind);
    is_it.then(|| output["executable"].as_str().map(PathBuf::from))?
}

/// The tests in the list of a test program.
fn listed(stderr: &str, parts: &[String]) -> Result<Vec<String>> {
    let names = stderr.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<String> = names.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "no live test has a name that contains {}", parts.join(" or "));
    Ok(names)
}

/// The day, according to the host's clock, and the tested commit.
pub(crate) fn day() -> String {
    let output = |command: &mut Command| shell::output(command).ok().and_then(Result::ok);
    let day = output(shell::command("date").args(["-u", "+%F"]));
    let commit = output(shell::command("git").args(["rev-parse", "--short=8", "HEAD"]));
    format!(
        "{} ({})",
        day.as_deref().unwrap_or("an unknown day"),
        commit.as_deref().unwrap_or("no commit")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_in_a_list() {
        let parts = ["machine::".to_owned(), "order::".to_owned()];
        let names = listed("machine::rps: test\norder::small: test\n", &parts).unwrap();
        assert_eq!(names, ["machine::rps", "order::small"]);
        let why = listed("", &parts).unwrap_err().to_string();
        assert!(why.ends_with("machine:: or order::"), "{why}");
    }

    #[test]
    fn executable_is_found_among_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"live"},"executable":"/t/live-1"}"#;
        assert_eq!(executable(line, "test", "live"), Some("/t/live-1".into()));
        assert_eq!(executable(line, "bin", "live"), None);
        assert_eq!(executable(line, "test", "testbed"), None);
        assert_eq!(executable(r#"{"reason":"build-finished"}"#, "test", "live"), None);
        assert_eq!(executable(&line.replace("\"/t/live-1\"", "null"), "test", "live"), None);
    }
}
