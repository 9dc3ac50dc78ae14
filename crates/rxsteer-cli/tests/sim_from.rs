//! `rxsteer sim --from`: third-party captures and flow records through a simulated machine.
//!
//! The tests search for the folder of captures as in `captures.rs`; without it they print SKIPPED.

use crate::program::{errors, rxsteer};
use crate::reference::{folder, number, rows};
use serde_json::Value;
use std::path::Path;

/// The exit status, the report, and the text on standard error.
fn sim(arguments: &[&str]) -> (i32, Value, String) {
    let output = rxsteer(&[&["sim", "--json"], arguments].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap_or(-1), report, errors(&output))
}

fn count(report: &Value, field: &str) -> u64 {
    report["from"][field].as_u64().unwrap_or_else(|| panic!("{field} in {}", report["from"]))
}

fn run(report: &Value, metric: &str) -> u64 {
    let value = &report["cells"][0]["runs"][0]["run"][metric];
    value.as_f64().unwrap_or_else(|| panic!("{metric} in {report}")) as u64
}

#[test]
fn every_capture_is_simulated_or_refused_with_the_reason() {
    let Some(folder) = folder("every_capture_is_simulated_or_refused_with_the_reason") else {
        return;
    };
    let (mut simulated, mut refused) = (0, 0);
    for row in rows(&folder) {
        let file = folder.join(&row["file"]);
        let name = row["file"].as_str();
        let (status, report, stderr) = sim(&["--from", file.to_str().expect("a path")]);
        if status == 2 {
            assert!(stderr.contains(name), "{name}: {stderr}");
            refused += 1;
            let usable = row["comparable"] == "yes" && number(&row, "packets_tshark") > 0;
            assert!(!usable, "{name}: {stderr}");
            continue;
        }
        assert!(status == 0 || status == 1, "{name}: {status} {stderr}");
        let packets = count(&report, "packets");
        assert_eq!(run(&report, "arrived"), packets, "{name}: all that was recorded is sent");
        assert_eq!(report["cells"][0]["conservation_holds"], true, "{name}");
        assert_eq!(run(&report, "reordered"), 0, "{name}");
        if row["comparable"] == "yes" {
            assert_eq!(status, 0, "{name}: {stderr}");
            assert_eq!(packets, number(&row, "packets_tshark"), "{name}");
            assert_eq!(count(&report, "bytes"), number(&row, "bytes_on_wire_tshark"), "{name}");
        }
        // The exit status and the report both show damage.
        let errors = report["from"]["errors"].as_array().expect("a list");
        assert_eq!(status == 1, !errors.is_empty(), "{name}: {stderr}");
        assert!(errors.is_empty() || stderr.contains(name), "{name}: {stderr}");
        simulated += 1;
    }
    assert!(simulated >= 60 && simulated + refused == 74, "{simulated} + {refused}");
}

/// A capture with a few flows, made here.
fn capture(dir: &Path) -> String {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        pcap.extend(word.to_le_bytes());
    }
    for packet in 0..3000_u32 {
        let port = 1000 + (packet * packet) as u16 % 40;
        let mut frame = Vec::new();
        let ethernet = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let udp = ethernet.ipv4([10, 0, 0, 1], [192, 0, 2, 7], 64).udp(port, 443);
        udp.write(&mut frame, &vec![0; 22 + (packet % 900) as usize]).expect("a frame");
        for word in [1_700_000_000, packet * 20, frame.len() as u32, frame.len() as u32] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(frame);
    }
    let path = dir.join("made-up.pcap");
    std::fs::write(&path, pcap).expect("a file can be written");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn records_of_a_capture_have_its_packets_flows_and_bytes_in_every_format() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = capture(dir.path());
    let (status, of_capture, stderr) = sim(&["--from", &capture]);
    assert_eq!(status, 0, "{stderr}");
    let formats = ["csv", "jsonl", if cfg!(feature = "parquet") { "parquet" } else { "ndjson" }];
    let mut reports = Vec::new();
    for format in formats {
        let file = dir.path().join(format!("flows.{format}"));
        let file = file.to_str().expect("a path");
        let replayed = rxsteer(&["replay", &capture, "--cpus", "1", "--flows", file]);
        assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
        for spread in ["even", "random"] {
            let (status, report, stderr) = sim(&["--from", file, "--from-spread", spread]);
            assert_eq!(status, 0, "{format}: {stderr}");
            for field in ["packets", "flows", "bytes", "recorded_ns"] {
                let expected = count(&of_capture, field);
                assert_eq!(count(&report, field), expected, "{format}, {spread}: {field}");
            }
            assert_eq!(run(&report, "arrived"), 3000, "{format}, {spread}");
            reports.push(report["cells"][0]["runs"][0]["run"].clone());
        }
    }
    // Records are written in another order each time, but packets are sent in the order of time.
    assert_eq!(reports[0], reports[2], "evenly: csv and jsonl");
    assert_eq!(reports[0], reports[4], "evenly: csv and the third");
    assert_ne!(reports[0], reports[1], "evenly and at random");
}

