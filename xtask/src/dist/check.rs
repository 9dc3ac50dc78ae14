//! Checks that the products of `cargo xtask dist` work where nothing else of this machine exists: runs live tests with
//! the program of each package, in a separate root.

use super::{contents, service, text};
use crate::{Outcome, shell};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The live tests that each program must pass: it loads, attaches, steers in order, answers, and leaves nothing.
const LIVE: [&str; 2] = ["order::small_rings_keep_order", "machine::rps"];
/// The same in a container: there, the tests start podman, and cannot look into the container.
const LIVE_IN_CONTAINER: [&str; 2] = ["order::small_rings_keep_order", "containers::"];
/// Capabilities of `rxsteer run` in a container; the same as in the units and in the DaemonSet.
const CAPABILITIES: [&str; 4] = ["BPF", "NET_ADMIN", "PERFMON", "SYS_NICE"];
/// The schema checker, from PyPI; it contains the schemas.
const KUBERNETES_VALIDATE: &str = "kubernetes-validate==1.37.0";

/// A check; the inner error is the reason why it cannot be done here.
type Check = fn() -> Result<Result<(), String>>;

const CHECKS: [(&str, Check); 7] = [
    ("contents", contents::check),
    ("static", fixed),
    ("deb", deb),
    ("rpm", rpm),
    ("container", container),
    ("kubernetes", kubernetes),
    ("service", service::check),
];

