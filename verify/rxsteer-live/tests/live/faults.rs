//! Faults from outside: other programs, other instances, interfaces that disappear.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, OrderCheck, Pass, Steering, Testbed, Traffic, rxsteer, skipped,
};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts an instance that cannot run, and returns its messages.
fn refused(testbed: &Testbed, arguments: &[&str]) -> String {
    refuses(Steering::begin(testbed.receiver(), arguments).unwrap())
}

/// The messages of an instance that cannot run.
fn refuses(mut steering: Steering) -> String {
    let status = steering.wait(TIMEOUT).unwrap();
    assert_eq!(status.code(), Some(2), "{}", steering.stderr());
    // Its last message may still be on its way through the pipe.
    let started = Instant::now();
    while steering.stderr().is_empty() && started.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    steering.stderr()
}

#[test]
fn another_program_is_left_alone_and_named() {
    let Some(_alone) = super::ready("faults::another_program_is_left_alone_and_named", &[], 1)
    else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let _pass = Pass::attach(testbed.receiver(), &testbed.link().far).unwrap();
    let program = super::program_on(testbed.receiver(), "in0").unwrap();
    let stderr = refused(&testbed, &["in0", "--cpus", "0-0"]);
    assert!(stderr.contains(&program.to_string()), "program {program} is not named: {stderr}");
    assert_eq!(super::program_on(testbed.receiver(), "in0"), Some(program));
}

#[test]
fn second_instance_names_the_first() {
    let Some(_alone) = super::ready("faults::second_instance_names_the_first", &[], 1) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let first = Steering::start(testbed.receiver(), &["in0", "--cpus", "0-0"]).unwrap();
    let program = super::program_on(testbed.receiver(), "in0");
    let stderr = refused(&testbed, &["in0", "--cpus", "0-0"]);
    assert!(stderr.contains("rxsteer"), "{stderr}");
    let names_it = stderr.contains(&first.id().to_string())
        || program.is_some_and(|program| stderr.contains(&program.to_string()));
    assert!(names_it, "neither process {} nor program {program:?}: {stderr}", first.id());
    assert_eq!(super::program_on(testbed.receiver(), "in0"), program);
    first.totals().unwrap();
}

#[test]
fn it_ends_when_it_is_asked_to() {
    let Some(_alone) = super::ready("faults::it_ends_when_it_is_asked_to", &[], 1) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let steering = Steering::start(testbed.receiver(), &["in0", "--cpus", "0-0"]).unwrap();
    let (_, took) = steering.stop().unwrap();
    println!("it took {took:?}");
    assert_eq!(super::program_on(testbed.receiver(), "in0"), None);
}

/// What an `ip` command does to the second of two interfaces.
#[derive(Clone, Copy, Debug)]
enum LinkChange {
    Deleted,
    Renamed,
    Down,
}

impl LinkChange {
    fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Deleted => &["link del in1"],
            Self::Renamed => &["link set in1 down", "link set in1 name other", "link set other up"],
            Self::Down => &["link set in1 down"],
        }
    }

    /// Whether the status of an interface reports it.
    fn is_reported(self, interface: &Value) -> bool {
        match self {
            Self::Deleted => interface["state"] == "deleted",
            Self::Renamed => interface["name"] == "other" && interface["state"] == "steered",
            Self::Down => interface["state"] == "down",
        }
    }
}

