//! `rxsteer replay --out`: all frames of the input are in the outputs, split by CPU, in order.

use crate::program::pcap::{pcap, written};
use crate::program::running;
use crate::program::{errors, rxsteer};
use crate::reference::{folder, rows};
use rxsteer_user::Block;
use rxsteer_user::packet::{DissectOptions, LinkType, dissect};
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::{Fill, Source};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A frame: link type, time, length on the wire, bytes.
type Frame = (u16, u64, u32, Vec<u8>);

/// All frames of a capture that can be read.
fn frames(path: &Path) -> Vec<Frame> {
    let mut source =
        CaptureSource::open(&[path.to_owned()], CaptureOptions::default()).expect("a capture");
    let mut all = Vec::new();
    loop {
        let mut block = Block::new();
        let fill = source.fill(&mut block);
        all.extend(block.frames().iter().map(|meta| {
            let bytes = block.bytes_of(meta).to_vec();
            (meta.link.number(), meta.timestamp_ns, meta.wire_len, bytes)
        }));
        if fill == Fill::End {
            return all;
        }
    }
}

/// The fields that identify a flow, the same in both directions.
fn flow_of(frame: &Frame) -> String {
    let link = LinkType::from_dlt(frame.0.into()).expect("a known link type");
    let key = dissect(link, &frame.3, DissectOptions::default()).key;
    format!("{:?}", key)
}

fn by_flow(frames: &[Frame]) -> HashMap<String, Vec<&Frame>> {
    let mut flows: HashMap<String, Vec<&Frame>> = HashMap::new();
    for frame in frames {
        flows.entry(flow_of(frame)).or_default().push(frame);
    }
    flows
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Replays a capture into `out`; returns the report, and the frames of each file.
fn split(capture: &Path, out: &str, options: &[&str]) -> (Value, Vec<Vec<Frame>>) {
    let mut arguments = vec!["replay", text(capture), "--json", "--no-pin", "--out", out];
    arguments.extend(options);
    let output = rxsteer(&arguments);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}: {}", capture.display(), errors(&output)));
    let outputs = report["out"].as_array().expect("an array");
    let files =
        outputs.iter().map(|file| frames(Path::new(file["name"].as_str().expect("a name"))));
    let files = files.collect();
    (report, files)
}

#[test]
fn every_capture_comes_out_as_it_went_in() {
    let Some(captures) = folder("every_capture_comes_out_as_it_went_in") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut compared = 0;
    for row in rows(&captures) {
        let capture = captures.join(&row["file"]);
        let input = frames(&capture);
        let flows = by_flow(&input);
        for (ending, policy) in [("pcap", "rps"), ("pcap.zst", "rps"), ("pcap.zst", "rfs+sparse")] {
            let out = format!("pcap:{}/{compared}-%d.{ending}", dir.path().display());
            let (report, files) = split(&capture, &out, &["--cpus", "4", "--policy", policy]);
            let name = format!("{} as {ending} by {policy}", row["file"]);
            let outputs = report["out"].as_array().expect("an array").iter();
            let sum = |field: &str| outputs.clone().filter_map(|o| o[field].as_u64()).sum::<u64>();
            let read: usize = files.iter().map(Vec::len).sum();
            assert_eq!(sum("written"), read as u64, "{name}");
            // A file holds one link type; frames of another one are counted.
            let links = input.iter().map(|frame| frame.0).collect::<std::collections::HashSet<_>>();
            let left_out: u64 =
                outputs.clone().filter_map(|o| o["dropped"]["link_type"].as_u64()).sum();
            assert!(left_out == 0 || links.len() > 1, "{name}: {left_out}");
            assert_eq!(sum("written") + left_out, input.len() as u64, "{name}");
            if left_out > 0 {
                continue;
            }
            let mut all: Vec<&Frame> = files.iter().flatten().collect();
            let mut expected: Vec<&Frame> = input.iter().collect();
            all.sort();
            expected.sort();
            assert!(all == expected, "{name}");
            if policy == "rps" {
                for (flow, frames) in files.iter().flat_map(|file| by_flow(file)) {
                    assert!(frames == flows[&flow], "{name}: order of {flow}");
                }
            }
        }
        compared += 1;
    }
    assert!(compared >= 60, "only {compared} captures were compared");
}

#[test]
fn frames_of_another_link_type_are_counted_and_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let ethernet = written(dir.path(), "a.pcap", &pcap(1, &[&[0; 60]]));
    let raw = written(dir.path(), "b.pcap", &pcap(101, &[&[0x45; 40], &[0x45; 40]]));
    let out = format!("pcap:{}/out.pcap.zst", dir.path().display());
    let output = rxsteer(&["replay", text(&ethernet), text(&raw), "--cpus", "1", "--out", &out]);
    assert_eq!(output.status.code(), Some(1), "a finding");
    assert!(
        errors(&output).contains("so frames of link type raw are not written"),
        "{}",
        errors(&output)
    );
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        report.contains("1 packets (60 bytes) to") && report.contains("2 not written of another"),
        "{report}"
    );
}

