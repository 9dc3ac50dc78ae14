//! `rxsteer replay` over third-party captures: tests the whole path, from file to report, against the counts of other
//! tools.
//!
//! The folder is not part of this repository. The test searches for it in `RXSTEER_CAPTURES`, then beside the
//! repository. Without it the test prints SKIPPED.

use crate::reference::{folder, number, rows};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn replay(file: &Path, options: &[&str]) -> (i32, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["replay", "--json", "--no-pin"])
        .args(options)
        .arg(file)
        .output()
        .expect("rxsteer can be started");
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap_or(-1), report)
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} in {report}"))
}

/// The properties that every report must have, whatever the capture.
fn check_conservation(file: &str, report: &Value) {
    let dropped: u64 =
        report["dropped"].as_object().expect("by reason").values().filter_map(Value::as_u64).sum();
    assert_eq!(count(report, "packets"), count(report, "delivered") + dropped, "{file}");
    assert_eq!(count(report, "reordered"), 0, "{file}");
    for field in ["delivered", "bytes"] {
        let per_cpu = report["cpus"].as_array().expect("an array").iter();
        let sum: u64 = per_cpu.map(|cpu| count(cpu, field)).sum();
        assert_eq!(sum, count(report, field), "{file}: {field}");
    }
    let reasons = report["malformed_by_reason"].as_object().expect("by reason");
    let malformed: u64 = reasons.values().filter_map(Value::as_u64).sum();
    assert_eq!(malformed, count(report, "malformed"), "{file}");
}

#[test]
fn every_comparable_capture_gives_the_reference_counts() {
    let Some(folder) = folder("every_comparable_capture_gives_the_reference_counts") else {
        return;
    };
    let mut compared = 0;
    for row in rows(&folder) {
        let file = row["file"].as_str();
        let (status, report) = replay(&folder.join(file), &["--cpus", "4"]);
        if row["comparable"] != "yes" {
            assert!(status == 0 || status == 1, "{file}: {status}");
            check_conservation(file, &report);
            continue;
        }
        assert_eq!(status, 0, "{file}: {report}");
        check_conservation(file, &report);
        let expected = |column: &str| number(&row, column);
        assert_eq!(count(&report, "packets"), expected("packets_tshark"), "{file}");
        assert_eq!(count(&report, "bytes"), expected("bytes_on_wire_tshark"), "{file}");
        for (field, column) in [
            ("flows_bidirectional", "outer_bidir_all"),
            ("flows_unidirectional", "outer_unidir_all"),
        ] {
            // MPLS and PPPoE: one tool reads the packets inside, the other does not; either is right.
            let tools = ["tshark", "walker"].map(|tool| expected(&format!("{column}_{tool}")));
            assert!(tools.contains(&count(&report, field)), "{file}: {field} {tools:?} {report}");
        }
        compared += 1;
    }
    assert!(compared >= 60, "only {compared} captures were compared");
}

#[test]
fn counts_do_not_depend_on_how_it_is_received() {
    let Some(folder) = folder("counts_do_not_depend_on_how_it_is_received") else { return };
    let file = folder.join("zeek__var-services-std-ports.pcap");
    for options in [
        &["--policy", "none"][..],
        &["--policy", "bound:0=1", "--cpus", "2"],
        &["--rx-queues", "8", "--rx-threads", "3", "--cpus", "0,3,4095"],
        &["--rx-queues", "interface", "--hash", "toeplitz", "--cpus", "16"],
        &["--rx-queues", "file", "--batch", "1", "--max-backlog", "1", "--cpus", "2"],
        &["--inner", "--batch", "256", "--cpus", "8"],
    ] {
        let (status, report) = replay(&file, options);
        assert_eq!(status, 0, "{options:?}: {report}");
        check_conservation("var-services", &report);
        let counts = ["packets", "bytes", "flows_bidirectional", "flows_unidirectional"];
        assert_eq!(counts.map(|field| count(&report, field)), [263, 49573, 38, 72], "{options:?}");
    }
}
