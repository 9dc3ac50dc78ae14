//! Checks that the units work below a real systemd with a real udev: a virtual machine boots a fresh root, installs the
//! Debian package, and starts, reloads, stops and removes it (`xtask/vm/service.sh`).

use super::check::{fresh_root, made, or_skip};
use crate::{shell, vm};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// A machine of xtask/vm/vm.toml with the distribution's own kernel.
const MACHINE: &str = "6.1-veth-2";
/// It takes two to four minutes.
const LIMIT: Duration = Duration::from_secs(900);

/// The unit of the machine that runs the script.
const UNIT: &str = "[Unit]\n\
    Description=What cargo xtask dist checks\n\
    [Service]\n\
    ExecStart=/bin/bash /run/shared/service.sh\n";

pub(super) fn check() -> Result<Result<(), String>> {
    let package = or_skip!(made(".deb"));
    let root = or_skip!(fresh_root()?);
    prepare(&root)?;
    let script = fs::read(vm::script("service.sh")).context("no service.sh")?;
    let files = vec![("package.deb", fs::read(&package)?), ("service.sh", script)];
    let (left, ended) = or_skip!(vm::boot_root(MACHINE, &root, files, LIMIT)?);
    // The report is useful: it contains the files that were generated in the machine.
    let report = shell::target_dir("dist-check").join("service.txt");
    fs::write(&report, format!("Linux {}\n{}\n{}", left.kernel, left.out, left.err))?;
    println!("        Linux {}; what happened is in {}", left.kernel, report.display());
    match left.status.as_deref() {
        Some("0") => Ok(Ok(())),
        Some(_) => bail!("{}\n{}", left.out, left.err),
        None => bail!("{ended}\n{}\n{}", left.out, left.console),
    }
}

/// Makes the root start the script when it is booted.
fn prepare(root: &Path) -> Result<()> {
    ensure!(root.join("lib/systemd/systemd").exists(), "there is no systemd in {}", root.display());
    let units = root.join("etc/systemd/system");
    let wanted = units.join("multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    fs::write(units.join("dist-check.service"), UNIT)?;
    let link = wanted.join("dist-check.service");
    let _ = fs::remove_file(&link);
    symlink("../dist-check.service", &link)?;
    // A root that was never booted would ask for a host name.
    fs::write(root.join("etc/hostname"), "dist-check\n").map_err(Into::into)
}
