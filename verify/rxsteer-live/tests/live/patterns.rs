//! Interfaces that match a pattern: how much memory they need, and that there is room for them.

use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, OrderCheck, Steering, Testbed, Traffic};
use serde_json::Value;

use super::ask;

const TIMEOUT: Duration = Duration::from_secs(20);

/// The kernel memory of a process's BPF maps.
fn map_bytes(process: u32) -> u64 {
    let entries = std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let mut maps: Vec<(u64, u64)> = entries
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.ok()?.path()).ok()?;
            let number =
                |name| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
            Some((number("map_id:")?, number("memlock:")?))
        })
        .collect();
    maps.sort_unstable();
    maps.dedup();
    maps.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn interface_of_64_queues_that_appears_later_is_steered() {
    let test = "patterns::interface_of_64_queues_that_appears_later_is_steered";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let mut testbed = Testbed::hosts(LinkOptions { queues: 64, ..LinkOptions::default() }).unwrap();
    let arguments = ["in*", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    for number in 1..3 {
        testbed.another_link(LinkOptions { queues: 64, ..LinkOptions::default() }).unwrap();
        steering
            .wait_for_stderr(&format!("steering in{number}: native, 64 RX queues"), TIMEOUT)
            .unwrap();
    }
    let link = &testbed.links[2];
    let check = OrderCheck::new(testbed.receiver(), &link.far, 64).unwrap();
    let traffic = Traffic { flows: 64, ..Traffic::default() };
    LiveFrames::new(link, &traffic).unwrap().send(testbed.sender(), 0, 10_000).unwrap();
    let seen = check.drained().unwrap();
    assert!(seen.frames > 1000 && seen.late == 0, "{seen:?}");
    let status: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
    let interfaces = status["interfaces"].as_array().unwrap();
    assert!(interfaces.iter().all(|known| known["flow_tables"] == 64), "{status}");
    assert!(interfaces[2]["redirected"].as_u64().unwrap() >= seen.frames, "{status}");
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

#[test]
fn pattern_takes_little_memory_and_status_says_how_much() {
    let test = "patterns::pattern_takes_little_memory_and_status_says_how_much";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    for pattern in ["in*", "none*"] {
        let arguments = [pattern, "--cpus", "0-0", "--socket", &socket];
        let steering = Steering::begin(testbed.receiver(), &arguments).unwrap();
        steering
            .wait_for_stderr(
                if pattern == "in*" { "steering in0" } else { "no interface matches yet" },
                TIMEOUT,
            )
            .unwrap();
        let status: Value =
            serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
        let bytes = map_bytes(steering.id());
        assert_eq!(status["memory_bytes"], bytes, "{pattern}");
        assert!(bytes < 64 << 20, "{pattern}: {bytes} bytes");
        steering.stop().unwrap();
    }
}
