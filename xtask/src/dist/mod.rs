//! `cargo xtask dist` makes what users install: a Debian package, an RPM package, an archive, a static program, and
//! their checksums.
//!
//! `mod.rs` makes them, and `musl.rs` builds the static program. With --check, `check.rs` installs, runs and removes
//! each of them in a fresh root, `service.rs` does the same below systemd in a virtual machine, and `contents.rs`
//! checks the contents of each.

mod check;
mod contents;
mod musl;
mod service;

use crate::{Outcome, shell};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes what users install: .deb, .rpm, .tar.gz, a static program, and SHA256SUMS.
///
/// The same commit gives the same bytes if the compiler and the system's libraries are the same.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask dist && ls target/dist\n  \
    cargo xtask dist --check                 and install, run and remove each in a fresh root (root)\n  \
    cargo xtask dist --check-only service    only the Debian package below systemd in a virtual machine")]
pub(crate) struct Options {
    /// Package the programs in target/dist-build without building them
    #[arg(long)]
    no_build: bool,
    /// Install, run and remove each package in a fresh root file system; requires root, debootstrap, rpm, podman, QEMU
    #[arg(long)]
    check: bool,
    /// Make nothing; run only these checks: contents, static, deb, rpm, container, kubernetes, service
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with_all = ["no_build", "check"])]
    check_only: Vec<String>,
}

/// Makes them in `target/dist`, and checks them.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if !options.check_only.is_empty() {
        return check::run(&options.check_only);
    }
    match make(options)? {
        Outcome::Passed if options.check => check::run(&[]),
        outcome => Ok(outcome),
    }
}

fn make(options: &Options) -> Result<Outcome> {
    let (build, dist) = (shell::target_dir("dist-build"), shell::target_dir("dist"));
    let files = shell::root().join("target/dist-files");
    for folder in [&dist, &files] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    let time = text(shell::command("git").args(["log", "-1", "--format=%ct"]))?;
    // Without this, the panic messages would contain paths of this machine, which differ from machine to machine.
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?;
    let maps = [
        std_sources()?,
        format!("{}=rxsteer", shell::root().display()),
        format!("{home}=cargo"),
        format!("{}=build", build.display()),
    ];
    let cargo = || {
        let mut cargo = shell::cargo();
        cargo.args(["build", "--release", "--locked", "-p", "rxsteer-cli", "--target-dir"]);
        let flags = maps.each_ref().map(|map| format!("--remap-path-prefix={map}")).join(" ");
        cargo.arg(&build).env("RUSTFLAGS", shell::rustflags(&flags));
        cargo.env("SOURCE_DATE_EPOCH", &time).env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
        cargo
    };
    let fixed = if options.no_build {
        musl::built(&build)
    } else {
        let Outcome::Passed = shell::outcome(&mut cargo())? else { return Ok(Outcome::Failed) };
        musl::build(cargo(), &build, &maps)?
    };
    match fixed {
        Ok(program) => copy(&program, &dist.join(format!("{}-static", name())))?,
        Err(why) => println!("SKIPPED static program: {why}"),
    }
    let program = build.join("release/rxsteer");
    ensure!(program.is_file(), "{} is not there; leave --no-build out", program.display());
    text(Command::new(&program).arg("man").arg(files.join("man")))?;
    for shell in ["bash", "zsh", "fish"] {
        let script = text(Command::new(&program).args(["completions", shell]))?;
        fs::write(files.join(format!("rxsteer.{shell}")), script + "\n")?;
    }
    archive(&program, &files, &dist, &time)?;
    let deb = ["deb", "--no-build", "--package", "rxsteer-cli", "--output"];
    packed(shell::cargo().args(deb).arg(&dist).env("CARGO_TARGET_DIR", &build), &time)?;
    stage(&program, &files.join("rpm"))?;
    let rpm = ["generate-rpm", "--package", "crates/rxsteer-cli", "--output"];
    let mut generate = shell::cargo();
    generate.args(rpm).arg(&dist).arg("--target-dir").arg(&build).args(["--source-date", &time]);
    packed(&mut generate, &time)?;
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(&dist)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let sums = text(Command::new("sha256sum").current_dir(&dist).args(&names))?;
    println!("{sums}");
    fs::write(dist.join("SHA256SUMS"), sums + "\n")?;
    Ok(Outcome::Passed)
}