#[test]
fn outputs_that_can_not_be_are_refused_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = written(dir.path(), "0.pcap", &pcap(1, &[&[0; 60]]));
    let before = fs::read(&capture).expect("it is there");
    let same = format!("pcap:{}/%d.pcap", dir.path().display());
    for (out, words) in [
        (same.as_str(), "is the input"),
        ("pcpa:x.pcap", "did you mean 'pcap'?"),
        ("pcap:out.pcap", "put %d into the name"),
        ("pcap:/no/such/folder/%d.pcap", "create its folder"),
        ("veth:no-such-%d", "there is no such interface"),
        ("tap:lo%d0000000000000000", "at most 15 characters"),
    ] {
        let output = rxsteer(&["replay", text(&capture), "--cpus", "2", "--out", out]);
        assert_eq!(output.status.code(), Some(2), "{out}: {}", errors(&output));
        assert!(errors(&output).contains(words), "{words} in: {}", errors(&output));
    }
    assert_eq!(fs::read(&capture).expect("it is there"), before);
}

#[test]
fn program_behind_each_pipe_reads_a_whole_stream() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = format!("pipe:{}/%d", dir.path().display());
    let mut writer = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    let options =
        ["replay", "--synthetic", "packets=20000,flows=40", "--cpus", "2", "--json", "--out"];
    let writer = writer.args(options).arg(&out).stdin(Stdio::null());
    let messages = dir.path().join("messages");
    let stderr = fs::File::create(&messages).expect("a file");
    let mut writer = writer.stdout(Stdio::piped()).stderr(stderr).spawn().expect("it starts");
    let pipes: [PathBuf; 2] = ["0", "1"].map(|cpu| dir.path().join(cpu));
    // It does not say so if both pipes have readers before it opens them.
    running::wait_until(&mut writer, "say that it waits for readers", |_| {
        fs::read_to_string(&messages).expect("text").contains("waiting for readers of")
    });
    // Opens the second pipe first: neither waits for the other.
    let readers = [1, 0].map(|cpu| {
        let pipe = pipes[cpu].clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            fs::File::open(pipe).expect("a pipe").read_to_end(&mut bytes).expect("it is read");
            bytes
        })
    });
    let mut read = 0;
    for (index, reader) in readers.into_iter().enumerate() {
        let bytes = reader.join().expect("it ends");
        read += frames(&written(dir.path(), &format!("{index}.pcap"), &bytes)).len();
    }
    let output = running::ended(writer);
    assert_eq!(
        (output.status.code(), read),
        (Some(0), 20000),
        "{:?}",
        fs::read_to_string(&messages)
    );
    assert!(pipes.iter().all(|pipe| !pipe.exists()), "pipes that it made are removed");
}

/// The second packet comes a minute after the first, and until then no CPU has a full block of packets to write.
#[test]
fn file_has_packets_while_the_replay_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bytes = pcap(1, &[&[0; 60], &[1; 60]]);
    let second = bytes.len() - 60 - 16;
    bytes[second..second + 4].copy_from_slice(&61u32.to_le_bytes());
    let capture = written(dir.path(), "minute.pcap", &bytes);
    for ending in ["pcap", "pcap.zst"] {
        let out = format!("pcap:{}/%d.{ending}", dir.path().display());
        let mut replay = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
        let options = ["--speed", "recorded", "--cpus", "1", "--no-pin", "--out", &out];
        replay.args(["replay", text(&capture)]).args(options);
        let replay = replay.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut replay = replay.spawn().expect("it starts");
        let file = dir.path().join(format!("0.{ending}"));
        let has_some = |_: &Child| fs::metadata(&file).is_ok_and(|of| of.len() > 0);
        running::wait_until(&mut replay, "write the first packet", has_some);
        assert_eq!(frames(&file).len(), 1);
        running::send(&replay, "-INT");
        assert_eq!(running::ended(replay).status.code(), Some(130));
        assert_eq!(frames(&file).len(), 1);
    }
}

#[test]
fn wait_for_readers_ends_with_an_interrupt() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    let mut writer = Command::new(env!("CARGO_BIN_EXE_rxsteer"));
    writer.args([
        "replay",
        "--synthetic",
        "",
        "--cpus",
        "1",
        "--out",
        &format!("pipe:{}", pipe.display()),
    ]);
    let writer = writer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut writer = writer.spawn().expect("it starts");
    running::wait_until(&mut writer, "make the pipe", |_| pipe.exists());
    running::send(&writer, "-INT");
    let output = running::ended(writer);
    assert_eq!(output.status.code(), Some(130));
    assert!(errors(&output).contains("before any program had opened"), "{}", errors(&output));
    assert!(!pipe.exists());
}
