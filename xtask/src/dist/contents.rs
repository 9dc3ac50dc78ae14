//! Checks that the folder `target/dist` is complete: checksums, the contents of each package, its version, both
//! licences, and that no program contains names of this machine.

use super::check::{made, or_skip};
use super::{name, std_sources, text};
use crate::shell;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The contents of an archive or a package: paths below the folder for programs (`usr`), or others.
const FILES: [&str; 7] = [
    "bin/rxsteer",
    "share/man/man1/rxsteer.1",
    "share/man/man1/rxsteer-run.1",
    "share/bash-completion/completions/rxsteer",
    "share/doc/rxsteer/README.md",
    "share/doc/rxsteer/LICENSE-MIT",
    "share/doc/rxsteer/LICENSE-APACHE",
];
/// Contents of packages that the archive has at another path.
const IN_PACKAGES: [&str; 1] = ["etc/rxsteer/rxsteer.toml"];
/// The folders of units, by distribution.
const UNITS: [&str; 2] = ["lib/systemd/system", "usr/lib/systemd/system"];

/// Checks all of `target/dist`.
pub(super) fn check() -> Result<Result<(), String>> {
    let sums = or_skip!(made("SHA256SUMS"));
    let dist = sums.parent().context("it is in a folder")?;
    let home = std::env::var("HOME").unwrap_or_default();
    let root = shell::root().display().to_string();
    let sysroot = std_sources()?.split('=').next().unwrap_or_default().to_owned();
    check_contents(dist, &[root, sysroot, format!("{home}/.cargo")]).map(Ok)
}

