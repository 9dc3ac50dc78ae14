//! Rules before the policy: they place live frames, can be changed without reordering, and are counted.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, MovingApplication, OrderCheck, Steering, Testbed, Traffic, skipped,
    slice,
};
use serde_json::Value;

use super::{Stop, ask};

/// The rules of an instance, as in its status.
fn rules(socket: &str) -> Vec<(String, u64)> {
    let status: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap();
    let rules = status["settings"]["rules"].as_array().cloned().unwrap_or_default();
    let rule = |rule: &Value| {
        (rule["rule"].as_str().unwrap().to_owned(), rule["packets"].as_u64().unwrap())
    };
    rules.iter().map(rule).collect()
}

#[test]
fn rules_place_flows_and_change_in_order() {
    let test = "rules::rules_place_flows_and_change_in_order";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let first = ["--rule", "udp src-port 10000-10003 -> 1", "--queue-size", "16384"];
    let arguments =
        [&["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket][..], &first].concat();
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: 8, pace: Duration::from_micros(20), ..Traffic::default() };
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, traffic.flows).unwrap();
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    source.send(testbed.sender(), 0, 4000).unwrap();
    let placed = rules(&socket);
    assert_eq!(placed, [("udp src-port 10000-10003 → 1".to_owned(), 2000)]);
    let matched = |flow: u16| {
        let (from, to) = (testbed.link().near.ipv4, testbed.link().far.ipv4);
        let (port, to_port) = (traffic.source_port + flow, traffic.destination_port);
        let flow = format!("{from}:{port}-{to}:{to_port}/udp");
        let at = ask(&["explain", &flow, "--live", "--json", "--socket", &socket]);
        let at: Value = serde_json::from_str(&at).unwrap();
        at["decisions"][0]["matched_rule"].clone()
    };
    assert_eq!(matched(3), "udp src-port 10000-10003 → 1");
    assert_eq!(matched(4), Value::Null);
    let changes: [&[&str]; 7] = [
        &["rule=udp src-port 10000-10003 -> 1", "rule=udp -> 0-0"],
        &["rule=src-port 10002 -> 0", "rule=udp src-port 10000-10003 -> 1", "policy=sparse"],
        &["rule=none"],
        &["rule=udp src-port 10000-10001,10005 -> pass", "rule=any -> 1"],
        &["rule=udp src-port 10005-10007 -> local", "policy=rps"],
        &["rule=udp -> pass"],
        &["rule=udp src-port 10000-10003 -> 1", "policy=none"],
    ];
    let stop = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 5_000, &stop));
        let stopping = Stop(&stop);
        let (started, mut made) = (Instant::now(), 0);
        let time = slice(Duration::from_secs(4), Duration::from_secs(60));
        while started.elapsed() < time || made < changes.len() {
            let change = changes[made % changes.len()];
            ask(&[&["set", "--socket", &socket], change].concat());
            made += 1;
            std::thread::sleep(Duration::from_millis(30));
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
        made
    });
    let seen = check.drained().unwrap();
    assert_eq!(seen.late, 0, "{made} changes: {seen:?}");
    assert!(seen.moves > 8, "{made} changes: {seen:?}");
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

/// Numbered frames of flows to two sockets of an application that moves between two CPUs. A rule matches only the first
/// flow, which follows the application; the policy places the second one by hash, so it does not follow. All stay in
/// order, even while the rule is added and removed, together with the tracepoints of sockets.
#[test]
fn a_flow_follows_its_application_by_a_rule() {
    let test = "rules::a_flow_follows_its_application_by_a_rule";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let traffic = Traffic {
        flows: 4,
        listeners: 2,
        train: 4,
        pace: Duration::from_micros(5),
        ..Traffic::default()
    };
    let port = traffic.destination_port;
    let by_rule = |policy: &str| format!("udp dst-port {port} -> policy {policy}");
    let arguments =
        ["in0", "--policy", "rps", "--cpus", "0-1", "--queue-size", "2048", "--socket", &socket];
    let steering = Steering::start(
        testbed.receiver(),
        &[&arguments[..], &["--rule", &by_rule("rfs")]].concat(),
    );
    let steering = steering.unwrap();
    let link = testbed.link();
    let pair = |flow: u16| -> (SocketAddr, SocketAddr) {
        let to = (link.far.ipv4, traffic.destination_port + flow);
        (to.into(), (link.near.ipv4, traffic.source_port + flow).into())
    };
    let application =
        MovingApplication::start(testbed.receiver(), &[pair(0), pair(1)], &[0, 1], 64).unwrap();
    let check = OrderCheck::new(testbed.receiver(), &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    source.send(testbed.sender(), 0, slice(100_000, 3_000_000)).unwrap();
    let seen = check.drained().unwrap();
    assert_eq!(seen.late, 0, "{seen:?}");
    let moves_of = |flow: u16| {
        let status = ask(&["status", "--json", "--flows", "9", "--socket", &socket]);
        let status: Value = serde_json::from_str(&status).unwrap();
        let flows = status["largest_flows"].as_array().cloned().unwrap_or_default();
        let from = format!(":{} -> ", traffic.source_port + flow);
        let of = |flow: &&Value| flow["flow"].as_str().is_some_and(|flow| flow.contains(&from));
        flows.iter().find(of).unwrap_or_else(|| panic!("{status}"))["moves"].as_u64().unwrap()
    };
    assert_eq!(moves_of(1), 0, "the hash has one CPU for it");
    let followed = moves_of(0);
    let stop = AtomicBool::new(false);
    let policies = ["rfs", "rps", "rfs+sparse", "sparse"].map(by_rule);
    let made = std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 5_000, &stop));
        let stopping = Stop(&stop);
        let (started, mut made) = (Instant::now(), 0);
        let time = slice(Duration::from_secs(4), Duration::from_secs(60));
        while started.elapsed() < time || made < 2 * policies.len() {
            let rule = &policies[made / 2 % policies.len()];
            let rule = if made % 2 == 0 { "none" } else { rule };
            ask(&["set", "--socket", &socket, &format!("rule={rule}")]);
            made += 1;
            std::thread::sleep(Duration::from_millis(30));
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
        made
    });
    let (seen, heard) = (check.drained().unwrap(), application.finish().unwrap());
    assert_eq!((seen.late, heard.late, heard.repeated), (0, 0, 0), "{made}: {seen:?} {heard:?}");
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    if followed < 3 {
        let reason = format!("the flow moved {followed} times, since it was hardly read");
        skipped(&format!("live::{test}"), &reason);
    }
}

