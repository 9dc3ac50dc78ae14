//! Rules before the policy, in generated captures.

use crate::program::pcap::{pcap, written};
use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A TCP packet from port 1024 + `flow` to `port`.
fn tcp(flow: u16, port: u16, vlan: Option<u16>, dscp: u8) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, dscp << 2, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, (flow >> 8) as u8, flow as u8, 192, 0, 2, 1]);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame
}

/// 64 flows of five packets each; every fourth flow goes to port 22.
fn frames() -> Vec<Vec<u8>> {
    (0..64 * 5u16).map(|n| tcp(n % 64, if n % 4 == 0 { 22 } else { 80 }, None, 0)).collect()
}

/// The frames in a capture of Ethernet.
fn capture(folder: &Path, frames: &[Vec<u8>]) -> PathBuf {
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    written(folder, "frames.pcap", &pcap(1, &frames))
}

fn replay(capture: &Path, options: &[&str]) -> Value {
    let capture = capture.to_str().expect("a plain path");
    let shared = ["replay", capture, "--cpus", "4", "--hash-seed", "2a", "--json", "--no-pin"];
    let output = rxsteer(&[&shared[..], options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn packets(report: &Value, cpu: usize) -> u64 {
    let of = report["cpus"].as_array().expect("an array");
    of.iter().find(|of| of["cpu"] == cpu).map_or(0, |of| of["delivered"].as_u64().expect("a count"))
}

#[test]
fn packets_go_where_the_first_rule_says() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = capture(dir.path(), &frames());
    for policy in ["none", "rps", "sparse", "rfs+sparse", "rps+balance", "bound:0=1"] {
        let report = replay(&path, &["--policy", policy, "--rule", "tcp dst-port 22 → 6"]);
        assert_eq!(report["rules"][0]["packets"], 80, "{policy}: {report:#}");
        assert_eq!((packets(&report, 6), report["matched"].as_u64()), (80, Some(80)), "{policy}");
        assert_eq!(
            (&report["reordered"], &report["delivered"]),
            (&0.into(), &320.into()),
            "{policy}"
        );
    }
    // The first rule that matches decides, and the hash selects one of the CPUs of the rule.
    let rules = ["--rule", "src 10.0.0.0/27 -> 5", "--rule", "port 22 -> 6-7", "--policy", "none"];
    let report = replay(&path, &rules);
    let hits: Vec<_> =
        report["rules"].as_array().unwrap().iter().map(|rule| &rule["packets"]).collect();
    assert_eq!(hits, [160, 40]);
    assert_eq!(packets(&report, 5), 160);
    assert!(packets(&report, 6) > 0 && packets(&report, 7) > 0, "{report:#}");
    assert_eq!(packets(&report, 6) + packets(&report, 7), 40);
    // `local` means the CPU that receives, even under a policy that spreads flows.
    let local = ["--rule", "any -> local", "--rx-cpus", "3-3"];
    assert_eq!(packets(&replay(&path, &local), 3), 320);
}

#[test]
fn vlan_and_code_point_are_matched() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let frames: Vec<Vec<u8>> = (0..60u16)
        .map(|n| tcp(n, 80, (n % 3 > 0).then_some(n % 3), if n % 2 == 0 { 46 } else { 0 }))
        .collect();
    let path = capture(dir.path(), &frames);
    let rules = ["--rule", "vlan 1 dscp ef → 1", "--rule", "vlan 1 → 2", "--rule", "dscp 46 → 3"];
    let report = replay(&path, &[&rules[..], &["--policy", "none"]].concat());
    let hits: Vec<_> =
        report["rules"].as_array().unwrap().iter().map(|rule| &rule["packets"]).collect();
    assert_eq!(hits, [10, 10, 20], "{report:#}");
}

#[test]
fn order_holds_while_rules_change() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let frames: Vec<Vec<u8>> = (0..100).flat_map(|_| frames()).collect();
    let path = capture(dir.path(), &frames);
    for policy in ["none", "rps", "rfs+sparse"] {
        let changes = [
            "--change-at",
            "4000p:rule=port 22 -> 1",
            "--change-at",
            "9000p:rule=port 22 -> 2;rule=dst-port 80 -> 0-3",
            "--change-at",
            "15000p:rule=none",
            "--change-at",
            "21000p:rule=any -> local;policy=rps",
        ];
        let options = ["--policy", policy, "--rule", "tcp -> 3", "--work-ns", "300"];
        let report = replay(&path, &[&options[..], &changes].concat());
        assert_eq!(report["reordered"], 0, "{policy}: {report:#}");
        assert_eq!((&report["changes_made"], &report["delivered"]), (&4.into(), &32_000.into()));
        assert_eq!(report["rules"][0]["rule"], "any → local");
    }
}

