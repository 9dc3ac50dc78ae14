//! Output files and messages: no input is replaced, no text controls the terminal, and a lack of memory is reported.

use crate::program::pcap::{pcap, written};
use crate::program::{errors, rxsteer};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn assert_refused(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", errors(output));
    assert!(errors(output).contains(words), "{words} in: {}", errors(output));
    assert!(output.stdout.is_empty());
}

/// A UDP port of this host on which no process listens, so the network refuses packets to it.
#[test]
fn records_that_are_not_sent_are_a_finding() {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let collector = port.expect("a port").to_string();
    let load = ["replay", "--synthetic", "packets=2000,flows=500"];
    let output = rxsteer(&[&load[..], &["--ipfix", &collector]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("did not reach"), "{}", errors(&output));
    let seeds = rxsteer(&[&load[..], &["--ipfix", &collector, "--seeds", "2"]].concat());
    assert_refused(&seeds, "cannot be used with");
}

/// Events are appended to their file, so they would damage a file with other content.
#[test]
fn events_get_a_file_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = pcap(1, &[&[0; 60]]);
    let capture = written(dir.path(), "0.pcap", &bytes);
    let other = written(dir.path(), "other.pcap", &bytes);
    let change = ["--change-at", "1p:policy=none"];
    let replay = |more: &[&str]| rxsteer(&[&["replay", text(&other)], &change[..], more].concat());
    assert_refused(&replay(&["--events", text(&other)]), "is the input");
    let flows = dir.path().join("x.csv");
    assert_refused(&replay(&["--events", text(&flows), "--flows", text(&flows)]), "another output");
    let out = format!("pcap:{}/%d.pcap", dir.path().display());
    let refused = replay(&["--events", text(&capture), "--out", &out, "--cpus", "0-0"]);
    assert_refused(&refused, "another output");
    let pipe = dir.path().join("pipe.pcap");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    assert_refused(&replay(&["--events", text(&pipe)]), "no program reads the pipe");
    let out = format!("pcap:{}", text(&pipe));
    assert_refused(&replay(&["--out", &out, "--cpus", "0-0"]), "use pipe:");
    assert_eq!(fs::read(&other).expect("it is there"), bytes);
}