/// A rule that stays keeps its count when others change; a new one begins at 0.
#[test]
fn hits_are_kept_while_a_rule_stays() {
    let test = "rules::hits_are_kept_while_a_rule_stays";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments =
        ["in0", "--policy", "none", "--rule", "src-port 10000 -> 1", "--socket", &socket];
    let _steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: 4, pace: Duration::from_micros(50), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, traffic.flows).unwrap();
    source.send(testbed.sender(), 0, 400).unwrap();
    assert_eq!(rules(&socket), [("src-port 10000 → 1".to_owned(), 100)]);
    let change = ["rule=src-port 10001 -> 0", "rule=src-port 10000 -> 1"];
    ask(&[&["set", "--socket", &socket], &change[..]].concat());
    source.send(testbed.sender(), 0, 400).unwrap();
    let counted = [("src-port 10001 → 0".to_owned(), 100), ("src-port 10000 → 1".to_owned(), 200)];
    assert_eq!(rules(&socket), counted);
    ask(&["set", "--socket", &socket, "policy=rps"]);
    assert_eq!(rules(&socket), counted, "another policy has the same rules");
    assert_eq!(check.drained().unwrap().late, 0);
}

/// On kernels where generic mode works (before Linux 6.12), rules count and place frames in it, too.
#[test]
fn rules_hold_in_generic_mode() {
    let test = "rules::rules_hold_in_generic_mode";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    // Without native XDP a veth accepts frames of this kind only with GRO on, which must not merge them here.
    let testbed = Testbed::hosts(LinkOptions { gro: true, ..LinkOptions::default() }).unwrap();
    testbed.receiver().run("ethtool -K in0 rx-gro-list off").unwrap();
    let rule = ["--rule", "udp src-port 10000-10003 -> 1", "--rule", "src-port 10004 -> pass"];
    let arguments = ["in0", "--policy", "none", "--mode", "generic", "--socket", &socket];
    let started = Steering::start(testbed.receiver(), &[&arguments[..], &rule].concat());
    let steering = match started {
        Ok(steering) => steering,
        Err(why) if why.to_string().contains("loses frames in generic mode") => {
            let reason = "this kernel loses frames in generic mode, so run is refused";
            return skipped(&format!("live::{test}"), reason);
        }
        Err(why) => panic!("{why}"),
    };
    let traffic = Traffic { flows: 8, pace: Duration::from_micros(50), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    // It shows when frames have arrived, but not whether in order: it sees each frame both before generic XDP and after
    // the ring.
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, traffic.flows).unwrap();
    source.send(testbed.sender(), 0, 4000).unwrap();
    check.drained().unwrap();
    let counted = [
        ("udp src-port 10000-10003 → 1".to_owned(), 2000),
        ("src-port 10004 → pass".to_owned(), 500),
    ];
    assert_eq!(rules(&socket), counted);
    ask(&["set", "--socket", &socket, "rule=udp src-port 10005-10007 -> 1"]);
    source.send(testbed.sender(), 0, 800).unwrap();
    check.drained().unwrap();
    assert_eq!(rules(&socket), [("udp src-port 10005-10007 → 1".to_owned(), 300)]);
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    assert!(totals.redirected >= 2300, "{totals:?}");
}
