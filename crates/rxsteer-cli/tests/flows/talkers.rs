//! Tests of `rxsteer flows`.

use super::reading::{self, per_flow};
use super::traffic::Traffic;
use super::{errors, number, rxsteer, status, text};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = rxsteer(&[&["flows", "--json"], arguments].concat());
    assert_eq!(status(&output), 0, "{}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn largest_flows_are_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let traffic = Traffic::mixed(10_000, 300);
    let capture = traffic.write(dir.path(), "mixed.pcap");
    for by in ["packets", "bytes"] {
        let shown = json(&["--top", "25", "--by", by, "--cpus", "3", text(&capture)]);
        let mut expected: Vec<_> = traffic.flows.iter().collect();
        // Flows are ordered by this measure, then by the other one, then by key.
        expected.sort_by_key(|(key, of)| {
            let sizes =
                if by == "packets" { (of.packets, of.bytes) } else { (of.bytes, of.packets) };
            (std::cmp::Reverse(sizes), key.0.is_ipv6(), key.0, key.1, key.3, key.4, key.2)
        });
        let top: Vec<_> =
            shown["largest_flows"].as_array().expect("a list").iter().map(reading::json).collect();
        assert_eq!(top.len(), 25);
        for (record, (key, counted)) in top.iter().zip(&expected) {
            let of = |counted: &reading::Counted| (counted.packets, counted.bytes);
            assert_eq!(of(&record.counted), of(counted), "{by}");
            assert_eq!(traffic.flows[&record.key], record.counted, "{by} {key:?}");
        }
        let packets: u64 = top.iter().map(|record| record.counted.packets).sum();
        assert_eq!(number(&shown["packets_shown"]), packets);
        assert_eq!(number(&shown["records"]), traffic.flows.len() as u64);
        let not_ip = number(&shown["frames_not_ip"]);
        assert_eq!((number(&shown["packets"]) + not_ip, not_ip), (traffic.packets, traffic.not_ip));
        assert_eq!(shown["largest_flows"][0]["rank"], 1);
        let again = json(&["--top", "25", "--by", by, "--cpus", "1", text(&capture)]);
        let keys = |of: &Value| {
            let list = of["largest_flows"].as_array().expect("a list").clone();
            list.iter().map(|record| reading::json(record).key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&again), keys(&shown), "ties go one way");
    }
}

#[test]
fn few_places_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let traffic = Traffic::mixed(10_000, 300);
    let capture = traffic.write(dir.path(), "mixed.pcap");
    let arguments = ["--max-flows", "10", "--top", "100000", "--json", text(&capture)];
    let output = rxsteer(&[&["flows"][..], &arguments].concat());
    assert_eq!(status(&output), 0);
    assert!(errors(&output).contains("raise --max-flows"), "{}", errors(&output));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let records: Vec<_> =
        shown["largest_flows"].as_array().expect("a list").iter().map(reading::json).collect();
    assert_eq!(per_flow(&records), traffic.flows, "in parts, and whole together");
}

#[test]
fn what_another_command_can_is_named_with_it() {
    for (arguments, part) in [
        (
            &["a.pcap", "--app-cpus", "1"][..],
            "--app-cpus is an option of rxsteer replay, rxsteer compare and rxsteer advise, not of",
        ),
        (
            &["a.pcap", "--flows", "a.csv"],
            "--flows is an option of rxsteer replay, rxsteer live, rxsteer run and rxsteer status, not of",
        ),
        (&["a.pcap", "--rx-queues=4"], " and rxsteer explain, not of"),
        (&["a.pcap", "--top", "-1"], "whole number from 1 to 100000"),
        (&["a.pcap", "--anonymize", "16/32"], "--anonymize=16/32"),
        (&[], "- is standard input"),
    ] {
        let output = rxsteer(&[&["flows"], arguments].concat());
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(errors(&output).contains(part), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn options_that_count_twice_or_not_at_all_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::mixed(100, 5).write(dir.path(), "a.pcap");
    let same = dir.path().join(".").join("a.pcap");
    let output = rxsteer(&["flows", "--policy", "rfs", text(&capture), text(&same)]);
    assert_eq!(status(&output), 0);
    let stderr = errors(&output);
    assert!(stderr.contains("a.pcap is named 2 times"), "{stderr}");
    assert!(stderr.contains("rfs decides as rps does; rxsteer replay"), "{stderr}");
    let output = rxsteer(&["flows", "--flow-cnt", "64", "--else", "local", text(&capture)]);
    let stderr = errors(&output);
    for option in ["--flow-cnt", "--else"] {
        assert!(stderr.contains(&format!("{option} changes nothing here")), "{option}: {stderr}");
    }
}

#[test]
fn settings_of_the_decisions_are_in_both_reports() {
    let arguments = ["--synthetic", "packets=5000,flows=50", "--policy", "sparse", "--cpus", "3"];
    let settings = [&arguments[..], &["--hash-seed", "2a", "--flow-cnt", "64"]].concat();
    let (shown, again) = (json(&settings), json(&settings));
    assert_eq!((&shown["policy"], &shown["hash"]), (&"sparse".into(), &"symmetric".into()));
    assert!(shown["hash_seed"].as_str().is_some_and(|seed| seed.ends_with("2a")), "{shown}");
    let of = &shown["settings"];
    assert_eq!((&of["cpus"], &of["flow_cnt"]), (&"0-2".into(), &64.into()));
    assert_eq!(shown, again, "a policy that moves flows decides alike each time");
    let output = rxsteer(&[&["flows"][..], &settings].concat());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in ["policy       sparse, CPUs 0-2", "the same spread again: --hash-seed 2a"] {
        assert!(table.contains(line), "{line}: {table}");
    }
}

#[test]
fn table_is_printed_for_people() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut traffic = Traffic::new();
    traffic.udp(7, 0);
    traffic.udp(7, 1500);
    let capture = traffic.write(dir.path(), "two.pcap");
    let output = rxsteer(&["flows", "--anonymize", "--cpus", "1", text(&capture)]);
    assert_eq!(status(&output), 0, "{}", errors(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = table.lines().nth(1).expect("a row").split_whitespace().collect::<Vec<_>>();
    assert_eq!(
        row[..9],
        ["1", "10.1.2.0:7", "192.0.2.0:9", "udp", "2", "144", "100.0", "%", "1.5"],
        "{table}"
    );
    assert!(table.contains("0 not IP, 0 malformed"), "{table}");
}

#[test]
fn standard_input_is_read() {
    use std::io::Write;
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::mixed(1000, 10).write(dir.path(), "mixed.pcap");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["flows", "-", "--top", "3"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    let bytes = std::fs::read(capture).expect("a file");
    child.stdin.take().expect("a pipe").write_all(&bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(status(&output), 0);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1 + 3 + 1 + 4);
}