/// Waits until `rxsteer status` reports the expected state of an interface.
fn status_says(socket: &str, is_so: impl Fn(&Value) -> bool) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let mut status = Command::new(rxsteer().unwrap());
        let output = status.args(["status", "--socket", socket, "--json"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let interfaces = report["interfaces"].as_array().unwrap();
        if interfaces.iter().any(&is_so) {
            return Ok(());
        }
        if started.elapsed() > TIMEOUT {
            return Err(report.to_string());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The first interface keeps working when something happens to the second, and status reports what happened.
fn others_go_on(change: LinkChange) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let arguments = ["in0", "in1", "--policy", "rps", "--cpus", "0-0", "--socket", &socket];
    let mut steering = Steering::start(receiver, &arguments).unwrap();
    for command in change.commands() {
        receiver.ip(command).unwrap();
    }
    let report = status_says(&socket, |interface| change.is_reported(interface));
    assert!(
        report.is_ok(),
        "{change:?}: status says only {report:?}; it said: {}",
        steering.stderr()
    );
    let traffic = Traffic { flows: 4, ..Traffic::default() };
    let check = OrderCheck::new(receiver, &testbed.link().far, 4).unwrap();
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    source.send(testbed.sender(), 0, 10_000).unwrap();
    let seen = check.drained().unwrap();
    assert!(seen.frames > 1000 && seen.late == 0, "{change:?}: {seen:?}");
    assert_eq!(steering.ended().unwrap(), None, "{change:?}: {}", steering.stderr());
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{change:?}: {totals:?}");
    assert!(totals.redirected >= seen.frames, "{change:?}: {totals:?}");
}

#[test]
fn others_go_on_when_an_interface_is_deleted() {
    if let Some(_alone) = super::ready("faults::others_go_on_when_an_interface_is_deleted", &[], 1)
    {
        others_go_on(LinkChange::Deleted);
    }
}

#[test]
fn others_go_on_when_an_interface_is_renamed() {
    if let Some(_alone) = super::ready("faults::others_go_on_when_an_interface_is_renamed", &[], 1)
    {
        others_go_on(LinkChange::Renamed);
    }
}

#[test]
fn others_go_on_when_an_interface_is_down() {
    if let Some(_alone) = super::ready("faults::others_go_on_when_an_interface_is_down", &[], 1) {
        others_go_on(LinkChange::Down);
    }
}

/// A memory cgroup with a limit, until it is dropped.
struct Limited(PathBuf);

impl Limited {
    /// Returns an error with the reason if this machine cannot create one.
    fn to(bytes: u64) -> Result<Self, String> {
        let all = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(all.join("cgroup.controllers")).unwrap_or_default();
        if !controllers.split_whitespace().any(|name| name == "memory") {
            return Err("there is no memory controller of cgroup v2".to_owned());
        }
        let tried = |result: std::io::Result<()>| result.map_err(|why| why.to_string());
        tried(fs::write(all.join("cgroup.subtree_control"), "+memory"))?;
        let group = all.join(format!("rxsteer-test-{}", std::process::id()));
        tried(fs::create_dir(&group))?;
        let group = Self(group);
        tried(fs::write(group.0.join("memory.max"), bytes.to_string()))?;
        Ok(group)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn too_little_memory_is_refused_before_a_frame_is_touched() {
    let test = "faults::too_little_memory_is_refused_before_a_frame_is_touched";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let limited = match Limited::to(80 << 20) {
        Ok(limited) => limited,
        Err(why) => return skipped(&format!("live::{test}"), &why),
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    // `ip netns exec` has its own /sys.
    let name = limited.0.file_name().unwrap().to_str().unwrap();
    let enter = format!(
        "mount -t cgroup2 cgroup /sys/fs/cgroup && echo $$ >/sys/fs/cgroup/{name}/cgroup.procs && exec \"$@\""
    );
    let by = ["bash", "-c", &enter, "bash"];
    let arguments = ["in0", "--cpus", "0-0", "--flow-cnt", "1048576"];
    let stderr = refuses(Steering::begin_run_by(testbed.receiver(), &by, &arguments).unwrap());
    assert!(stderr.contains("the memory limit of this process's cgroup"), "{stderr}");
    assert!(stderr.contains("--flow-cnt"), "{stderr}");
    assert_eq!(super::program_on(testbed.receiver(), "in0"), None);
    // With smaller tables it fits.
    let arguments = ["in0", "--cpus", "0-0", "--flow-cnt", "1024"];
    let mut steering = Steering::begin_run_by(testbed.receiver(), &by, &arguments).unwrap();
    let started = Instant::now();
    while !steering.stderr().lines().any(|line| line.starts_with("steering")) {
        assert_eq!(steering.ended().unwrap(), None, "{}", steering.stderr());
        assert!(started.elapsed() < TIMEOUT, "{}", steering.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    steering.stop().unwrap();
}
