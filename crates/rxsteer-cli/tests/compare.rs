//! `rxsteer compare`: the policies side by side, and the advice.

use crate::program::pcap::{pcap, written};
use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::path::Path;

const FIXED: [&str; 6] = ["--cpus", "4", "--hash-seed", "2a", "--seeds", "5"];

fn compare(capture: &Path, more: &[&str]) -> Value {
    let capture = capture.to_str().expect("a name");
    let output = rxsteer(&[&["compare", capture, "--json"], &FIXED[..], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Ethernet, IPv4 and UDP around `payload`.
fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[22], frame[23]) = (0x45, 64, 17);
    let length = 28 + payload.len() as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&ports.0.to_be_bytes());
    frame[36..38].copy_from_slice(&ports.1.to_be_bytes());
    frame[38..40].copy_from_slice(&(length - 20).to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A capture with `rounds` frames of each of these flows.
fn capture(folder: &Path, frames: &[Vec<u8>], rounds: usize) -> std::path::PathBuf {
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    written(folder, "flows.pcap", &pcap(1, &frames.repeat(rounds)))
}

fn flows(count: u16) -> Vec<Vec<u8>> {
    (0..count).map(|number| udp((20_000 + number, 53), &[0; 8])).collect()
}

fn figure(compared: &Value, policy: &str, name: &str) -> [f64; 3] {
    let policies = compared["policies"].as_array().expect("policies");
    let row = policies.iter().find(|row| row["policy"] == policy).expect("the policy");
    ["minimum", "median", "maximum"].map(|end| row[name][end].as_f64().expect("a figure"))
}

fn commands(compared: &Value) -> Vec<&str> {
    compared["commands"].as_array().expect("commands").iter().filter_map(Value::as_str).collect()
}

/// If the receiver ran ahead of the workers, moves would be deferred, by a number of packets that differs from run to
/// run.
#[test]
fn flows_move_as_where_cpus_keep_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let capture = capture(folder.path(), &flows(300), 10);
    let apps = ["--app-cpus", "4-5"];
    let first = compare(&capture, &apps);
    let [least, ..] = figure(&first, "rfs", "at_home_share");
    assert!(least > 0.85, "all rounds but the first reach the application's CPU: {least}");
    for _ in 0..3 {
        let again = compare(&capture, &apps);
        for name in ["moves", "deferred", "imbalance"] {
            let of = |compared| figure(compared, "sparse", name);
            assert_eq!(of(&again), of(&first), "{name}");
        }
    }
}

#[test]
fn policies_stand_side_by_side_with_the_null() {
    let folder = tempfile::tempdir().expect("a folder");
    let compared = compare(&capture(folder.path(), &flows(300), 4), &[]);
    let policies: Vec<&str> = compared["policies"]
        .as_array()
        .expect("policies")
        .iter()
        .filter_map(|row| row["policy"].as_str())
        .collect();
    assert_eq!(policies, ["none", "rps", "sparse", "rfs", "rfs+sparse", "rps+balance"]);
    assert_eq!(figure(&compared, "none", "imbalance"), [4.0; 3]);
    assert_eq!(figure(&compared, "none", "fits"), [1.0; 3]);
    for policy in policies {
        let [min, median, max] = figure(&compared, policy, "imbalance");
        assert!(1.0 <= min && min <= median && median <= max && max <= 4.0, "{policy}");
    }
    for row in compared["policies"].as_array().expect("policies") {
        assert_eq!((&row["reordered"], &row["packets"]), (&0.into(), &compared["packets"]));
        let shares = row["cpus"].as_array().expect("shares").iter();
        let sum: f64 = shares.filter_map(|cpu| cpu["share"].as_f64()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{row}");
    }
    assert_eq!((&compared["rule"], &compared["policy"]), (&"steer".into(), &"rps".into()));
    let advice = compared["advice"].as_str().expect("text");
    assert!(advice.starts_with("Use rps") && advice.contains("1.0 x without steering"), "{advice}");
    assert!(commands(&compared)[0].contains("host apply"), "{:?}", commands(&compared));
}

#[test]
fn figures_are_those_of_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let capture = capture(folder.path(), &flows(40), 5);
    let compared = compare(&capture, &[]);
    let capture = capture.to_str().expect("a name");
    let replay = ["replay", capture, "--json", "--no-pin", "--policy", "rps"];
    let output = rxsteer(&[&replay[..], &FIXED].concat());
    let replayed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let range = ["minimum", "median", "maximum"]
        .map(|end| replayed["summary"]["imbalance"][end].as_f64().expect("a figure"));
    assert_eq!(figure(&compared, "rps", "imbalance"), range);
    let text = rxsteer(&["replay", capture, "--no-pin", "--cpus", "0-3"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let pointer = format!("rxsteer compare {capture} --cpus 0-3\n");
    assert!(text.ends_with(&pointer), "{text}");
}

#[test]
fn one_flow_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let compared = compare(&capture(folder.path(), &flows(1), 200), &[]);
    assert_eq!(compared["rule"], "one_flow");
    assert!(compared["advice"].as_str().expect("text").starts_with("Leave it alone"));
    assert_eq!((commands(&compared).len(), &compared["policy"]), (0, &Value::Null));
}

#[test]
fn tunnel_is_steered_by_what_is_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let vxlan = |inner: &Vec<u8>| {
        let header = [8, 0, 0, 0, 0, 0, 1, 0];
        udp((40_000, 4789), &[&header[..], inner].concat())
    };
    let frames: Vec<Vec<u8>> = flows(200).iter().map(vxlan).collect();
    let capture = capture(folder.path(), &frames, 2);
    let compared = compare(&capture, &[]);
    assert_eq!(compared["rule"], "inner_headers");
    assert!(commands(&compared).iter().all(|command| command.contains("--inner")));
    let inside = compare(&capture, &["--inner"]);
    assert_eq!((&inside["rule"], &inside["flows_steered"]), (&"steer".into(), &200.into()));
}

#[test]
fn nic_that_spreads_evenly_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let compared = compare(&capture(folder.path(), &flows(2000), 1), &["--rx-queues", "4"]);
    assert_eq!(compared["rule"], "even", "{}", compared["advice"]);
    assert!(figure(&compared, "none", "imbalance")[1] < 1.2);
}

