//! Other programs, started in the root of the repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::Outcome;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A command to be run in the root.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    command(&cargo)
}

/// The build folder `target/NAME`, or that name in the folder chosen by the user: a build with other flags must not
/// replace the usual build in its folder.
pub(crate) fn target_dir(name: &str) -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let base = chosen.unwrap_or_else(|| root().join("target"));
    // Absolute, since the commands run in the root of the repository.
    std::path::absolute(&base).unwrap_or(base).join(name)
}

/// The packages of a cargo command: `package`, or the whole workspace and the features with which `./test` has built
/// it. Cargo unites the features of dependencies over all chosen packages, so another choice would build another
/// Parquet.
pub(crate) fn packages(package: &str) -> Vec<String> {
    match std::env::var("RXSTEER_WORKSPACE") {
        Ok(all) if !all.is_empty() => all.split_whitespace().map(str::to_owned).collect(),
        _ => vec!["--package".to_owned(), package.to_owned()],
    }
}

/// The user's RUSTFLAGS followed by `more`.
pub(crate) fn rustflags(more: &str) -> String {
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    format!("{given} {more}").trim().to_owned()
}

/// Runs a command that shows its own output.
pub(crate) fn outcome(command: &mut Command) -> Result<Outcome> {
    let status = command.status().with_context(|| cannot_start(command))?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

/// Runs a command quietly; returns its output, or its error messages if it failed.
pub(crate) fn output(command: &mut Command) -> Result<std::result::Result<String, String>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| cannot_start(command))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

/// Which of these programs, each with its Debian package, are not installed here, and how to install them.
pub(crate) fn missing_programs(programs: &[(&str, &str)]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
    let is_absent =
        |(program, _): &&(&str, &str)| !folders.iter().any(|folder| folder.join(program).is_file());
    let absent: Vec<_> = programs.iter().filter(is_absent).collect();
    let programs: Vec<&str> = absent.iter().map(|(program, _)| *program).collect();
    let packages: Vec<&str> = absent.iter().map(|(_, package)| *package).collect();
    (!absent.is_empty()).then(|| {
        format!(
            "not installed here: {}; on Debian: apt-get install {}",
            programs.join(", "),
            packages.join(" ")
        )
    })
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(output(command("id").arg("-u"))?.unwrap_or_default() == "0")
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}; is it installed?", command.get_program().to_string_lossy())
}
