//! Records of third-party captures, compared with the counts of other tools and with the separate parser of these
//! tests.

use super::reading::{self, Counted};
use super::sums::check_sums;
use super::{number, replay, text, walk};
use crate::reference::{self, folder, rows};
use std::collections::HashMap;

#[test]
fn records_of_captures_add_up() {
    let Some(folder) = folder("records_of_captures_add_up") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (mut compared, mut walked) = (0, 0);
    for row in rows(&folder) {
        let name = row["file"].as_str();
        let capture = folder.join(name);
        let file = dir.path().join("flows.csv");
        let report = replay(&file, &["--cpus", "3", "--max-flows", "100000", text(&capture)]);
        if report["packets"].is_null() {
            continue;
        }
        let records = reading::csv(&file);
        check_sums(&report, &records);
        if number(&report["frames_not_ip"]) + number(&report["malformed"]) == 0 {
            let bytes: u64 = records.iter().map(|record| record.counted.bytes).sum();
            assert_eq!(bytes, number(&report["bytes"]), "{name}");
        }
        if row["comparable"] != "yes" {
            continue;
        }
        // Later fragments, and protocols without ports, are records with port 0, which tools leave out.
        let with_ports = |record: &&reading::Record| {
            [6, 17, 33, 132].contains(&record.key.2) && (record.key.3, record.key.4) != (0, 0)
        };
        let flows = records.iter().filter(with_ports).count() as u64;
        let tools = ["tshark", "walker"]
            .map(|tool| reference::number(&row, &format!("outer_unidir_all_{tool}")));
        assert!(tools.contains(&flows), "{name}: {flows} {tools:?}");
        compared += 1;
        let whole = std::fs::read(&capture).expect("a file");
        if let Some(expected) = walk::flows(&whole) {
            assert_eq!(without_times(&records), expected, "{name}");
            walked += 1;
        }
    }
    assert!(compared >= 60, "only {compared} captures were compared");
    assert!(walked >= 30, "only {walked} captures were read here");
}

fn without_times(records: &[reading::Record]) -> HashMap<reading::Key, Counted> {
    let mut flows = reading::per_flow(records);
    for counted in flows.values_mut() {
        (counted.first_ns, counted.last_ns) = (0, 0);
    }
    flows
}
