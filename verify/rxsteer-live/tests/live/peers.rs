//! `rxsteer peers`: while it runs, packets from a container are steered; when it has ended, everything is as before.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rxsteer_lab::{LinkOptions, Namespace, Process, Steering, Testbed, rxsteer};
use serde_json::Value;

use super::containers::{counted, works};

const TIMEOUT: Duration = Duration::from_secs(20);

/// `rxsteer peers` in a namespace, and the file with its output.
fn start(namespace: &Namespace, arguments: &[&str], output: &Path) -> Process {
    let mut command = namespace.command(rxsteer().unwrap());
    command.arg("peers").args(arguments).stderr(File::create(output).unwrap());
    Process::start(&mut command).unwrap()
}

/// Waits until a condition holds.
fn until(what: &str, output: &Path, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        let output = std::fs::read_to_string(output).unwrap_or_default();
        assert!(started.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}; it said: {output}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether an end of a veth leaves checksums to the device.
fn leaves_checksums(namespace: &Namespace, name: &str) -> bool {
    let features = namespace.run(&format!("ethtool -k {name}")).unwrap();
    features.lines().any(|line| line.trim() == "tx-checksum-ip-generic: on")
}

#[test]
fn containers_are_steered_while_it_runs_and_are_as_before_when_it_has_ended() {
    let test = "peers::containers_are_steered_while_it_runs_and_are_as_before_when_it_has_ended";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let message = folder.path().join("said");
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.sender().run("ethtool -K out0 tx on").unwrap();
    let before = testbed.sender().run("ethtool -k out0").unwrap();
    let arguments = ["in*", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    assert_eq!(works(&testbed, 0), Ok(()));
    let (partial, redirected) = counted(&socket);
    assert!(partial > 100, "{partial} passed");

    let mut peers = start(testbed.receiver(), &["in*"], &message);
    until("out0 completes checksums", &message, || !leaves_checksums(testbed.sender(), "out0"));
    assert_eq!(works(&testbed, 0), Ok(()), "{}", steering.stderr());
    let (after, steered) = counted(&socket);
    assert!(after < partial + 50 && steered > redirected + 100, "{after} {steered}");

    // `rxsteer peers` also finds a container that appears later.
    testbed.another_link(LinkOptions::default()).unwrap();
    testbed.sender().run("ethtool -K out1 tx on").unwrap();
    let listed = testbed.receiver().command(rxsteer().unwrap());
    let on = |mut listed: std::process::Command| {
        let output = listed.args(["peers", "in1", "--dry-run", "--json"]).output().unwrap();
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        seen["peers"][0].clone()
    };
    let seen = on(listed);
    assert_eq!(seen["namespace"], testbed.sender().inode().unwrap(), "{seen}");
    assert_eq!(seen["peer"], "out1", "{seen}");
    // `rxsteer peers` examined it before its offload was switched on, and examines it again once it is another pair.
    testbed.receiver().ip("link del in1").unwrap();
    let link = "ip link add in2 numrxqueues 1 type veth peer name out2";
    testbed.receiver().run(&format!("{link} netns {}", testbed.sender().name())).unwrap();
    until("out2 completes checksums", &message, || !leaves_checksums(testbed.sender(), "out2"));

    peers.signal(Signal::TERM).unwrap();
    assert!(peers.wait(TIMEOUT).unwrap().success());
    assert!(
        leaves_checksums(testbed.sender(), "out0") && leaves_checksums(testbed.sender(), "out2")
    );
    assert!(!Path::new("/run/rxsteer/peers.json").exists(), "nothing is left");
    assert_eq!(works(&testbed, 0), Ok(()));
    assert_eq!(steering.totals().unwrap().unaccounted(), 0);
    // A program on one end of a veth keeps the other from sending merged segments, so this comes last.
    assert_eq!(testbed.sender().run("ethtool -k out0").unwrap(), before);
}

#[test]
fn what_a_killed_one_left_is_restored_and_a_container_that_ended_is_forgotten() {
    let test = "peers::what_a_killed_one_left_is_restored_and_a_container_that_ended_is_forgotten";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("said");
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let other = Namespace::new().unwrap();
    let link = "ip link add in9 type veth peer name out9";
    testbed.receiver().run(&format!("{link} netns {}", other.name())).unwrap();
    testbed.sender().run("ethtool -K out0 tx on").unwrap();
    let mut peers = start(testbed.receiver(), &["in*"], &output);
    until("both complete checksums", &output, || {
        !leaves_checksums(testbed.sender(), "out0") && !leaves_checksums(&other, "out9")
    });
    // A second `rxsteer peers` is refused while the first one runs.
    let mut second = testbed.receiver().command(rxsteer().unwrap());
    let second = second.args(["peers", "in*"]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another rxsteer peers runs"));
    peers.signal(Signal::KILL).unwrap();
    peers.wait(TIMEOUT).unwrap();
    assert!(!leaves_checksums(testbed.sender(), "out0"), "nothing restores what is killed");
    drop(other);
    let restored = super::ask_stderr(&["peers", "--restore"]);
    assert!(leaves_checksums(testbed.sender(), "out0"), "{restored}");
    assert!(restored.contains("on again at 1 end of a veth; 1 end of a veth gone"), "{restored}");
}