#[test]
fn output_that_is_an_input_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = pcap(1, &[&[0; 60]]);
    let capture = written(dir.path(), "capture.csv", &bytes);
    let [soft, hard] = ["soft.csv", "hard.csv"].map(|name| dir.path().join(name));
    symlink(&capture, &soft).expect("a link");
    fs::hard_link(&capture, &hard).expect("a link");
    for output in [&capture, &soft, &hard] {
        let output = rxsteer(&["replay", text(&capture), "--flows", text(output)]);
        assert_refused(&output, "is the input");
    }
    let mut from_stdin = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    from_stdin.args(["replay", "-", "--flows", text(&capture)]);
    let output = from_stdin.stdin(File::open(&capture).expect("it is there")).output();
    assert_refused(&output.expect("it can be started"), "is the input -");
    if cfg!(feature = "sim") {
        let csv = rxsteer(&["sim", "--from", text(&capture), "--csv", text(&capture)]);
        assert_refused(&csv, "--csv");
        let short = ["sim", "router-one-queue", "--seconds", "0.001", "--csv"];
        let pipe = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let [to_pipe, to_file] = ["to-pipe", "to-file"].map(|name| dir.path().join(name));
        symlink(&pipe, &to_pipe).expect("a link");
        for no_file in [&pipe, &to_pipe] {
            assert_refused(
                &rxsteer(&[&short[..], &[text(no_file)]].concat()),
                "not a regular file",
            );
        }
        let target = written(dir.path(), "target.csv", b"");
        symlink(&target, &to_file).expect("a link");
        let output = rxsteer(&[&short[..], &[text(&to_file)]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(to_file.is_symlink() && fs::metadata(&target).expect("it is there").len() > 0);
        let scenario = written(dir.path(), "index.html", b"title = 'x'");
        let report = rxsteer(&["sim", text(&scenario), "--report", text(dir.path())]);
        assert_refused(&report, "--report");
    }
    assert_eq!(fs::read(&capture).expect("it is there"), bytes);
    // A file that is no input is replaced, as always.
    let other = written(dir.path(), "other.csv", b"old");
    let output = rxsteer(&["replay", text(&capture), "--flows", text(&other), "--cpus", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(fs::read_to_string(&other).expect("it is there").starts_with("src,dst"));
}

#[test]
#[cfg(feature = "parquet")]
fn data_set_named_like_a_csv_file_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.csv");
    let output = rxsteer(&[
        "replay",
        "--synthetic",
        "packets=10",
        "--flows",
        text(&path),
        "--partition-by",
        "hash-prefix",
    ]);
    assert_refused(&output, "omit --partition-by");
    assert!(!path.exists());
}

/// Another user may have chosen the names of these files.
#[test]
fn control_characters_in_names_are_escaped() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cut = pcap(1, &[&[0; 60], &[0; 60]]);
    cut.truncate(cut.len() - 10);
    let odd = written(dir.path(), "a\x1b[31m\nb\r.pcap", &cut);
    let records = dir.path().join("r\x1b]0;x\x07\n.csv");
    let nothing = dir.path().join("c\x1b[2J\nd.pcap");
    let config = dir.path().join("e\x1b[2J\nf.toml");
    for arguments in [
        &["replay", text(&odd), "--cpus", "1", "--flows", text(&records)][..],
        &["replay", text(&odd), text(&odd), "--cpus", "1"],
        &["replay", text(&nothing)],
        &["replay", text(&odd), "--config", text(&config)],
        &["replay", text(&odd), "--flows", text(&odd)],
        &["flows", text(&odd)],
        &["explain", "--frame", "1", text(&nothing)],
    ] {
        let output = rxsteer(arguments);
        let stderr = [&output.stdout[..], &output.stderr].concat();
        let stderr = String::from_utf8(stderr).expect("UTF-8");
        assert!(!stderr.is_empty(), "{arguments:?}");
        let odd = stderr.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(odd, None, "{arguments:?}: {stderr:?}");
        assert!(stderr.contains(r"\u001b"), "{arguments:?}: {stderr}");
        if arguments.len() > 2 && arguments[1] == text(&nothing) {
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
    for arguments in [&["replay", "x", "--policy", "\x1b[31mrsp"][..], &["\x1b[31m\x07"]] {
        let stderr = errors(&rxsteer(arguments));
        let odd = stderr.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(odd, None, "{arguments:?}: {stderr:?}");
    }
    let output = rxsteer(&["replay", text(&odd), "--cpus", "1", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["errors"][0]["file"], text(&odd), "JSON has the name as it is");
}

/// Runs `rxsteer` with this many kilobytes of address space.
fn limited(kilobytes: u32, arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", &format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_rxsteer"))
        .args(arguments)
        .output()
        .expect("a shell can be started")
}

#[test]
fn memory_that_can_not_be_had_is_reported() {
    const HALF_GIB: u32 = 1 << 19;
    let few = ["replay", "--synthetic", "packets=1000", "--cpus", "2", "--no-pin"];
    for more in [
        &["--cpus", "0-63", "--max-backlog", "1048576"][..],
        &[
            "--policy",
            "rfs",
            "--rx-threads",
            "2",
            "--sock-flow-entries",
            "67108864",
            "--flow-cnt",
            "16777216",
            "--rx-queues",
            "4",
            "--max-backlog",
            "1048576",
        ],
        &[
            "--change-at",
            "5p:policy=rfs,flow-cnt=16777216,sock-flow-entries=67108864",
            "--change-at",
            "9p:sock-flow-entries=67108863",
            "--change-at",
            "19p:sock-flow-entries=67108862,flow-cnt=16777215",
            "--rx-queues",
            "4",
        ],
    ] {
        let few = if more.contains(&"--cpus") { &few[..3] } else { &few[..] };
        let output = limited(HALF_GIB, &[few, more].concat());
        assert_refused(&output, "of memory, which can't be allocated; lower max-backlog");
    }
    let output = limited(HALF_GIB, &few);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}

/// Memory for flows is allocated when the flows arrive.
#[test]
fn memory_that_runs_out_ends_the_run_with_a_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let records = dir.path().join("records.csv");
    let arguments = [
        "replay",
        "--synthetic",
        "packets=5000000,flows=4000000",
        "--cpus",
        "1",
        "--no-pin",
        "--max-flows",
        "1000",
        "--flows",
        text(&records),
    ];
    let output = limited(400_000, &arguments);
    assert_refused(&output, "memory ran out after ");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing is left");
}

#[test]
fn report_names_what_was_cut_and_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    // The frame has IPv4 and TCP, and the capture ends after the IP header.
    let mut cut = [0; 34];
    cut[12..14].copy_from_slice(&[8, 0]);
    (cut[14], cut[17], cut[22], cut[23]) = (0x45, 60, 64, 6);
    let capture = written(dir.path(), "cut.pcap", &pcap(1, &[&cut, &cut]));
    let output = rxsteer(&["replay", text(&capture), "--cpus", "1"]);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("cut short    2 without their ports"), "{report}");
    assert!(!report.contains("left out"), "{report}");
    let capture = written(dir.path(), "odd.pcap", &pcap(281, &[&[0; 60], &[0; 60], &[0; 60]]));
    let output = rxsteer(&["replay", text(&capture), "--cpus", "1"]);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("left out     3 records of unknown link types"), "{report}");
    assert!(!report.contains("cut short"), "{report}");
}

/// A pcapng file whose interface counts nanoseconds, with a frame at each of these times.
fn pcapng(times: &[u64], frame: &[u8]) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    // Ethernet; if_tsresol 9.
    file.extend(words(&[1, 32, 1, 0, 0x0001_0009, 9, 0, 32]));
    for time in times {
        let length = frame.len() as u32;
        let block = 32 + length.next_multiple_of(4);
        file.extend(words(&[6, block, 0, (time >> 32) as u32, *time as u32, length, length]));
        file.extend(frame);
        file.resize(file.len().next_multiple_of(4), 0);
        file.extend(words(&[block]));
    }
    file
}

#[test]
fn times_beyond_2262_are_reported_and_not_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[17], frame[22], frame[23]) = (0x45, 46, 64, 17);
    let latest = i64::MAX as u64 - 1;
    let times = [7, u64::MAX, 1 << 63, i64::MAX as u64, latest];
    let capture = written(dir.path(), "late.pcapng", &pcapng(&times, &frame));
    for name in ["flows.csv", "flows.jsonl"] {
        let records = dir.path().join(name);
        let output = rxsteer(&["replay", text(&capture), "--cpus", "1", "--flows", text(&records)]);
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains("late.pcapng: 3 packet(s)"), "{}", errors(&output));
        assert!(errors(&output).contains("after 2262-04-11"), "{}", errors(&output));
        let written = fs::read_to_string(&records).expect("records");
        assert!(written.contains(&latest.to_string()), "{written}");
        for time in [u64::MAX, 1 << 63, i64::MAX as u64] {
            assert!(!written.contains(&time.to_string()), "{written}");
        }
    }
    let output = rxsteer(&["replay", "--synthetic", "packets=10000000,rate=0.001"]);
    assert_refused(&output, "longer than 292 years");
}
