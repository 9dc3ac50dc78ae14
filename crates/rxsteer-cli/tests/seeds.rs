//! `rxsteer replay --seeds`: the range over hash secrets.

use crate::program::pcap::{pcap, written};
use crate::program::running::{INT, ended, send, wait_until, waits_for};
use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const TRAFFIC: [&str; 4] = ["--synthetic", "packets=5000,flows=50,share=zipf:1.1", "--cpus", "4"];

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", errors(output)))
}

fn replay(arguments: &[&str]) -> Value {
    let output = rxsteer(&[&["replay", "--json", "--no-pin"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    json(&output)
}

fn figures(runs: &Value, name: &str) -> Vec<f64> {
    let runs = runs.as_array().expect("runs").iter();
    runs.map(|run| run[name].as_f64().unwrap_or_else(|| panic!("{name} in {run}"))).collect()
}

/// A capture of this many UDP flows with one packet each.
fn capture(flows: u8) -> Vec<u8> {
    let frame = |port: u8| {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        (frame[14], frame[17], frame[22], frame[23]) = (0x45, 46, 64, 17);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        (frame[35], frame[37], frame[39]) = (port, 9, 26);
        frame
    };
    let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
    pcap(1, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[test]
fn seeds_give_what_each_secret_gives_alone() {
    let all = replay(&[&TRAFFIC[..], &["--seeds", "7", "--hash-seed", "2a"]].concat());
    assert_eq!((&all["seeds"], &all["packets"]), (&7.into(), &5000.into()));
    let runs = all["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 7);
    for run in runs {
        let secret = run["hash_seed"].as_str().expect("hex digits");
        let alone = replay(&[&TRAFFIC[..], &["--hash-seed", secret]].concat());
        assert_eq!(
            (&alone["hash_seed"], &alone["imbalance"]),
            (&run["hash_seed"], &run["imbalance"])
        );
        let packets = alone["cpus"].as_array().expect("CPUs").iter();
        let busiest = packets.filter_map(|cpu| cpu["delivered"].as_f64()).fold(0.0, f64::max);
        assert_eq!(run["busiest_share"].as_f64(), Some(busiest / 5000.0));
        assert_eq!((&run["dropped"], &run["moves"]), (&0.into(), &0.into()));
    }
    for name in ["imbalance", "busiest_share"] {
        let mut values = figures(&all["runs"], name);
        values.sort_by(f64::total_cmp);
        assert!(values[0] < values[6], "secrets differ: {values:?}");
        let range = &all["summary"][name];
        let range = ["minimum", "median", "maximum"].map(|name| range[name].as_f64());
        assert_eq!(range, [0, 3, 6].map(|at| Some(values[at])), "{name}");
    }
    assert!(all["summary"]["at_home_share"].is_null(), "there are no applications");
}

#[test]
fn input_is_read_once_or_for_each_secret_with_the_same_result() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = written(dir.path(), "some.pcap", &capture(40));
    let path = path.to_str().expect("UTF-8");
    let line = [path, "--cpus", "4", "--seeds", "3", "--hash-seed", "7"];
    // With recorded speed, the input is read again for each secret; all frames of the capture have the same time.
    let paced = ["--speed", "recorded", "--on-full", "wait"];
    let [in_memory, again] = [&[][..], &paced].map(|more| replay(&[&line, more].concat()));
    assert_eq!(in_memory["packets"], 40);
    assert_eq!((&in_memory["runs"], &in_memory["summary"]), (&again["runs"], &again["summary"]));
    let threads = ["--rx-queues", "4", "--rx-threads", "2"];
    assert_eq!(replay(&[&line, &threads[..]].concat())["packets"], 40);
    let applications = replay(&[&line, &["--app-cpus", "4"][..]].concat());
    assert!(applications["summary"]["at_home_share"]["maximum"].is_f64(), "{applications}");
}

/// Runs the program with a capture on standard input.
fn from_stdin(bytes: &[u8], arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "-", "--cpus", "4", "--no-pin", "--seeds", "3", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    let mut pipe = child.stdin.take().expect("a pipe");
    // A program that refuses the input does not read it.
    let _ = pipe.write_all(bytes);
    drop(pipe);
    ended(child)
}

#[test]
fn pipe_is_kept_in_memory_or_refused() {
    let output = from_stdin(&capture(9), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(json(&output)["packets"], 9);
    assert_eq!(json(&output)["runs"].as_array().map(Vec::len), Some(3));
    let output = from_stdin(&capture(9), &["--speed", "recorded"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("standard input can be read only once"),
        "{}",
        errors(&output)
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn damage_is_reported_once_whatever_the_number_of_replays() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = capture(9);
    file.truncate(file.len() - 10);
    let path = written(dir.path(), "cut.pcap", &file);
    let skipped = written(dir.path(), "odd.pcap", &pcap(281, &[&[0; 60], &[0; 60]]));
    for speed in ["max", "1000x"] {
        let output = rxsteer(&[
            "replay",
            "--json",
            "--no-pin",
            "--cpus",
            "2",
            "--seeds",
            "3",
            "--speed",
            speed,
            path.to_str().expect("UTF-8"),
            skipped.to_str().expect("UTF-8"),
        ]);
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        let report = json(&output);
        assert_eq!((&report["packets"], &report["records_skipped"]), (&8.into(), &2.into()));
        assert_eq!(report["errors"].as_array().map(Vec::len), Some(2), "{speed}: {report}");
    }
}

#[test]
fn seeds_without_a_use_are_refused_or_reported() {
    for (arguments, part) in [
        (&["--seeds", "1"][..], "from 2 to 1000"),
        (&["--seeds", "1001"], "from 2 to 1000"),
        (&["--seeds", "3", "--flows", "f.csv"], "cannot be used with"),
        (&["--seeds", "3", "--hash", "toeplitz"], "--hash toeplitz is fixed"),
        (&["--seeds", "3", "--key", "src"], "--flows FILE"),
    ] {
        let output = rxsteer(&[&["replay"], &TRAFFIC[..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(part), "{arguments:?}: {}", errors(&output));
    }
    for (policy, is_said) in
        [("none", true), ("bound:0=1", true), ("rps", false), ("sparse", false)]
    {
        let line = ["replay", "--no-pin", "--seeds", "2", "--policy", policy];
        let output = rxsteer(&[&line[..], &TRAFFIC].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert_eq!(errors(&output).contains("--seeds changes nothing here"), is_said, "{policy}");
    }
}

#[test]
fn single_replay_of_a_random_secret_is_called_a_draw() {
    for (arguments, is_a_draw) in [
        (&[][..], true),
        (&["--hash-seed", "2a"], false),
        (&["--hash", "toeplitz"], false),
        (&["--policy", "none"], false),
    ] {
        let output = rxsteer(&[&["replay", "--no-pin"], &TRAFFIC[..], arguments].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            text.contains("one draw of a random secret"),
            is_a_draw,
            "{arguments:?}: {text}"
        );
        assert!(!text.contains('█'), "bars are for terminals: {text}");
    }
}

#[test]
fn interrupt_shows_the_replays_that_are_complete() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "--json", "--no-pin", "--seeds", "1000", "--work-ns", "100000"])
        .args(TRAFFIC)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    wait_until(&mut child, "wait for signals", |it| waits_for(it, INT));
    send(&child, "-INT");
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
    if output.stdout.is_empty() {
        assert!(errors(&output).contains("before the first replay was complete"));
        return;
    }
    let report = json(&output);
    assert_eq!(report["interrupted"], true);
    assert!(report["runs"].as_array().is_some_and(|runs| (1..1000).contains(&runs.len())));
}
