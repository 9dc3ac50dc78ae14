//! Each packet of a flow is counted exactly once: in its flow, or in the counters of ended, cleared or refused packets,
//! whatever moves, ends or is cleared.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, Protocol, Steering, Testbed, Totals, Traffic, slice};
use serde_json::Value;

use super::{ask, set};

/// The output of `rxsteer status` with as many flows as it lists.
fn status(socket: &str, reset: bool) -> Value {
    let command = ["status", "--json", "--flows", "1000", "--socket", socket];
    let reset: &[&str] = if reset { &["--reset"] } else { &[] };
    serde_json::from_str(&ask(&[&command, reset].concat())).unwrap()
}

/// A status between two readings of which no packet arrived: a host may send a frame by itself.
fn status_at_rest(socket: &str) -> Value {
    let readings = (0..20).find_map(|_| {
        let (before, after) = (status(socket, false), status(socket, false));
        (before["received"] == after["received"]).then_some(after)
    });
    readings.expect("frames come all the time")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The packets of each flow in a list, by the flow's name.
fn packets(flows: &Value) -> BTreeMap<String, u64> {
    let mut report = BTreeMap::new();
    for flow in flows.as_array().map(Vec::as_slice).unwrap_or_default() {
        let on = |cpu: &Value| number(&cpu["packets"]);
        let by_cpu: u64 = flow["cpus"].as_array().unwrap().iter().map(on).sum();
        assert_eq!(by_cpu + number(&flow["other_cpus"]), number(&flow["packets"]), "{flow}");
        *report.entry(flow["flow"].as_str().unwrap().to_owned()).or_default() +=
            number(&flow["packets"]);
    }
    report
}

/// The packets of flow number `flow`, whose source port is that number above the first port.
fn of_flow(report: &BTreeMap<String, u64>, traffic: &Traffic, flow: usize) -> u64 {
    let port = format!(":{} -> ", usize::from(traffic.source_port) + flow);
    report.iter().filter(|(name, _)| name.contains(&port)).map(|(_, packets)| packets).sum()
}

/// Asserts that all packets of flows are counted somewhere.
fn adds_up(status: &Value) -> u64 {
    let at = &status["flow_statistics"];
    let all: u64 =
        ["packets", "ended", "cleared", "refused"].map(|at_| number(&at[at_])).iter().sum();
    let without_flow = number(&status["frames_not_ip"]) + number(&status["malformed"]);
    let dropped = number(&status["drops"]["flow_limit"]);
    assert_eq!(all, number(&status["received"]) - without_flow - dropped, "{status}");
    all
}

#[test]
fn totals_are_what_was_sent_across_moves_and_resets() {
    let test = "flows::totals_are_what_was_sent_across_moves_and_resets";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = ["in0", "--policy", "sparse", "--cpus", "0-1", "--socket", &socket];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic =
        Traffic { flows: 8, train: 8, pace: Duration::from_micros(10), ..Traffic::default() };
    let source = LiveFrames::new(link, &traffic).unwrap();
    let (stop, mut moves, mut resets) = (AtomicBool::new(false), 0, 0);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 20_000, &stop));
        let stopping = super::Stop(&stop);
        let mut before = BTreeMap::new();
        for round in 0..slice(30, 300) {
            set(&socket, if round % 2 == 0 { "cpus=0-0" } else { "cpus=1-1" });
            let is_reset = round % 10 == 9;
            let status = status(&socket, is_reset);
            let now = packets(&status["largest_flows"]);
            for (flow, packets) in &before {
                assert!(now[flow] >= *packets, "{flow} fell from {packets}: {status}");
            }
            moves = number(&status["moves"]);
            resets += u64::from(is_reset);
            before = if is_reset { BTreeMap::new() } else { now };
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
    });
    assert!(moves > 10 && resets > 2, "{moves} moves, {resets} resets");
    let cleared = status(&socket, true);
    let sent: u64 = source.sent().unwrap().iter().sum();
    assert_eq!(
        adds_up(&cleared),
        number(&cleared["flow_statistics"]["packets"])
            + number(&cleared["flow_statistics"]["cleared"]),
        "{cleared}"
    );
    assert!(adds_up(&cleared) >= sent, "{sent} {cleared}");
    // From here on each flow has exactly the packets that it sends.
    let before = source.sent().unwrap();
    assert_eq!(number(&status(&socket, false)["flow_statistics"]["packets"]), 0);
    source.send(testbed.sender(), 0, 8000).unwrap();
    let last = status(&socket, false);
    let report = packets(&last["largest_flows"]);
    for (flow, (sent, before)) in source.sent().unwrap().iter().zip(&before).enumerate() {
        assert_eq!(of_flow(&report, &traffic, flow), sent - before, "flow {flow}: {last}");
    }
    assert_eq!(number(&last["flow_statistics"]["cleared"]), adds_up(&cleared));
    adds_up(&last);
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "counters are not cleared: {totals:?}");
}