/// Fails if a file of `dist` is not as it should be; `foreign` are names that no program may contain.
fn check_contents(dist: &Path, foreign: &[String]) -> Result<()> {
    let names = checksums(dist)?;
    for file in names {
        let path = dist.join(&file);
        let folder = tempdir(&file)?;
        if file.ends_with("-static") {
            program(&path, foreign)?;
            continue;
        }
        text(&mut unpack(&path, &folder)?).with_context(|| format!("can't unpack {file}"))?;
        let is_archive = file.ends_with(".tar.gz");
        whole(&folder, is_archive, foreign).with_context(|| format!("{file} is not whole"))?;
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// The command that unpacks an archive or a package into `folder`.
fn unpack(path: &Path, folder: &Path) -> Result<Command> {
    match path.extension().and_then(OsStr::to_str) {
        Some("gz") => {
            let mut tar = Command::new("tar");
            tar.arg("-xf").arg(path).arg("-C").arg(folder);
            Ok(tar)
        }
        Some("deb") => {
            version(Command::new("dpkg-deb").arg("-f").arg(path).arg("Version"))?;
            let mut deb = Command::new("dpkg-deb");
            deb.arg("-x").arg(path).arg(folder);
            Ok(deb)
        }
        Some("rpm") => {
            version(Command::new("rpm").args(["-qp", "--qf", "%{VERSION}"]).arg(path))?;
            let mut rpm = Command::new("bash");
            // rpm2cpio fails at its end if the header lacks the size of the archive, which cargo-generate-rpm does not
            // write. cpio fails if the archive has no end.
            let script = "rpm2cpio \"$1\" | cpio -idm --quiet -D \"$2\"";
            rpm.args(["-c", script, "bash"]).arg(path).arg(folder);
            Ok(rpm)
        }
        _ => anyhow::bail!("{} is not a file that dist makes", path.display()),
    }
}

fn tempdir(name: &str) -> Result<PathBuf> {
    super::check::new_folder(&format!("contents-{name}"))
}

/// Compares the files with SHA256SUMS, which must name each of them. Returns their names.
fn checksums(dist: &Path) -> Result<BTreeSet<String>> {
    let mut check = Command::new("sha256sum");
    text(check.current_dir(dist).args(["--check", "--strict", "--quiet", "SHA256SUMS"]))?;
    let sums = fs::read_to_string(dist.join("SHA256SUMS"))?;
    let named = sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name);
    let named: BTreeSet<String> = named.map(str::to_owned).collect();
    let mut there = BTreeSet::new();
    for entry in fs::read_dir(dist)? {
        there.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    there.remove("SHA256SUMS");
    ensure!(named == there, "SHA256SUMS names {named:?}, and there are {there:?}");
    ensure!(!named.is_empty(), "SHA256SUMS names no file");
    Ok(named)
}

/// Fails if a package's version, which `command` prints, differs from this one. Packagers append their own number.
fn version(command: &mut Command) -> Result<()> {
    let (found, own) = (text(command)?, env!("CARGO_PKG_VERSION"));
    let rest = found.trim().strip_prefix(own);
    let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    ensure!(is_own, "the package has version {}, not {own}", found.trim());
    Ok(())
}

/// Checks an unpacked archive or package.
fn whole(folder: &Path, is_archive: bool, foreign: &[String]) -> Result<()> {
    let base = if is_archive { folder.join(name()) } else { folder.join("usr") };
    // Packagers compress what the distribution's rules require.
    let has =
        |path: &Path| path.is_file() || Path::new(&format!("{}.gz", path.display())).is_file();
    for file in FILES {
        ensure!(has(&base.join(file)), "it has no {file}");
    }
    for file in IN_PACKAGES.iter().filter(|_| !is_archive) {
        ensure!(folder.join(file).is_file(), "it has no {file}");
    }
    let units = if is_archive {
        vec![base.join(UNITS[0])]
    } else {
        UNITS.map(|at| folder.join(at)).to_vec()
    };
    for unit in ["rxsteer.service", "rxsteer@.service"] {
        ensure!(units.iter().any(|at| at.join(unit).is_file()), "it has no {unit}");
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = base.join("share/doc/rxsteer").join(licence);
        if path.is_file() {
            let is_same = fs::read(&path)? == fs::read(shell::root().join(licence))?;
            ensure!(is_same, "its {licence} is not that of the repository");
        }
    }
    program(&base.join("bin/rxsteer"), foreign)
}

/// Runs a program to print its version, and searches it for names of this machine: with such names, another machine
/// would produce different bytes.
fn program(path: &Path, foreign: &[String]) -> Result<()> {
    let output = text(Command::new(path).arg("--version"))?;
    let expected = format!("rxsteer {}", env!("CARGO_PKG_VERSION"));
    ensure!(output.trim() == expected, "{} says {:?}", path.display(), output.trim());
    let bytes = fs::read(path)?;
    for name in foreign.iter().filter(|name| !name.is_empty()) {
        let found = bytes.windows(name.len()).position(|bytes| bytes == name.as_bytes());
        if let Some(at) = found {
            let rest = &bytes[at..(at + 120).min(bytes.len())];
            let rest = rest.split(|byte| !byte.is_ascii_graphic()).next().unwrap_or_default();
            let rest = String::from_utf8_lossy(rest);
            anyhow::bail!("{} has a name of this machine: {rest}", path.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder as dist creates it, with an archive whose program prints a version and contains `text`.
    fn made(at: &str, without: &str, text_in_program: &str) -> PathBuf {
        let folder = super::super::check::new_folder(at).unwrap();
        let (files, dist) = (folder.join("files"), folder.join("dist"));
        fs::create_dir_all(&dist).unwrap();
        let base = files.join(name());
        let units =
            ["rxsteer.service", "rxsteer@.service"].map(|unit| format!("{}/{unit}", UNITS[0]));
        for file in FILES.into_iter().chain(units.each_ref().map(String::as_str)) {
            if file == without {
                continue;
            }
            let path = base.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match file.rsplit('/').next().unwrap() {
                licence if licence.starts_with("LICENSE") => {
                    fs::copy(shell::root().join(licence), &path).map(drop).unwrap();
                }
                _ if file == "bin/rxsteer" => {
                    let says = format!("rxsteer {}", env!("CARGO_PKG_VERSION"));
                    fs::write(&path, format!("#!/bin/sh\n# {text_in_program}\necho {says}\n"))
                        .unwrap();
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
                }
                _ => fs::write(&path, "text").unwrap(),
            }
        }
        let archive = format!("{}.tar.gz", name());
        let mut tar = Command::new("tar");
        text(tar.arg("-czf").arg(dist.join(&archive)).arg("-C").arg(&files).arg(name())).unwrap();
        let sums = text(Command::new("sha256sum").current_dir(&dist).arg(&archive)).unwrap();
        fs::write(dist.join("SHA256SUMS"), sums + "\n").unwrap();
        dist
    }

    #[test]
    fn what_is_not_whole_is_named() {
        let foreign = ["/home/builder/rxsteer".to_owned()];
        let why = |dist: &Path| format!("{:#}", check_contents(dist, &foreign).unwrap_err());
        let good = made("contents-good", "", "");
        check_contents(&good, &foreign).unwrap();
        for file in ["share/doc/rxsteer/LICENSE-APACHE", "share/man/man1/rxsteer.1", "bin/rxsteer"]
        {
            let dist = made("contents-lacks", file, "");
            assert!(why(&dist).contains(&format!("it has no {file}")), "{}", why(&dist));
        }
        let dist = made("contents-unit", "lib/systemd/system/rxsteer@.service", "");
        assert!(why(&dist).contains("it has no rxsteer@.service"), "{}", why(&dist));
        let dist = made("contents-foreign", "", "panicked at /home/builder/rxsteer/src/main.rs");
        let expected = "a name of this machine: /home/builder/rxsteer/src/main.rs";
        assert!(why(&dist).contains(expected), "{}", why(&dist));
        fs::write(good.join("more"), "").unwrap();
        assert!(why(&good).contains("\"more\""), "{}", why(&good));
        fs::remove_file(good.join("more")).unwrap();
        fs::write(good.join(format!("{}.tar.gz", name())), "other").unwrap();
        assert!(why(&good).contains("sha256sum failed"), "{}", why(&good));
    }
}
