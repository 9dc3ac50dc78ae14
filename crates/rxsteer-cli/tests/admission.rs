//! Admission to sparse slots in a replay: a scan together with large flows, with `after` and without it.

use crate::program;
use crate::program::pcap::{pcap, written};
use crate::program::rxsteer;
use serde_json::Value;

/// A UDP frame of 60 bytes from 10.SOURCE, in wire format.
fn frame(source: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    (frame[14], frame[17], frame[22], frame[23]) = (0x45, 46, 64, 17);
    frame[26..30].copy_from_slice(&(10 << 24 | source).to_be_bytes());
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame[34..40].copy_from_slice(&[0x10, 0, 0x20, 0, 0, 26]);
    frame
}

/// A capture of 5 s, with 1,000 new flows of one packet in each second; from the 3rd second on there are also 4 flows
/// of 500 packets per second. Returns the number of the large flows' packets as well.
fn scan() -> (Vec<u8>, u64) {
    let (mut frames, mut large) = (Vec::new(), 0);
    for millis in 0..5000u32 {
        frames.push((millis, frame(0x10_0000 + millis)));
        if millis >= 2000 && millis.is_multiple_of(2) {
            frames.extend((1..=4).map(|flow| (millis, frame(flow))));
            large += 4;
        }
    }
    let bytes: Vec<&[u8]> = frames.iter().map(|(_, frame)| frame.as_slice()).collect();
    let mut file = pcap(1, &bytes);
    for (record, (millis, _)) in file[24..].chunks_mut(16 + 60).zip(&frames) {
        record[..4].copy_from_slice(&(millis / 1000).to_le_bytes());
        record[4..8].copy_from_slice(&(millis % 1000 * 1000).to_le_bytes());
    }
    (file, large)
}

#[test]
fn beside_a_scan_large_flows_get_slots_only_with_admission() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (capture, large) = scan();
    let capture = written(dir.path(), "scan.pcap", &capture);
    let capture = capture.to_str().expect("a plain path");
    let json = |arguments: &[&str]| -> Value {
        let output = rxsteer(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", program::errors(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let in_slots = |policy| {
        let shared = ["--policy", policy, "--cpus", "4", "--json", "--no-pin"];
        let report = json(&[&["replay", capture][..], &shared].concat());
        assert_eq!(report["reordered"], 0);
        report["in_slots"].as_u64().expect("a count")
    };
    assert_eq!(in_slots("sparse:after=8"), large - 4 * 7, "from each flow's 8th packet on");
    assert_eq!(in_slots("sparse"), 16, "one packet of each of the scan's first flows");

    // The number of the third packet of a large flow: four frames follow each second frame of the scan.
    let third = (2000 + 2 * 6 + 2).to_string();
    let explain = |extra: &[&str]| {
        let shared = ["explain", capture, "--frame", &third, "--policy", "sparse:after=8"];
        rxsteer(&[&shared[..], extra].concat())
    };
    let text = String::from_utf8(explain(&[]).stdout).expect("text");
    assert!(text.contains("not admitted yet, packet 3 of 8"), "{text}");
    let decided: Value = serde_json::from_slice(&explain(&["--json"]).stdout).expect("JSON");
    let not_admitted = &decided["reason"]["no_slot"];
    assert_eq!((&not_admitted["packet"], &not_admitted["after"]), (&3.into(), &8.into()));
}
