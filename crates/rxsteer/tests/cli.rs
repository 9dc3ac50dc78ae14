//! The program as it is used: output, exit status, messages.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn rxsteer(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("rxsteer can be started")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it exits by itself")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(arguments: &[&str]) -> Value {
    let output = rxsteer(&[arguments, &["--json"]].concat());
    assert_eq!(status(&output), 0, "{}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// A pcap file (little endian, microseconds) with these frames.
fn pcap(link: u32, frames: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for frame in frames {
        for word in [1, 0, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        file.extend_from_slice(frame);
    }
    file
}

fn written(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).expect("a file can be written");
    path
}

const SYNTHETIC: [&str; 3] = ["replay", "--synthetic", "packets=20000,flows=500,ip=mixed"];

#[test]
fn the_report_adds_up() {
    let report = json(&[&SYNTHETIC[..], &["--cpus", "4"]].concat());
    assert_eq!(number(&report["packets"]), 20_000);
    assert_eq!(number(&report["delivered"]), 20_000);
    assert_eq!(number(&report["flows_bidirectional"]), 500);
    assert_eq!(number(&report["flows_unidirectional"]), 500);
    for zero in ["reordered", "moves", "frames_not_ip", "malformed", "transport_truncated"] {
        assert_eq!(number(&report[zero]), 0, "{zero}");
    }
    for (reason, count) in report["dropped"].as_object().expect("an object by reason") {
        assert_eq!(number(count), 0, "{reason}");
    }
    let per_cpu = report["per_cpu"].as_array().expect("an array");
    assert_eq!(per_cpu.len(), 4);
    for field in ["packets", "bytes", "flows"] {
        let sum: u64 = per_cpu.iter().map(|cpu| number(&cpu[field])).sum();
        let whole = match field {
            "flows" => &report["flows_bidirectional"],
            _ => &report[field],
        };
        assert_eq!(sum, number(whole), "{field}");
    }
    for field in ["cpu", "dropped", "kicks", "lists"] {
        assert!(per_cpu.iter().all(|cpu| cpu[field].is_u64()), "{field}");
    }
    assert_eq!(report["errors"], Value::Array(vec![]));
    assert!(number(&report["elapsed_ns"]) > 0);
}

#[test]
fn the_same_seed_gives_the_same_spread() {
    let spread = |seed: &str| {
        let report = json(&[&SYNTHETIC[..], &["--cpus", "8", "--hash-seed", seed]].concat());
        let per_cpu = report["per_cpu"].as_array().expect("an array");
        per_cpu.iter().map(|cpu| number(&cpu["packets"])).collect::<Vec<_>>()
    };
    assert_eq!(spread("2a"), spread("2a"));
    assert_ne!(spread("2a"), spread("2b"));
}

#[test]
fn a_table_is_printed_for_people() {
    let output = rxsteer(&[&SYNTHETIC[..], &["--cpus", "2"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(status(&output), 0, "{}", errors(&output));
    for word in ["CPU", "imbalance", "0 reordered", "delivered", "mean list"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn the_demo_runs() {
    let output = rxsteer(&["demo"]);
    assert_eq!(status(&output), 0, "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("rps"));
    let demo = json(&["demo"]);
    assert_eq!(demo["runs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn policies_do_what_they_say() {
    let packets = |arguments: &[&str]| {
        let report = json(&[&SYNTHETIC[..], arguments].concat());
        let per_cpu = report["per_cpu"].as_array().expect("an array").clone();
        per_cpu.iter().map(|cpu| number(&cpu["packets"])).collect::<Vec<_>>()
    };
    assert_eq!(packets(&["--cpus", "2", "--policy", "none"]), [20_000, 0]);
    let bound = packets(&["--cpus", "3", "--rx-queues", "2", "--policy", "bound:0=1,1=2"]);
    assert!(bound[0] == 0 && bound[1] > 5000 && bound[2] > 5000, "{bound:?}");
    let mapped = packets(&["--cpus", "0-0", "--rps-map", "0=1"]);
    assert_eq!(mapped, [0, 20_000]);
}

#[test]
fn overload_is_counted() {
    // A packet takes a millisecond, so 20 000 of them don't get through while they are received.
    let overload =
        ["--cpus", "2", "--max-backlog", "16", "--on-full", "drop", "--work-ns", "1000000"];
    let report = json(&[&SYNTHETIC[..], &overload].concat());
    let dropped = number(&report["dropped"]["backlog_full"]);
    assert!(dropped > 0);
    assert_eq!(number(&report["delivered"]) + dropped, 20_000);
    assert_eq!(number(&report["reordered"]), 0);
}

#[test]
fn damage_is_named_and_what_precedes_it_is_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = pcap(1, &[&[0; 60], &[0; 60]]);
    file.truncate(file.len() - 10);
    let path = written(dir.path(), "cut.pcap", &file);
    let output = rxsteer(&["replay", path.to_str().expect("UTF-8"), "--cpus", "2", "--json"]);
    assert_eq!(status(&output), 1);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(number(&report["packets"]), 1);
    assert_eq!(number(&report["frames_not_ip"]), 1);
    let error = &report["errors"][0];
    assert_eq!(error["file"], path.to_str().expect("UTF-8"));
    assert_eq!(number(&error["offset"]), 24 + 16 + 60);
    assert!(errors(&output).contains("cut.pcap"));
}

#[test]
fn what_is_no_capture_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = written(dir.path(), "notes.txt", b"these are no packets");
    let empty = written(dir.path(), "empty.pcap", b"");
    let missing = dir.path().join("missing.pcap");
    for path in [&text, &empty, &missing, &dir.path().to_path_buf()] {
        let output = rxsteer(&["replay", path.to_str().expect("UTF-8")]);
        assert_eq!(status(&output), 2, "{}", path.display());
        assert_eq!(errors(&output).lines().count(), 1, "{}", errors(&output));
        assert!(errors(&output).contains(path.to_str().expect("UTF-8")));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_unknown_link_type_is_refused_by_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = written(dir.path(), "odd.pcap", &pcap(281, &[&[0; 60]]));
    let output = rxsteer(&["replay", path.to_str().expect("UTF-8"), "--cpus", "1"]);
    assert_eq!(status(&output), 1);
    assert!(errors(&output).contains("281"), "{}", errors(&output));
}

#[test]
fn wrong_arguments_are_refused_before_anything_starts() {
    for (arguments, expected) in [
        (&["--policy", "rsp"][..], "did you mean 'rps'?"),
        (&["--policy", "bound"], "at least one binding"),
        (&["--policy", "bound:7=0"], "RX queue 7"),
        (&["--cpus", ""], "empty"),
        (&["--cpus", "0"], "0-0"),
        (&["--cpus", "3-1"], "backwards"),
        (&["--synthetic", "flow=3"], "flows"),
        (&["--on-full", "dorp"], "drop"),
        (&["--rps-map", "0=0", "--policy", "none"], "use none"),
        (&["--speed", "fast"], "is no speed"),
        (&["--max-backlog", "0"], "max-backlog"),
        (&["--batch", "1000"], "batch"),
        (&["--hash", "crc"], "'symmetric', 'toeplitz'"),
        (&["--rx-queues", "file"], "give --rx-queues a count"),
        (&["--hash", "toeplitz", "--hash-seed", "1"], "toeplitz:HEXKEY"),
        (&["--cpus", "-1"], "neither a number nor a range"),
        (&["--speed", "10"], "did you mean '10x'"),
    ] {
        let synthetic: &[&str] =
            if arguments[0] == "--synthetic" { &[] } else { &["--synthetic", ""] };
        let output = rxsteer(&[&["replay"], synthetic, arguments].concat());
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn a_capture_in_the_place_of_the_command_is_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = written(dir.path(), "some.pcap", &pcap(1, &[]));
    let output = rxsteer(&[path.to_str().expect("UTF-8")]);
    assert_eq!(status(&output), 2);
    assert!(errors(&output).contains("rxsteer replay"), "{}", errors(&output));
}

/// Whether a process has a handler for SIGINT (the second bit of its mask of caught signals).
fn catches_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|m| m & 2 != 0)
}

/// An interrupt during a paced replay shows what was due until then: the first frame of two that lie
/// an hour apart.
#[test]
fn an_interrupt_shows_what_was_received() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = pcap(1, &[&[0; 60], &[0; 60]]);
    file[24 + 16 + 60..][..4].copy_from_slice(&3601u32.to_le_bytes());
    let path = written(dir.path(), "slow.pcap", &file);
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "--speed", "recorded", "--cpus", "1", "--json"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    while !catches_interrupts(child.id()) {
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it runs an hour");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let output = child.wait_with_output().expect("it has ended");
    assert_eq!(status(&output), 130);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["interrupted"], true);
    assert_eq!((number(&report["packets"]), number(&report["delivered"])), (1, 1));
}

#[test]
fn a_closed_output_ends_it_quietly() {
    for arguments in [&SYNTHETIC[..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
            .args(arguments)
            .args(if arguments[0] == "replay" { &["--cpus", "1", "--no-pin"][..] } else { &[] })
            .stdout(writer)
            .output()
            .expect("rxsteer can be started");
        assert_eq!((status(&output), errors(&output)), (0, String::new()));
    }
}

/// A pipe that gives nothing more is let go of on an interrupt, with what came through it.
#[test]
fn an_interrupt_ends_the_wait_for_a_quiet_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "-", "--cpus", "1", "--json", "--no-pin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&pcap(1, &[&[0; 60]])).expect("it reads");
    while !catches_interrupts(child.id()) {
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it waits for more");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    drop(pipe);
    assert_eq!(status(&output), 130, "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(number(&report["packets"]) <= 1);
    assert_eq!(report["errors"], Value::Array(vec![]), "a pipe cut off is not damaged");
}

#[test]
fn every_command_has_an_example_in_its_help() {
    for command in [&["--help"][..], &["replay", "--help"], &["demo", "--help"], &["man", "--help"]]
    {
        let output = rxsteer(command);
        let help = String::from_utf8_lossy(&output.stdout);
        assert_eq!(status(&output), 0);
        assert!(help.contains("Example"), "{command:?}");
    }
}

#[test]
fn man_pages_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("man");
    assert_eq!(status(&rxsteer(&["man", target.to_str().expect("UTF-8")])), 0);
    for page in ["rxsteer.1", "rxsteer-replay.1"] {
        assert!(fs::read_to_string(target.join(page)).expect("a page").contains(".TH"), "{page}");
    }
}