/// Returns a prefix map for the paths of the standard library's sources. If the component rust-src is installed, these
/// paths are below this user's home; without it they are the paths to which this map leads.
fn std_sources() -> Result<String> {
    let sysroot = text(Command::new("rustc").args(["--print", "sysroot"]))?;
    let version = text(Command::new("rustc").arg("-vV"))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.context("rustc -vV has no line commit-hash")?;
    Ok(format!("{}/lib/rustlib/src/rust=/rustc/{commit}", sysroot.trim()))
}

/// The prefix of files for this kind of machine.
fn name() -> String {
    format!("rxsteer-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("can't copy {}", from.display()))
}

/// Runs a packager. If it is not installed, prints the reason and continues.
fn packed(command: &mut Command, time: &str) -> Result<()> {
    let name = command.get_args().next().unwrap_or_default().to_string_lossy().into_owned();
    let known = shell::output(shell::cargo().args([name.as_str(), "--version"]))?;
    if known.is_err() {
        println!(
            "SKIPPED package by cargo-{name}: it is not installed (cargo install cargo-{name})"
        );
        return Ok(());
    }
    text(command.env("SOURCE_DATE_EPOCH", time)).map(|_| ())
}

/// One archive with everything, for systems with other packages. Unpacking it below `/usr/local` installs it.
fn archive(program: &Path, files: &Path, dist: &Path, time: &str) -> Result<()> {
    let name = name();
    let folder = files.join(&name);
    let root = shell::root();
    let copies: [(PathBuf, &str); 10] = [
        (program.to_owned(), "bin/rxsteer"),
        (files.join("rxsteer.bash"), "share/bash-completion/completions/rxsteer"),
        (files.join("rxsteer.zsh"), "share/zsh/site-functions/_rxsteer"),
        (files.join("rxsteer.fish"), "share/fish/vendor_completions.d/rxsteer.fish"),
        (root.join("packaging/rxsteer.toml"), "share/doc/rxsteer/rxsteer.toml"),
        (root.join("packaging/systemd/rxsteer.service"), "lib/systemd/system/rxsteer.service"),
        (root.join("packaging/systemd/rxsteer@.service"), "lib/systemd/system/rxsteer@.service"),
        (root.join("README.md"), "share/doc/rxsteer/README.md"),
        (root.join("LICENSE-MIT"), "share/doc/rxsteer/LICENSE-MIT"),
        (root.join("LICENSE-APACHE"), "share/doc/rxsteer/LICENSE-APACHE"),
    ];
    let pages = fs::read_dir(files.join("man"))?.collect::<Result<Vec<_>, _>>()?;
    let pages = pages.iter().map(|page| {
        (page.path(), format!("share/man/man1/{}", page.file_name().to_string_lossy()))
    });
    for (from, to) in copies.into_iter().map(|(from, to)| (from, to.to_owned())).chain(pages) {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().context("it is in a folder")?)?;
        copy(&from, &to)?;
    }
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go=rX"]);
    tar.arg(format!("--mtime=@{time}")).args(["--use-compress-program=gzip -9n", "-cf"]);
    tar.arg(dist.join(format!("{name}.tar.gz"))).arg("-C").arg(files).arg(&name);
    text(&mut tar).map(|_| ())
}

/// Copies the files for the RPM. cargo-generate-rpm gives each file its own time, or that of the commit if the file is
/// newer. Files of a clone or a build may be older than the commit, but copies never are.
fn stage(program: &Path, folder: &Path) -> Result<()> {
    let root = shell::root();
    fs::create_dir_all(folder)?;
    copy(program, &folder.join("rxsteer"))?;
    for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "packaging/rxsteer.toml"] {
        let from = root.join(name);
        copy(&from, &folder.join(from.file_name().context("it has a name")?))?;
    }
    for (from, to) in [("packaging/systemd", "systemd"), ("docs", "docs")] {
        fs::create_dir_all(folder.join(to))?;
        for entry in fs::read_dir(root.join(from))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                copy(&entry.path(), &folder.join(to).join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

/// The output of a command. If the command fails, the error contains its messages.
fn text(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    shell::output(command)?.map_err(|why| anyhow::anyhow!("{name} failed: {why}"))
}
