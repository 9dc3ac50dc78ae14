//! Compares records with sums that were not computed by rxsteer, whatever moves flows between CPUs.

use super::reading::{self, per_flow};
use super::traffic::Traffic;
use super::{number, replay, rxsteer, status, text};
use serde_json::Value;

/// Each packet is in exactly one record, or in none for a reason that is counted.
pub(crate) fn check_sums(report: &Value, records: &[reading::Record]) {
    let statistics = &report["flow_statistics"];
    let dropped: u64 = report["dropped"].as_object().expect("by reason").values().map(number).sum();
    let counted: u64 = records.iter().map(|record| record.counted.packets).sum();
    let refused = number(&statistics["flow_packets_refused"]);
    let without = number(&statistics["packets_without_flow"]);
    assert_eq!(counted + without + dropped + refused, number(&report["packets"]), "{report}");
    if dropped == 0 {
        let none = number(&report["frames_not_ip"]) + number(&report["malformed"]);
        assert_eq!(without, none, "{report}");
    }
    assert_eq!(number(&statistics["records"]), records.len() as u64);
    let ended = |end: &str| records.iter().filter(|record| record.end == end).count() as u64;
    assert_eq!(ended("idle"), number(&statistics["flows_expired"]));
    assert_eq!(ended("evicted"), number(&statistics["flows_evicted"]));
    assert_eq!(number(&statistics["flows_created"]), records.len() as u64);
}

/// With any policy, number of CPUs and changes during the run, the sums per flow are those of the traffic.
#[test]
fn sums_per_flow_do_not_depend_on_where_packets_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let traffic = Traffic::mixed(20_000, 300);
    let capture = traffic.write(dir.path(), "mixed.pcap");
    let apps = ["--app-cpus", "0-3", "--app-migrate", "1ms"];
    let moves = ["--change-at", "3000p:policy=sparse;cpus=0-1", "--change-at", "6000p:policy=rps"];
    let more = ["--change-at", "9000p:policy=none", "--change-at", "12000p:cpus=2-3;policy=rfs"];
    let mut on_several = 0;
    for arguments in [
        &["--policy", "none", "--cpus", "1"][..],
        &["--policy", "rps", "--cpus", "4"],
        &["--policy", "bound:0=1,1=2", "--rx-queues", "2", "--rx-threads", "2", "--cpus", "3"],
        &["--policy", "sparse", "--cpus", "4"],
        &[&["--policy", "rfs", "--cpus", "4"], &apps[..]].concat(),
        &[&["--policy", "rfs+sparse", "--cpus", "4", "--batch", "8"], &apps[..]].concat(),
        &[&["--cpus", "4"], &apps[..], &moves[..], &more[..]].concat(),
        &["--cpus", "0,7,4095", "--rx-queues", "8", "--rx-threads", "3"],
    ] {
        let file = dir.path().join("flows.csv");
        let report = replay(&file, &[arguments, &[text(&capture)]].concat());
        let records = reading::csv(&file);
        check_sums(&report, &records);
        assert_eq!(per_flow(&records), traffic.flows, "{arguments:?}");
        assert_eq!(records.len(), traffic.flows.len(), "a record is a whole flow: {arguments:?}");
        assert_eq!(number(&report["bytes"]), traffic.bytes);
        assert_eq!(number(&report["frames_not_ip"]), traffic.not_ip);
        let per_cpu = report["cpus"].as_array().expect("a list");
        for cpu in per_cpu {
            let here = records.iter().flat_map(|record| &record.per_cpu);
            let here = here.filter(|on| on[0] == number(&cpu["cpu"]));
            let packets: u64 = here.map(|on| on[1]).sum();
            assert!(packets <= number(&cpu["delivered"]), "{cpu}");
        }
        on_several += records.iter().filter(|record| record.cpus.len() > 1).count();
    }
    assert!(on_several > 0, "some flow moved");
}

#[test]
fn few_places_for_flows_lose_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let traffic = Traffic::mixed(20_000, 2000);
    let capture = traffic.write(dir.path(), "mixed.pcap");
    let file = dir.path().join("flows.csv");
    for max_flows in ["1", "100"] {
        let arguments = ["--max-flows", max_flows, "--cpus", "4", text(&capture)];
        let report = replay(&file, &arguments);
        let records = reading::csv(&file);
        check_sums(&report, &records);
        assert_eq!(per_flow(&records), traffic.flows);
        assert_eq!(number(&report["flow_statistics"]["flow_packets_refused"]), 0);
        assert!(number(&report["flow_statistics"]["flows_evicted"]) > 2000);
    }
}

#[test]
fn overload_is_in_no_record_and_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = Traffic::mixed(5000, 500).write(dir.path(), "mixed.pcap");
    let file = dir.path().join("flows.csv");
    let overload = ["--max-backlog", "16", "--on-full", "drop", "--work-ns", "500000"];
    let report = replay(&file, &[&overload[..], &["--cpus", "2", text(&capture)]].concat());
    assert!(number(&report["dropped"]["backlog_full"]) > 0);
    check_sums(&report, &reading::csv(&file));
}

#[test]
fn flow_that_rests_becomes_another_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut traffic = Traffic::new();
    for later_us in [0, 900_000, 1_100_000, 1] {
        traffic.udp(7, later_us);
    }
    let capture = traffic.write(dir.path(), "rests.pcap");
    let file = dir.path().join("flows.csv");
    let report = replay(&file, &["--flow-idle-timeout", "1s", "--cpus", "2", text(&capture)]);
    let mut records = reading::csv(&file);
    check_sums(&report, &records);
    records.sort_by_key(|record| record.counted.first_ns);
    let ends: Vec<_> = records.iter().map(|r| (r.counted.packets, r.end.as_str())).collect();
    assert_eq!(ends, [(2, "idle"), (2, "finished")]);
    assert_eq!(records[0].hash, records[1].hash);
    assert_eq!(per_flow(&records), traffic.flows);
}

/// Without `--flows` nothing is counted.
#[test]
fn without_records_there_are_no_statistics() {
    let output = rxsteer(&["replay", "--synthetic", "packets=1000", "--cpus", "2", "--json"]);
    assert_eq!(status(&output), 0);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["flow_statistics"], Value::Null);
}