#[test]
fn what_has_no_flows_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let arp = [&[0; 12][..], &[8, 6], &[0; 28]].concat();
    let compared = compare(&capture(folder.path(), &[arp], 9), &[]);
    assert_eq!(compared["rule"], "no_flows");
    let one =
        rxsteer(&["compare", folder.path().join("flows.pcap").to_str().unwrap(), "--cpus", "1"]);
    assert!(String::from_utf8_lossy(&one.stdout).contains("Leave it alone: there is one CPU"));
}

/// Frames of an unknown link type do not count as traffic that needs no steering.
#[test]
fn capture_that_cannot_be_read_is_no_quiet_one() {
    let dir = tempfile::tempdir().unwrap();
    let capture = written(dir.path(), "radiotap.pcap", &pcap(127, &[&[0; 60], &[0; 60]]));
    let output = rxsteer(&["compare", capture.to_str().unwrap(), "--cpus", "2", "--seeds", "2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("2 records could not be read"), "{text}");
    assert!(!text.contains("no traffic seen"), "{text}");
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    for (line, words) in [
        (&["compare"][..], "<CAPTURE"),
        (&["compare", "x.pcap", "--iface", "lo"], "--iface"),
        (&["advise"], "<IFACE>"),
        (&["advise", "nosuch7"], "no interface 'nosuch7'"),
        (&["advise", "lo", "--duration", "0s"], "--duration"),
        (&["advise", "lo", "--for", "0s"], "--duration"),
        (&["compare", "nosuch.pcap"], "nosuch.pcap"),
        (&["compare", "--iface", "nosuch7"], "no interface 'nosuch7'"),
        (&["compare", "x.pcap", "--duration", "1s"], "--duration"),
        (&["compare", "x.pcap", "--sample", "1s"], "--duration"),
        (&["compare", "x.pcap", "--seeds", "1"], "--seeds"),
    ] {
        let output = rxsteer(line);
        assert_eq!(output.status.code(), Some(2), "{line:?}");
        assert!(errors(&output).contains(words), "{line:?}: {}", errors(&output));
    }
}
