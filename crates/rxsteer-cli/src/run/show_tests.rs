//! The output of `status`, `set` and `explain --live` for recorded answers.

use super::{show, show_flow};
use insta::assert_snapshot;
use rxsteer_status::{Delay, Event, EventKind, Rates, Status};
use rxsteer_user::core::counters::LiveCounter;
use serde_json::Value;

fn recorded(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The output of `status` for the recorded answer after `change`.
fn status(change: impl FnOnce(&mut Value)) -> String {
    let mut status = recorded(include_str!("testdata/status.json"));
    change(&mut status);
    show::status(&serde_json::from_value(status).expect("a status"), None)
}

#[test]
fn frames_that_passed_for_no_other_reason_are_explained() {
    let shown = |passed: u64, policy: &str| {
        status(|status| {
            status["passed"] = passed.into();
            status["settings"]["policy"] = policy.into();
        })
    };
    let explained = "\npassed       4 for no reason above: received while rxsteer attached";
    assert!(shown(5, "rps").contains(explained), "{}", shown(5, "rps"));
    for (passed, policy) in [(1, "rps"), (0, "rps"), (5, "none")] {
        assert!(!shown(passed, policy).contains("\npassed "), "{passed} {policy}");
    }
}

#[test]
fn snapshots_of_status() {
    assert_snapshot!("status", status(|_| {}));
    let all_settings = status(|status| {
        status["settings"]["policy"] = "bound:eth0:0=1".into();
        status["settings"]["rps_maps"] = serde_json::json!(["eth0:0=0-3", "1=4-7"]);
        status["settings"]["else"] = "local".into();
        status["settings"]["rfs_cpus"] = "0-3".into();
        status["settings"]["offline"] = "3".into();
        status["settings"]["flow_limit"] = 4096.into();
        status["settings"]["shadow"] = true.into();
        status["changing"] = true.into();
        status["guarded"] = false.into();
        status["threads_problem"] =
            "rxsteer: the rings' threads stay in their class: this process lacks CAP_SYS_NICE"
                .into();
        status["memory_bytes"] = Value::Null;
        status["interfaces"] = Value::Array(Vec::new());
        for key in ["flow_statistics", "largest_flows", "ended_flows"] {
            status.as_object_mut().expect("an object").remove(key);
        }
    });
    assert_snapshot!("status-other-settings", all_settings);
    let balance = status(|status| {
        status["settings"]["policy"] = "rps+balance".into();
        let one = |bucket: u16, large_flow: Option<u32>| {
            serde_json::json!({
                "ago_ms": 2345, "bucket": bucket, "from": 0, "to": 1, "large_flow": large_flow,
                "why": "CPU 0 had 143 % of its share, CPU 1 61 %",
            })
        };
        status["balance"] = serde_json::json!({
            "buckets": 1024, "moved": 112,
            "by_cpu": [{ "cpu": 0, "buckets": 400 }, { "cpu": 1, "buckets": 624 }],
            "latest": [one(17, None), one(900, Some(0xbbec_4cc2))],
            "problem": "the load can't be measured, so no bucket moves",
        });
    });
    let with_rules = status(|status| {
        let rule = serde_json::json!({ "rule": "tcp dst-port 22 → 1", "packets": 1200 });
        status["settings"]["rules"] = Value::Array(vec![rule]);
        status["cpus"][0]["matched"] = 1200.into();
    });
    assert!(with_rules.contains("rule tcp dst-port 22 → 1 (1200 packets)"), "{with_rules}");
    let begin = with_rules.find(" CPU ").unwrap_or(0);
    let table: Vec<&str> = with_rules[begin..].lines().take(3).collect();
    assert_snapshot!("status-rules", table.join("\n"));
    let end = balance.find("\n\n").unwrap_or(balance.len());
    assert_snapshot!("status-balance", &balance[..end]);
    let many_cpus = status(|status| {
        let idle = |cpu: u16| {
            let mut idle = status["cpus"][0].clone();
            for (_, count) in idle.as_object_mut().expect("an object") {
                if count.is_u64() {
                    *count = 0.into();
                }
            }
            idle["thread"] = serde_json::json!({ "class": null });
            idle["cpu"] = cpu.into();
            idle
        };
        let more: Vec<Value> = (2..20).map(idle).collect();
        status["cpus"].as_array_mut().expect("CPUs").extend(more);
    });
    assert_snapshot!("status-many-cpus", many_cpus);
}

#[test]
fn snapshot_of_rates_and_events() {
    let recorded: Value = recorded(include_str!("testdata/status.json"));
    let before: Status = serde_json::from_value(recorded).expect("a status");
    let mut now = before.clone();
    now.running_ns += 500_000_000;
    let received = |counter| match counter {
        LiveCounter::Received | LiveCounter::Redirected => 50_000,
        LiveCounter::Bytes => 50_000 * 1400,
        LiveCounter::Moves => 3,
        _ => 0,
    };
    now.interfaces[0].counts.add(received);
    now.interfaces[0].running_ns = 3_723_000_000_000;
    now.cpus[0].counts.rx.add(received);
    now.totals.rx.add(received);
    now.cpus[1].counts.delivered += 49_500;
    now.cpus[1].counts.drops.ring_full += 500;
    now.totals.delivered += 49_500;
    now.totals.drops.ring_full += 500;
    let mut delay = Delay { buckets: vec![0; 80] };
    (delay.buckets[Delay::bucket_of(12_000)], delay.buckets[Delay::bucket_of(80_000)]) = (97, 3);
    now.cpus[1].delay = Some(delay);
    now.events = (1..=7)
        .map(|number| Event {
            number,
            time_ns: 1_795_000_000_000_000_000 + number * 1_000_000_000,
            kind: EventKind::CpuOnline.name().to_owned(),
            text: format!("CPU {number} is online again"),
            fields: serde_json::Map::new(),
        })
        .collect();
    let rates = Rates::between(&before, &now);
    assert_snapshot!("status-rates", show::status(&now, rates.as_ref()));
}

#[test]
fn snapshots_of_explain_live() {
    let explained = |change: fn(&mut Value)| {
        let mut at = recorded(include_str!("testdata/explained.json"));
        change(&mut at);
        show_flow::explained(&serde_json::from_value(at).expect("an explanation"))
    };
    assert_snapshot!("explain-live", explained(|_| {}));
    let nothing = explained(|at| {
        at["decisions"] = Value::Array(Vec::new());
        at["flows"] = Value::Array(Vec::new());
        at["changing"] = true.into();
    });
    assert_snapshot!("explain-live-nothing", nothing);
}
