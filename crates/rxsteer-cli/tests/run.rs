//! `rxsteer run`, `status`, `set` and `explain --live` without attaching anything: what they refuse, with which message
//! and which exit status. The tests in `rxsteer-live` cover the steering itself.
#![cfg(feature = "xdp")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn rxsteer(arguments: &[&str]) -> Output {
    output(Command::new(env!("CARGO_BIN_EXE_rxsteer")).args(arguments))
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it can be started")
}

/// Checks that a command was refused before it did anything, with all of these words.
fn assert_refused(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    for word in words {
        assert!(stderr.contains(word), "{word} in: {stderr}");
    }
}

#[test]
fn interface_there_is_not_is_named() {
    assert_refused(&rxsteer(&["run", "nosuch0"]), &["there is no interface 'nosuch0'"]);
    assert_refused(&rxsteer(&["run", "eth["]), &["'eth['", "pattern"]);
    assert_refused(&rxsteer(&["run"]), &["<IFACE>"]);
}

#[test]
fn other_end_of_what_is_no_veth_is_refused() {
    assert_refused(&rxsteer(&["peers", "lo"]), &["lo is not a veth"]);
    assert_refused(&rxsteer(&["peers", "nosuch0", "--dry-run"]), &["'nosuch0'", "ip link"]);
    assert_refused(&rxsteer(&["peers"]), &["<IFACE>"]);
    assert_refused(&rxsteer(&["peers", "veth*", "--restore"]), &["--restore"]);
    let nothing = rxsteer(&["peers", "nosuch*", "--dry-run", "--json"]);
    assert!(String::from_utf8_lossy(&nothing.stdout).contains("\"peers\": []"), "{nothing:?}");
}

#[test]
fn without_privileges_the_capability_is_named() {
    let test = "run::without_privileges_the_capability_is_named";
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_rxsteer")]);
    bare.args(["run", "lo"]);
    let skipped = |why: &str| {
        writeln!(std::io::stderr(), "SKIPPED {test}: {why}").expect("standard error is open");
    };
    let output = match bare.stdin(Stdio::null()).output() {
        Err(error) => return skipped(&format!("there is no setpriv: {error}")),
        Ok(output) => output,
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("setpriv:") {
        return skipped(&format!("capabilities can't be given up here: {}", stderr.trim()));
    }
    if !stderr.contains("CAP_") {
        return skipped(&format!("this host is refused for something else: {}", stderr.trim()));
    }
    assert_refused(&output, &["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "What to do"]);
}

#[test]
fn settings_are_refused_before_anything_is_read() {
    for (arguments, word) in [
        (&["run", "lo", "--policy", "rsp"][..], "did you mean 'rps'"),
        (&["run", "lo", "--cpus", ""], "the CPU list is empty"),
        (&["run", "lo", "--cpus", "0"], "0-0"),
        (&["run", "lo", "--queue-size", "7"], "from 8 to 16384"),
        (&["run", "lo", "--queue-size", "16385"], "from 8 to 16384"),
        (&["run", "lo", "--mode", "natve"], "native"),
        (&["run", "lo", "--hash", "nic"], "not of rxsteer run"),
        (&["run", "lo", "--flow-limit=4097"], "from 1 to 4096"),
        (&["run", "lo", "--duration", "0s"], "end at once"),
        (&["run", "lo", "--config", "/nosuch"], "there is no file /nosuch"),
        (&["set", "polcy=rps"], "did you mean 'policy'"),
        (&["set", "policy", "rps"], "policy=VALUE"),
        (&["set", "policy=rps", "policy=rfs"], "set twice"),
        (&["set", "eth0"], "no settings given"),
        (&["set", "queue-size=0"], "from 8 to 16384"),
        (&["set", "flow-limit=1048577"], "from 1 to 1048576"),
        (&["set", "--socket", "x", "eth0", "policy=rps"], "leave the interface out"),
        (&["explain", "10.0.0.1:1-10.0.0.2:2/tpc", "--live"], "did you mean 'tcp'"),
        (&["explain", "10.0.0.1:1-10.0.0.2:2/tcp", "--live", "--policy", "rps"], "--live"),
    ] {
        assert_refused(&rxsteer(arguments), &[word]);
    }
}

#[test]
fn where_no_instance_listens_that_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    let path = socket.to_str().expect("UTF-8");
    for arguments in [
        &["status", "--socket", path][..],
        &["set", "--socket", path, "policy=rps"],
        &["explain", "10.0.0.1:1-10.0.0.2:2/tcp", "--live", "--socket", path],
    ] {
        assert_refused(&rxsteer(arguments), &["no instance can be reached at", path]);
    }
}

#[test]
fn auto_refuses_before_it_measures_what_it_could_not_do() {
    let auto = |more: &[&str]| rxsteer(&[&["auto", "lo"][..], more].concat());
    assert_refused(&auto(&["--cpus", "900-901"]), &["--cpus 900-901: CPUs 900-901 are not online"]);
    // The sample would take longer than a test may: an interface that is to be left alone is not measured.
    let alone = auto(&["--sample", "1h"]);
    let text = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.status.success() && text.contains("Leave lo alone"), "{text}");
    let short = auto(&["--verify", "10s", "--duration", "5s"]);
    assert_refused(&short, &["--duration 5s", "--sample 10s", "--verify 10s"]);
}

#[test]
fn rules_by_inner_headers_are_refused_without_them() {
    for rule in ["gre teid 5 -> 0", "tcp vni 5 -> 0"] {
        let explain = ["explain", "10.0.0.1:1-10.0.0.2:2/tcp", "--rule", rule, "--cpus", "0-0"];
        assert_refused(&rxsteer(&explain), &["no packet can match", "inner"]);
        assert!(rxsteer(&[&explain[..], &["--inner"]].concat()).status.success(), "{rule}");
        let change = format!("5p:rule={rule}");
        let replay = ["replay", "--synthetic", "packets=10", "--no-pin", "--change-at", &change];
        assert_refused(&rxsteer(&replay), &["planned change 1", "no packet can match"]);
        assert!(rxsteer(&[&replay[..], &["--inner"]].concat()).status.success(), "{rule}");
    }
}

#[test]
fn help_shows_examples() {
    for command in ["run", "status", "set"] {
        let output = rxsteer(&[command, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(text.contains("Examples:") && text.contains("Exit status:"), "{text}");
        assert!(!text.contains("without-order-guard"), "that is for tests");
    }
}
