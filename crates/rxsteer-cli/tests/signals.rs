//! Signals that end a run, and signals that were ignored when it began.

use crate::program::pcap::{pcap, written};
use crate::program::running::{INT, ended, mask, send, wait_until, waits_for};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const HUP: u64 = 1 << 0;
const TERM: u64 = 1 << 14;

fn report(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// A capture of two frames that are an hour apart.
fn slow_capture(dir: &Path) -> std::path::PathBuf {
    let mut file = pcap(1, &[&[0; 60], &[0; 60]]);
    file[24 + 16 + 60..][..4].copy_from_slice(&3601u32.to_le_bytes());
    written(dir, "slow.pcap", &file)
}

/// A replay at recorded speed, which a shell starts after `before`.
fn replay(capture: &Path, before: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{before}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_rxsteer")])
        .args(["replay", "--speed", "recorded", "--cpus", "1", "--json"])
        .arg(capture)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell can be started")
}

/// The report has the frames that were due until the signal: the first one.
#[test]
fn interrupted_replay_shows_what_was_received() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut child = replay(&slow_capture(dir.path()), ":");
        wait_until(&mut child, "wait for signals", |it| waits_for(it, INT | TERM | HUP));
        send(&child, signal);
        let report = report(&ended(child));
        assert_eq!(report["interrupted"], true);
        assert_eq!((&report["packets"], &report["delivered"]), (&1.into(), &1.into()), "{signal}");
    }
}

/// On an interrupt, the replay stops waiting for a pipe without data, and reports what it received through the pipe.
#[test]
fn interrupt_ends_the_wait_for_a_quiet_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "-", "--cpus", "1", "--json", "--no-pin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&pcap(1, &[&[0; 60]])).expect("it reads");
    // The beginning of another frame.
    pipe.write_all(&[0; 5]).expect("it reads");
    wait_until(&mut child, "wait for signals", |it| waits_for(it, INT));
    send(&child, "-INT");
    let report = report(&ended(child));
    drop(pipe);
    assert!(report["packets"].as_u64() <= Some(1));
    assert_eq!(report["errors"], Value::Array(vec![]), "a pipe cut off is not damaged");
}

/// The signal is ignored, as under `nohup`, and in the background of a shell without job control.
#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = replay(&slow_capture(dir.path()), "trap '' HUP INT");
    wait_until(&mut child, "wait for signals", |it| waits_for(it, TERM));
    for signal in ["-HUP", "-INT"] {
        send(&child, signal);
    }
    let pid = child.id();
    assert_eq!(mask(pid, "SigIgn") & (HUP | INT), HUP | INT);
    assert_eq!((mask(pid, "SigBlk") | mask(pid, "SigCgt")) & (HUP | INT), 0);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(child.try_wait().expect("it can be waited for"), None, "neither ends it");
    send(&child, "-TERM");
    assert_eq!(report(&ended(child))["interrupted"], true);
}
