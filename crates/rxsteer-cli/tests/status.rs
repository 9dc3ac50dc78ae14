//! `rxsteer status` of a running replay: its counts add up at any time, and at the end they are those of the report.

use crate::program::pcap::pcap;
use crate::program::running::{ended, send, wait_until};
use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A frame over UDP; each number is a different flow.
fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, number, 10, 9, 9, 9, 0x80, number, 0, 53, 0, 30, 0, 0]);
    frame.resize(64, 0);
    frame
}

fn replay(arguments: &[&str], socket: &Path, stdin: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "--json", "--no-pin", "--cpus", "0-1", "--socket", text(socket)])
        .args(arguments)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Starts a replay that waits for its first frame; returns once it answers.
fn waiting_replay(socket: &Path) -> Child {
    let mut child = replay(&["-"], socket, Stdio::piped());
    begin_capture(&mut child);
    wait_until(&mut child, "answer", |_| status(socket, "0").is_some());
    child
}

/// Writes the header of a capture; the replay does not start before it has read this.
fn begin_capture(child: &mut Child) {
    child.stdin.as_mut().expect("a pipe").write_all(&pcap(1, &[])).expect("it reads");
}

/// The status of the instance at the socket, if it answers.
fn status(socket: &Path, flows: &str) -> Option<Value> {
    let output = rxsteer(&["status", "--json", "--flows", flows, "--socket", text(socket)]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("an object"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn dropped(counts: &Value) -> u64 {
    counts["drops"].as_object().expect("by reason").values().map(number).sum()
}

/// Asserts that packets add up, in total and by CPU; returns how many were received.
fn adds_up(status: &Value) -> u64 {
    let received = number(&status["received"]);
    let known = [&status["passed"], &status["delivered"], &status["waiting"]].map(number);
    assert_eq!(received, known.iter().sum::<u64>() + dropped(status), "{status}");
    for counter in ["received", "delivered", "waiting", "bytes", "hashed", "in_slots", "local"] {
        let cpus = status["cpus"].as_array().expect("CPUs");
        let sum: u64 = cpus.iter().map(|cpu| number(&cpu[counter])).sum();
        assert_eq!(sum, number(&status[counter]), "{counter}: {status}");
    }
    received
}

#[test]
fn counts_are_those_of_the_report_when_all_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, flows) = (dir.path().join("socket"), dir.path().join("flows.csv"));
    let arguments = ["-", "--policy", "rfs+sparse", "--flows", text(&flows), "--rx-cpus", "0"];
    let mut child = replay(&arguments, &socket, Stdio::piped());
    let mut frames: Vec<Vec<u8>> = (0..200).map(|number| frame(number % 50)).collect();
    frames.push(vec![0xff; 60]);
    // An IPv4 frame whose header claims a length of 0.
    frames.push([&[0; 12][..], &[0x08, 0x00], &[0; 46]].concat());
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&pcap(1, &frames)).expect("it reads");
    pipe.flush().expect("it reads");
    let all_delivered = |_: &Child| {
        let delivered = status(&socket, "0").map_or(0, |status| number(&status["delivered"]));
        delivered == frames.len() as u64
    };
    wait_until(&mut child, "deliver all", all_delivered);
    let status = status(&socket, "3").expect("it answers");
    drop(pipe);
    let output = ended(child);
    assert!(output.status.success(), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&status["command"], &status["policy"]), (&"replay".into(), &report["policy"]));
    assert_eq!((adds_up(&status), &status["waiting"]), (202, &0.into()));
    for counter in [
        "bytes",
        "delivered",
        "frames_not_ip",
        "malformed",
        "reordered",
        "moves",
        "deferred",
        "rfs",
        "in_slots",
        "hashed",
        "bound",
        "local",
    ] {
        assert_eq!(status[counter], report[counter], "{counter}");
    }
    assert_eq!((&status["received"], &status["malformed"]), (&report["packets"], &1.into()));
    let (shown, reported) =
        (status["cpus"].as_array().unwrap(), report["cpus"].as_array().unwrap());
    for (cpu, of) in shown.iter().zip(reported) {
        assert_eq!((&cpu["cpu"], &cpu["delivered"]), (&of["cpu"], &of["delivered"]));
        let delays: u64 =
            cpu["delay"]["buckets"].as_array().expect("buckets").iter().map(number).sum();
        assert_eq!(delays, number(&of["delivered"]), "each packet's delay is counted");
    }
    let lists: u64 = reported.iter().map(|cpu| number(&cpu["lists"])).sum();
    assert_eq!((number(&status["batches"]), number(&shown[0]["received"])), (lists, 202));
    let interface = &status["interfaces"][0];
    assert_eq!((&interface["name"], &interface["received"]), (&"-".into(), &202.into()));
    let largest = status["largest_flows"].as_array().expect("flows");
    assert_eq!((largest.len(), &largest[0]["packets"]), (3, &4.into()), "of 50 flows");
    assert!(largest[0]["flow"].as_str().expect("text").contains("10.9.9.9:53"), "{largest:?}");
    assert_eq!(number(&status["flows"]), 50);
    assert!(!socket.exists(), "the socket goes with the replay");
}