#[test]
fn speed_makes_load_and_policies_can_be_compared() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = capture(dir.path());
    let busy = |speed: &str| {
        let (status, report, stderr) = sim(&["--from", &capture, "--from-speed", speed]);
        assert_eq!(status, 0, "{stderr}");
        let all = &report["cells"][0]["runs"][0]["run"]["arrived"];
        assert_eq!(all.as_f64(), Some(3000.0));
        let seconds = report["measured_ns"].as_f64().expect("a time") / 1e9;
        (report["cells"][0]["runs"][0]["run"]["busy"].as_f64().expect("a share"), seconds)
    };
    let (slow, long) = busy("1x");
    let (fast, short) = busy("4x");
    assert!(fast > 2.0 * slow * 0.9 && short < long, "{slow} in {long} s, {fast} in {short} s");

    let words = ["--from", &capture, "--from-speed", "10x", "--compare", "rps,sparse,rfs+sparse"];
    let (status, report, stderr) = sim(&[&words[..], &["--seeds", "2"]].concat());
    assert_eq!(status, 0, "{stderr}");
    let cells = report["cells"].as_array().expect("cells");
    let policies: Vec<_> = cells.iter().map(|cell| cell["policy"].clone()).collect();
    assert_eq!(policies, ["rps", "sparse", "rfs+sparse"]);
    assert!(report["comparison"]["differences"].as_array().is_some_and(|all| !all.is_empty()));
    let moved = |report: &Value| {
        let runs = report["cells"][0]["runs"].as_array().expect("runs").clone();
        runs.iter().map(|run| run["cpus"].to_string()).collect::<Vec<_>>()
    };
    let by_seed = moved(&report);
    assert_ne!(by_seed[0], by_seed[1], "each seed has a hash of its own");

    let (status, report, stderr) =
        sim(&[&words[..], &["--seeds", "2", "--from-hash-seed", "2a"]].concat());
    assert_eq!(status, 0, "{stderr}");
    let fixed = moved(&report);
    assert_eq!(fixed[0], fixed[1]);
    assert!(stderr.contains("repeat one run"), "{stderr}");
}

#[test]
fn settings_that_a_recording_replaces_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = capture(dir.path());
    let sets = ["--set", "traffic.0.flows=9", "--set", "steering.policy=sparse"];
    let words = [&["--from", &capture, "--from-spread", "random"][..], &sets].concat();
    let (status, _, stderr) = sim(&words);
    assert_eq!(status, 0, "{stderr}");
    for part in ["--set traffic.0.flows=9 changes nothing here", "--from-spread changes nothing"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert!(!stderr.contains("--set steering.policy=sparse changes"), "{stderr}");
    let twice = ["rpc-8", "--set", "steering.policy=rps", "--set", "steering.policy=sparse"];
    let (status, _, stderr) = sim(&twice);
    assert!(status == 2 && stderr.contains("--set steering.policy is given twice"), "{stderr}");
}

#[test]
fn damaged_capture_is_used_as_far_as_it_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = capture(dir.path());
    let whole = std::fs::read(&capture).expect("a file");
    std::fs::write(&capture, &whole[..whole.len() / 2]).expect("a file");
    let (status, report, stderr) = sim(&["--from", &capture]);
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("cut short"), "{stderr}");
    let packets = count(&report, "packets");
    assert!(packets > 1000 && packets < 2900, "{packets}");
    assert_eq!(run(&report, "arrived"), packets);
}

#[test]
fn outputs_that_cannot_be_are_refused_before_the_simulation() {
    for (words, reason) in [
        (&["rpc-8", "--csv", "-"][..], "--csv requires the name of a file"),
        (&["rpc-8", "--csv", "both", "--report", "both"], "both have the same name"),
        (&["--list", "--seeds", "3"], "--seeds"),
    ] {
        let (status, _, stderr) = sim(words);
        assert!(status == 2 && stderr.contains(reason), "{words:?}: {status} {stderr}");
        assert!(!Path::new("both").exists() && !Path::new("-").exists());
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    for (words, reason) in [
        (&["--from", "nowhere.pcap"][..], "nowhere.pcap"),
        (&["--from", "nowhere.csv"], "nowhere.csv"),
        (&["--from-speed", "2x", "rpc-8"], "--from"),
        (&["nosuch", "--from", "nowhere.pcap"], "nosuch"),
    ] {
        let (status, _, stderr) = sim(words);
        assert!(status == 2 && stderr.contains(reason), "{words:?}: {status} {stderr}");
    }
}