#[test]
fn explain_names_the_rule() {
    let flow = "10.0.0.1:40000-192.0.2.7:22/tcp";
    let rules = ["--rule", "udp -> 1", "--rule", "tcp dst-port 22 -> 2", "--cpus", "4"];
    let output = rxsteer(&[&["explain", flow, "--json"], &rules[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained["matched_rule"], "tcp dst-port 22 → 2");
    assert_eq!(
        (&explained["cpu"], &explained["reason"]["number"]),
        (&2.into(), &2.into()),
        "{explained:#}"
    );
    let output = rxsteer(&[&["explain", flow], &rules[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("rule 2 matches it, before the policy"), "{text}");
}

#[test]
fn explain_names_the_policy_of_a_rule_and_its_reason() {
    let flow = "10.0.0.1:40000-192.0.2.7:22/tcp";
    let rules =
        ["--policy", "none", "--rule", "udp -> 1", "--rule", "tcp -> policy rfs", "--cpus", "4"];
    let explained = |more: &[&str]| {
        let output = rxsteer(&[&["explain", flow, "--json"], &rules[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(errors(&output).is_empty(), "{}", errors(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let at = explained(&["--app-cpu", "3"]);
    assert_eq!(at["matched_rule"], "tcp → policy rfs");
    assert_eq!((&at["cpu"], &at["rule_policy"]), (&3.into(), &"rfs".into()), "{at:#}");
    assert_eq!(at["reason"]["rule"], "rfs");
    assert_eq!(explained(&[])["reason"]["rule"], "hash", "no application is known");
    assert_eq!(explained(&["--else", "local"])["reason"]["rule"], "stays");
    let output = rxsteer(&[&["explain", flow, "--app-cpu", "3"], &rules[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let why = "CPU 3: rule 2 matches it, before the policy, and has policy rfs: its application runs there";
    assert!(text.contains(why), "{text}");
}

#[test]
fn files_have_rules_in_order_and_mistakes_have_places() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = capture(dir.path(), &frames());
    let file = dir.path().join("rules.toml");
    std::fs::write(&file, "rule = [\n  'port 22 -> 1',\n  'tcp -> 2',\n]\n").unwrap();
    let config = ["--config", file.to_str().unwrap(), "--policy", "none"];
    let report = replay(&path, &config);
    assert_eq!((packets(&report, 1), packets(&report, 2)), (80, 240));
    std::fs::write(&file, "rule = [\n  'port 22 -> 1',\n  'tpc -> 2',\n]\n").unwrap();
    let output =
        rxsteer(&[&["replay", path.to_str().unwrap(), "--cpus", "4"], &config[..]].concat());
    let stderr = errors(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.contains(
            "rules.toml:3:3: rule=tpc -> 2: word 1, 'tpc', is unknown; did you mean 'tcp'?"
        ),
        "{stderr}"
    );
    // A rule after one that matches all its packets is reported, but is not an error.
    let rules = ["--rule", "tcp -> 1", "--rule", "tcp dst-port 22 -> 2"];
    let output =
        rxsteer(&[&["replay", path.to_str().unwrap(), "--cpus", "4"], &rules[..]].concat());
    let stderr = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("rule 2 (tcp dst-port 22 → 2) never matches: rule 1 (tcp → 1)"),
        "{stderr}"
    );
}