/// Runs these checks; all of them if there are no names.
pub(super) fn run(names: &[String]) -> Result<Outcome> {
    let unknown = names.iter().find(|name| !CHECKS.iter().any(|(known, _)| known == name));
    if let Some(unknown) = unknown {
        bail!(
            "there is no check '{unknown}'; there are {}",
            CHECKS.map(|(name, _)| name).join(", ")
        );
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, check) in CHECKS {
        if !names.is_empty() && !names.iter().any(|chosen| chosen == name) {
            continue;
        }
        match check() {
            Ok(Ok(())) => {
                passed += 1;
                println!("ok      dist/{name}");
            }
            Ok(Err(why)) => {
                skipped += 1;
                println!("SKIPPED dist/{name}: {why}");
            }
            Err(why) => {
                failed += 1;
                println!("FAILED  dist/{name}: {why:#}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { Outcome::Passed } else { Outcome::Failed })
}

/// The file of `target/dist` with that ending.
pub(super) fn made(ending: &str) -> Result<PathBuf, String> {
    let dist = shell::target_dir("dist");
    let files = fs::read_dir(&dist).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
    files
        .into_iter()
        .find(is_it)
        .ok_or_else(|| format!("no *{ending} was made in {}", dist.display()))
}

/// A new folder below `target/dist-check`.
pub(super) fn new_folder(name: &str) -> Result<PathBuf> {
    let folder = shell::target_dir("dist-check").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("can't remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Why nothing can be checked here, if so: live tests require root.
pub(super) fn missing_requirement(programs: &[(&str, &str)]) -> Result<Option<String>> {
    let root = (!shell::is_root()?).then(|| "it requires root".to_owned());
    Ok(shell::missing_programs(programs).or(root))
}

/// Ends a check with the reason, as `?` does for errors.
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(why) => return Ok(Err(why)),
        }
    };
}
pub(super) use or_skip;

/// Runs live tests with a program that `script` starts.
fn steers(name: &str, script: &str, live: &[&str]) -> Result<()> {
    let wrapper = shell::target_dir("dist-check").join(format!("{name}.sh"));
    fs::write(&wrapper, format!("#!/bin/bash\n{script}\n"))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let mut tests = shell::cargo();
    tests.args(["test", "--quiet", "-p", "rxsteer-live", "--test", "live", "--"]).args(live);
    tests.args(["--test-threads=1"]).env("RXSTEER_BIN", &wrapper);
    let output = tests.output().context("cannot start cargo")?;
    let output_text =
        String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "live tests with {}:\n{output_text}", wrapper.display());
    ensure!(!output_text.contains("SKIPPED"), "live tests were skipped:\n{output_text}");
    Ok(())
}

/// Starts `program` below `root`. From this machine, the root has only the kernel's file systems, and the folders in
/// which tests look for sockets. The process stays the same, so that signals reach it.
fn below(root: &Path, program: &str) -> Result<String> {
    for folder in ["proc", "sys", "run", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let root = root.display();
    Ok(format!(
        "exec unshare --mount --propagation private bash -ec 'for d in proc sys run tmp; do mount --rbind /$d \
         \"{root}/$d\"; done; exec chroot \"{root}\" {program} \"$@\"' bash \"$@\""
    ))
}

/// The static program in an empty root.
fn fixed() -> Result<Result<(), String>> {
    if let Some(why) = missing_requirement(&[("unshare", "util-linux")])? {
        return Ok(Err(why));
    }
    let program = or_skip!(made("-static"));
    let root = new_folder("empty")?;
    super::copy(&program, &root.join("rxsteer"))?;
    steers("static", &below(&root, "/rxsteer")?, &LIVE).map(Ok)
}

/// A fresh root of this distribution's release, with what a package may rely on. It is created once, and copied.
pub(super) fn fresh_root() -> Result<Result<PathBuf, String>> {
    if let Some(why) = missing_requirement(&[("debootstrap", "debootstrap")])? {
        return Ok(Err(why));
    }
    let root = shell::target_dir("dist-check").join("debian");
    if root.join("complete").is_file() {
        return Ok(Ok(root));
    }
    let root = new_folder("debian")?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let Some(suite) = suite else {
        return Ok(Err("/etc/os-release does not name the suite".to_owned()));
    };
    eprintln!("making a root of {suite} in {}", root.display());
    let include = "--include=systemd,systemd-sysv,udev,iproute2,ethtool,kmod,procps,libelf1,dbus";
    let mut make = shell::command("debootstrap");
    make.args(["--variant=minbase", include, suite]).arg(&root).args(mirror());
    if let Err(why) = shell::output(&mut make)? {
        let last = why.lines().last().unwrap_or("it gave no reason").to_owned();
        return Ok(Err(format!("debootstrap failed: {last}")));
    }
    fs::write(root.join("complete"), "")?;
    Ok(Ok(root))
}

/// The Debian mirror that this host's apt uses.
fn mirror() -> Option<String> {
    let sources = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let files = sources.map(|entry| entry.path()).chain(["/etc/apt/sources.list".into()]);
    let text: String = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let mut words = text.split_whitespace();
    words
        .find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"))
        .map(str::to_owned)
}

/// A copy of the fresh root.
fn copied(name: &str) -> Result<Result<PathBuf, String>> {
    let fresh = or_skip!(fresh_root()?);
    let root = new_folder(name)?;
    fs::remove_dir(&root)?;
    text(Command::new("cp").args(["-a", "--reflink=auto"]).arg(&fresh).arg(&root))?;
    Ok(Ok(root))
}

/// All paths below a root that `find` selects by `which`, except those of the kernel and those in which a package
/// manager keeps its records.
fn paths(root: &Path, which: &[&str]) -> Result<BTreeSet<String>> {
    let mut find = Command::new("find");
    find.current_dir(root).args([".", "-xdev"]).args(which);
    let own = ["./var/lib/dpkg", "./var/lib/rpm", "./var/log", "./var/cache", "./proc", "./sys"];
    let all = text(&mut find)?;
    let kept = all.lines().filter(|path| !own.iter().any(|own| path.starts_with(own)));
    Ok(kept.map(str::to_owned).collect())
}

/// The paths that an installed package must have.
const INSTALLED: [&str; 7] = [
    "usr/bin/rxsteer",
    "etc/rxsteer/rxsteer.toml",
    "lib/systemd/system/rxsteer.service",
    "lib/systemd/system/rxsteer@.service",
    "usr/share/man/man1",
    "usr/share/bash-completion/completions/rxsteer",
    "usr/share/doc/rxsteer/README.md",
];

/// Installs a package in a separate root, runs its program, removes it, and compares the root with its former state.
fn in_a_root(
    name: &str,
    which: &[&str],
    install: impl Fn(&Path) -> Result<()>,
    remove: impl Fn(&Path) -> Result<()>,
) -> Result<Result<(), String>> {
    let root = or_skip!(copied(name)?);
    let before = paths(&root, which)?;
    install(&root)?;
    for file in INSTALLED {
        ensure!(root.join(file).exists(), "it did not bring /{file}");
    }
    let inside = |arguments: &[&str]| text(Command::new("chroot").arg(&root).args(arguments));
    ensure!(inside(&["rxsteer", "--version"])?.contains(env!("CARGO_PKG_VERSION")), "the version");
    // The root has no /proc and no /sys yet.
    inside(&["rxsteer", "config", "check", "--any-host", "/etc/rxsteer/rxsteer.toml"])?;
    let is_enabled =
        text(Command::new("find").arg(root.join("etc/systemd")).args(["-name", "rxsteer*"]))?;
    ensure!(is_enabled.is_empty(), "it enabled units: {is_enabled}");
    steers(name, &below(&root, "/usr/bin/rxsteer")?, &LIVE)?;
    remove(&root)?;
    let after = paths(&root, which)?;
    let left: Vec<&String> = after.difference(&before).collect();
    ensure!(left.is_empty(), "removed, it leaves {left:?}");
    let lost: Vec<&String> = before.difference(&after).collect();
    ensure!(lost.is_empty(), "removed, it took along {lost:?}");
    fs::remove_dir_all(&root)?;
    Ok(Ok(()))
}

/// The Debian package: installed by dpkg, which checks its dependencies, and purged.
fn deb() -> Result<Result<(), String>> {
    let package = or_skip!(made(".deb"));
    let dpkg = |root: &Path, arguments: &[&str]| {
        let mut dpkg = Command::new("chroot");
        dpkg.arg(root).arg("dpkg").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        text(&mut dpkg).map(drop)
    };
    in_a_root(
        "deb",
        &[],
        |root| {
            super::copy(&package, &root.join("package.deb"))?;
            dpkg(root, &["--install", "/package.deb"])?;
            fs::remove_file(root.join("package.deb")).map_err(Into::into)
        },
        |root| dpkg(root, &["--purge", "rxsteer"]),
    )
}

/// The RPM package: installed by rpm into the same root. The root's libraries are not rpm's, so this does not check
/// dependencies.
fn rpm() -> Result<Result<(), String>> {
    if let Some(why) = missing_requirement(&[("rpm", "rpm")])? {
        return Ok(Err(why));
    }
    let package = or_skip!(made(".rpm"));
    let rpm = |root: &Path, arguments: &[&str]| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(root).args(["--dbpath", "/var/lib/rpm"]).args(arguments);
        text(&mut rpm).map(drop)
    };
    let package = package.to_string_lossy().into_owned();
    in_a_root(
        "rpm",
        // rpm leaves folders that no package owns.
        &["!", "-type", "d"],
        |root| rpm(root, &["--install", "--nodeps", "--ignoreos", &package]),
        |root| rpm(root, &["--erase", "--nodeps", "rxsteer"]),
    )
}

/// The image, with the capabilities of the DaemonSet and no others.
fn container() -> Result<Result<(), String>> {
    let programs = [("podman", "podman"), ("nsenter", "util-linux"), ("ip", "iproute2")];
    if let Some(why) = missing_requirement(&programs)? {
        return Ok(Err(why));
    }
    or_skip!(made("-static"));
    let tag = "localhost/rxsteer-dist-check";
    let mut build = shell::command("podman");
    build.args(["build", "--quiet", "--tag", tag, "--file", "packaging/container/Containerfile"]);
    text(build.arg(shell::target_dir("dist")))?;
    // Limits stay as they are: raising them requires CAP_SYS_RESOURCE, which a sandbox may lack.
    let options = format!(
        "run --rm --interactive --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --pid host --read-only \
         --security-opt seccomp=unconfined --cap-drop ALL {} --volume /run/rxsteer:/run/rxsteer --volume /tmp:/tmp",
        CAPABILITIES.map(|name| format!("--cap-add {name}")).join(" ")
    );
    let runtime = ["", "--runtime /usr/sbin/runc "].into_iter().find(|runtime| {
        let mut try_out = shell::command("bash");
        try_out.args(["-c", &format!("podman {runtime}{options} --network host {tag} --version")]);
        fs::create_dir_all("/run/rxsteer").is_ok()
            && matches!(shell::output(&mut try_out), Ok(Ok(_)))
    });
    let Some(runtime) = runtime else {
        return Ok(Err(
            "podman can't start a container here, neither by its runtime nor by runc".to_owned()
        ));
    };
    // Tests start it below `ip netns exec`, whose /sys has no control groups. Podman runs outside, and enters the
    // namespace by name.
    let host = format!("/proc/{}/ns", std::process::id());
    let script = format!(
        "name=$(ip netns identify $$) network=host\n[[ -z $name ]] || network=ns:/run/netns/$name\n\
         exec nsenter --mount={host}/mnt --net={host}/net podman {runtime}{options} --network $network {tag} \"$@\""
    );
    let steered = steers("container", &script, &LIVE_IN_CONTAINER);
    let clean = format!(
        "podman ps -aq --filter ancestor={tag} | xargs -r podman rm -f; podman rmi -f {tag}"
    );
    text(shell::command("bash").args(["-c", &clean]))?;
    steered.map(Ok)
}

/// Checks the DaemonSet against the schemas of Kubernetes, and against the units.
fn kubernetes() -> Result<Result<(), String>> {
    let file = shell::root().join("packaging/kubernetes/daemonset.yaml");
    let venv = shell::target_dir("dist-check").join("venv");
    let checker = venv.join("bin/kubernetes-validate");
    if !checker.is_file() {
        let mut make = shell::command("python3");
        let made = shell::output(make.args(["-m", "venv"]).arg(&venv));
        let mut pip = Command::new(venv.join("bin/pip"));
        let installed = made.is_ok_and(|made| made.is_ok())
            && shell::output(pip.args(["install", "--quiet", KUBERNETES_VALIDATE]))?.is_ok();
        if !installed {
            return Ok(Err(format!("pip can't install {KUBERNETES_VALIDATE}")));
        }
    }
    text(Command::new(&checker).arg("--strict").arg(&file))?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_made_of_the_static_program() {
        let file = shell::root().join("packaging/container/Containerfile");
        let file = fs::read_to_string(file).unwrap();
        assert!(file.contains("COPY rxsteer-*-static /rxsteer"), "{file}");
    }

    /// Privileges are decided once: units, image and DaemonSet have the same capabilities.
    #[test]
    fn capabilities_are_the_same_everywhere() {
        let read =
            |path: &str| fs::read_to_string(shell::root().join("packaging").join(path)).unwrap();
        for unit in ["systemd/rxsteer.service", "systemd/rxsteer@.service"] {
            let line = format!("CapabilityBoundingSet=CAP_{}", CAPABILITIES.join(" CAP_"));
            assert!(read(unit).contains(&line), "{unit}");
        }
        let set = format!("add: [{}]", CAPABILITIES.join(", "));
        assert!(read("kubernetes/daemonset.yaml").contains(&set), "{set}");
    }
}