#[test]
fn ended_flow_hands_its_last_counts_on() {
    let test = "flows::ended_flow_hands_its_last_counts_on";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    // There are lines for fewer flows than there are flows.
    let arguments =
        ["in0", "in1", "--policy", "rfs", "--cpus", "0-0", "--flow-cnt", "32", "--socket", &socket];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let (mut ended, mut sent) = (BTreeMap::new(), 0);
    for round in 0..4_u16 {
        let traffic = Traffic {
            flows: 20,
            source_port: 10_000 + 100 * round,
            protocol: if round % 2 == 0 { Protocol::Udp } else { Protocol::Tcp },
            ..Traffic::default()
        };
        let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
        source.send(testbed.sender(), 0, 2000).unwrap();
        sent += source.sent().unwrap().iter().sum::<u64>();
        // A shorter idle time is not enough for another flow to evict this one.
        std::thread::sleep(Duration::from_millis(1500));
        let status = status(&socket, false);
        assert!(adds_up(&status) >= sent, "{sent} {status}");
        ended.extend(packets(&status["ended_flows"]));
    }
    let report = status(&socket, false);
    assert_eq!(packets(&report["ended_flows"]), ended, "viewers take nothing from each other");
    let at = &report["flow_statistics"];
    assert_eq!(number(&at["records_lost"]), 0, "{report}");
    assert_eq!(ended.values().sum::<u64>(), number(&at["ended"]), "{report}");
    // Other flows are those of the host itself, such as multicast reports.
    let ours = |mut flows: BTreeMap<String, u64>| {
        flows.retain(|name, _| name.contains(":20000"));
        flows
    };
    let mut sent = ours(ended);
    assert!(sent.len() > 20 && sent.values().all(|packets| *packets == 100), "{sent:?}");
    // The flows of a deleted interface end.
    let listed = ours(packets(&report["largest_flows"]));
    receiver.ip("link del in0").unwrap();
    let gone = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let status = status(&socket, false);
        (status["interfaces"][0]["state"] == "deleted").then_some(status)
    });
    let gone = gone.expect("it is noticed");
    sent.extend(listed);
    assert_eq!(ours(packets(&gone["ended_flows"])), sent, "{gone}");
    assert!(ours(packets(&gone["largest_flows"])).is_empty(), "{gone}");
    assert!(adds_up(&gone) >= adds_up(&report), "{gone}");
    let totals: Totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

/// All flows have ended in the final report, whichever CPU received them and whatever the policy.
#[test]
fn all_flows_have_ended_in_the_report_at_the_end() {
    let test = "flows::all_flows_have_ended_in_the_report_at_the_end";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let traffic = Traffic { flows: 8, ..Traffic::default() };
    for (policy, cpu) in [("rps", 0), ("rps", 1), ("sparse", 1)] {
        let arguments = ["in0", "--policy", policy, "--cpus", "0-1"];
        let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
        let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
        source.send(testbed.sender(), cpu, 500).unwrap();
        let (report, _) = steering.stop().unwrap();
        assert!(number(&report["flows"]) >= 8, "{report}");
        assert_eq!(report["flows_ended"], report["flows"], "{policy} on CPU {cpu}: {report}");
    }
}

/// Sends far more flows than the default number of slots.
#[test]
fn hundred_thousand_flows_are_counted_where_there_are_slots_for_them() {
    let test = "flows::hundred_thousand_flows_are_counted_where_there_are_slots_for_them";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    const FLOWS: u32 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments =
        ["in0", "--policy", "rps", "--cpus", "0-1", "--flow-cnt", "262144", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: FLOWS, length: 64, ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    // Each flow sends two packets, and the second one finds the flow.
    source.send(testbed.sender(), 0, 2 * u64::from(FLOWS)).unwrap();
    let status = status_at_rest(&socket);
    let at = &status["flow_statistics"];
    println!("{at} of {} bytes", status["memory_bytes"]);
    adds_up(&status);
    let (flows, refused) = (number(&at["flows"]), number(&at["refused"]));
    // A flow is refused if all eight lines that it may use are taken. Depending on the secret of the hash, this
    // concerns about 75 flows.
    assert!(flows > u64::from(FLOWS) * 99 / 100 && refused < u64::from(FLOWS) / 50, "{at}");
    assert_eq!(status["largest_flows"].as_array().unwrap().len(), 1000);
    steering.totals().unwrap();
}
