//! The program without shared libraries: built for musl, with libbpf, libelf and zlib compiled from the sources in
//! libbpf-sys. It runs where nothing else exists: in an empty container, or on a distribution with an old C library.

use super::text;
use crate::{Outcome, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs that the build needs, and their Debian packages. elfutils is built by autotools.
const PROGRAMS: [(&str, &str); 9] = [
    ("musl-gcc", "musl-tools"),
    ("autoreconf", "autoconf"),
    ("aclocal", "automake"),
    ("autopoint", "autopoint"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("gawk", "gawk"),
    ("make", "make"),
    ("pkg-config", "pkg-config"),
];

/// Folders of the kernel's headers, which musl lacks, and where distributions keep them.
fn kernel_headers() -> [(&'static str, [String; 2]); 3] {
    let here = |name: &str| {
        let machine = std::env::consts::ARCH;
        [format!("/usr/include/{name}"), format!("/usr/include/{machine}-linux-gnu/{name}")]
    };
    [("linux", here("linux")), ("asm-generic", here("asm-generic")), ("asm", here("asm"))]
}

/// rustc's name of the target.
fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds it with `cargo`, a `cargo build` of the program with the flags of a release; returns its path. The inner
/// error is the reason why it cannot be built here.
pub(super) fn build(
    mut cargo: Command,
    build: &Path,
    maps: &[String],
) -> Result<Result<PathBuf, String>> {
    if let Some(why) = shell::missing_programs(&PROGRAMS) {
        return Ok(Err(why));
    }
    let target = target();
    if let Err(why) = have(&target)? {
        return Ok(Err(why));
    }
    let include = headers()?;
    let site = shell::root().join("packaging/static/config.site");
    // cc uses these for C code that is compiled for the target, not for build scripts.
    let variable = |name: &str| format!("{name}_{}", target.replace('-', "_"));
    let maps = maps.iter().map(|map| format!("-ffile-prefix-map={map}"));
    let mut flags = vec!["-idirafter".to_owned(), include.display().to_string()];
    flags.extend(maps);
    cargo.args(["--features", "static", "--target", &target]);
    cargo.env(variable("CC"), "musl-gcc").env(variable("CFLAGS"), flags.join(" "));
    cargo.env("CONFIG_SITE", site);
    match shell::outcome(&mut cargo)? {
        Outcome::Passed => Ok(built(build)),
        _ => bail!("the static program does not build"),
    }
}

/// Its path, if it was built.
pub(super) fn built(build: &Path) -> Result<PathBuf, String> {
    let program = build.join(target()).join("release/rxsteer");
    if program.is_file() { Ok(program) } else { Err(format!("there is no {}", program.display())) }
}

/// Ensures that rustc has the target's standard library.
fn have(target: &str) -> Result<Result<(), String>> {
    let mut folder = shell::command("rustc");
    let folder = text(folder.args(["--print", "target-libdir", "--target", target]))?;
    if Path::new(&folder).is_dir() {
        return Ok(Ok(()));
    }
    let added = shell::output(shell::command("rustup").args(["target", "add", target]));
    Ok(match added {
        Ok(Ok(_)) => Ok(()),
        _ => Err(format!("rustc can't build for {target}: rustup target add {target}")),
    })
}

/// A folder with the headers that musl lacks.
fn headers() -> Result<PathBuf> {
    let folder = shell::target_dir("dist-headers");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for (name, places) in kernel_headers() {
        let place = places.iter().find(|place| Path::new(place).is_dir());
        let place = place.with_context(|| {
            format!(
                "the kernel's headers are not here: no {} (linux-libc-dev)",
                places.join(", no ")
            )
        })?;
        symlink(place, folder.join(name))?;
    }
    fs::copy(shell::root().join("packaging/static/argp.h"), folder.join("argp.h"))?;
    Ok(folder)
}