#[test]
fn counts_add_up_at_any_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    // The replay may drop packets, since workers take 20 µs for each.
    let arguments = ["--synthetic", "packets=100000,flows=100,rate=100000", "--speed", "recorded"];
    let options = ["--work-ns", "20000", "--max-backlog", "200"];
    let mut child = replay(&[&arguments[..], &options].concat(), &socket, Stdio::null());
    wait_until(&mut child, "answer", |_| status(&socket, "0").is_some());
    let (mut readings, mut before) = (0, 0);
    while child.try_wait().expect("it can be waited for").is_none() {
        // The replay may have ended meanwhile.
        let Some(status) = status(&socket, "0") else { continue };
        let received = adds_up(&status);
        assert!(received >= before, "{received} after {before}");
        let share = status["input_share"].as_f64();
        assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{share:?}");
        (readings, before) = (readings + 1, received);
    }
    let output = ended(child);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(readings > 0, "it was read");
}

#[test]
fn changes_and_questions_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    let mut child = waiting_replay(&socket);
    let flow = "10.0.0.1:1-10.0.0.2:2/udp";
    for (arguments, word) in [
        (&["set", "policy=rps"][..], "--change-at"),
        (&["explain", flow, "--live"], "rxsteer explain FLOW"),
        (&["status", "--reset"], "leave out --reset"),
    ] {
        let output = rxsteer(&[arguments, &["--socket", text(&socket)]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = errors(&output);
        assert!(stderr.contains("rxsteer replay") && stderr.contains(word), "{stderr}");
    }
    let output = rxsteer(&["status", "--flows", "5", "--socket", text(&socket)]);
    assert!(errors(&output).contains("start it with --flows FILE"), "{}", errors(&output));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.starts_with("rxsteer replay, process"), "{shown}");
    for word in ["BPF", "thread", "passed", "redirect", "queue size"] {
        assert!(!shown.contains(word), "'{word}' has no meaning here: {shown}");
    }
    drop(child.stdin.take());
    ended(child);
}

#[test]
fn socket_that_was_asked_for_must_be_possible() {
    let output = rxsteer(&["replay", "--synthetic", "packets=1", "--socket", "/nosuch/socket"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("can't listen at /nosuch/socket"), "{}", errors(&output));
}

/// The id of a user other than root.
const OTHER: u32 = 65_534;

/// Runs a command as a user without privileges, with this runtime directory.
fn as_other(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_rxsteer")).args(arguments).env("XDG_RUNTIME_DIR", runtime);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn users_without_privileges_find_their_own() {
    let test = "status::users_without_privileges_find_their_own";
    let skipped = |why: &str| {
        writeln!(std::io::stderr(), "SKIPPED {test}: {why}").expect("standard error is open");
    };
    let dir = tempfile::tempdir().expect("a directory");
    if chown(dir.path(), Some(OTHER), Some(OTHER)).is_err() {
        return skipped("only root can become another user");
    }
    let can_run = as_other(dir.path(), &["--version"]).output();
    if !can_run.is_ok_and(|output| output.status.success()) {
        return skipped("there is no setpriv, or the program is not for other users");
    }
    let mut child = as_other(dir.path(), &["replay", "-", "--json", "--no-pin", "--cpus", "1"])
        .spawn()
        .expect("it can be started");
    begin_capture(&mut child);
    let found = || as_other(dir.path(), &["status", "--json"]).output().expect("it can be started");
    wait_until(&mut child, "answer", |_| found().status.success());
    let status: Value = serde_json::from_slice(&found().stdout).expect("one object");
    assert_eq!(status["pid"], child.id());
    drop(child.stdin.take());
    assert!(ended(child).status.success());
    // If there is no place for a socket, a replay runs without one, and prints no message.
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("own directory");
    std::fs::set_permissions(dir.path().join("rxsteer"), PermissionsExt::from_mode(0o777))
        .expect("its directory");
    let child =
        as_other(dir.path(), &["replay", "--synthetic", "packets=10", "--json", "--cpus", "1"]);
    let output = { child }.output().expect("it can be started");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", errors(&output));
}

#[test]
fn killed_replay_is_not_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    let child = waiting_replay(&socket);
    send(&child, "-KILL");
    ended(child);
    assert!(status(&socket, "0").is_none());
    // Another replay can use the same path.
    let mut child = waiting_replay(&socket);
    drop(child.stdin.take());
    ended(child);
}
