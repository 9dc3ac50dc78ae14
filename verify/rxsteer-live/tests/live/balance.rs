//! Buckets move between CPUs with other work while frames flow, and every flow stays in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, OrderCheck, Steering, Testbed, Traffic, online_cpus, skipped,
};
use serde_json::Value;

use super::{ask, set};

/// How long it may take until the first buckets move, on a machine with other load.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Ends the sender, even if a check fails before the end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The part of `rxsteer status` about buckets; null under policies without buckets.
fn balance(socket: &str) -> Value {
    let report: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap();
    report.get(0).unwrap_or(&report)["balance"].clone()
}

fn held(balance: &Value, cpu: u64) -> u64 {
    let all = balance["by_cpu"].as_array().unwrap();
    let of = all.iter().find(|held| held["cpu"].as_u64() == Some(cpu));
    of.map_or(0, |held| held["buckets"].as_u64().unwrap())
}

/// The balance of the status once buckets have moved, or after some time.
fn until_moved(socket: &str) -> Value {
    let asked = Instant::now();
    let mut shown = balance(socket);
    while shown["moved"].as_u64() == Some(0) && asked.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(200));
        shown = balance(socket);
    }
    shown
}

#[test]
fn buckets_move_and_flows_stay_in_order() {
    let test = "balance::buckets_move_and_flows_stay_in_order";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments =
        ["in0", "--policy", "rps+balance", "--cpus", "0-1", "--no-flow-stats", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic =
        Traffic { flows: 256, random: true, pace: Duration::from_micros(5), ..Traffic::default() };
    let link = testbed.link();
    let check = OrderCheck::new(testbed.receiver(), &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
        // The sender takes all of CPU 0, which also receives.
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 1_000, &stop));
        let end = Stop(&stop);
        let shown = until_moved(&socket);
        assert_eq!(shown["problem"], Value::Null, "{shown}");
        // How many buckets move, and where to, depends on the other work of the CPUs.
        let moved = shown["moved"].as_u64().unwrap();
        assert_eq!(
            (held(&shown, 0) + held(&shown, 1), shown["buckets"].as_u64()),
            (1024, Some(1024))
        );
        if moved == 0 {
            // In this case there is nothing to move.
            skipped(&format!("{test}/moves"), "other work keeps both CPUs equally busy");
        } else {
            let latest = &shown["latest"][0];
            assert_ne!(latest["from"], latest["to"], "{shown}");
            let busy = format!("CPU {} had ", latest["from"]);
            assert!(latest["why"].as_str().unwrap().starts_with(&busy), "{shown}");
        }
        // Changes between policies with and without buckets while frames are under way.
        set(&socket, "policy=rps");
        assert_eq!(balance(&socket), Value::Null);
        set(&socket, "policy=sparse+balance:buckets=256,loops=1");
        assert_eq!(balance(&socket)["buckets"].as_u64(), Some(256));
        drop(end);
        sending.join().unwrap().unwrap();
        moved
    });
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!(seen.late, 0, "{seen:?} {totals:?}");
    assert!(moved == 0 || totals.moves > 0 && seen.moves > 0, "{seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

/// Half of the frames that a router forwards belong to one flow. The sender has CPU 0, so the loads of the CPUs differ
/// as well.
#[test]
fn an_elephant_and_64_mice_stay_in_order_through_a_router() {
    let test = "balance::an_elephant_and_64_mice_stay_in_order_through_a_router";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::router(LinkOptions::default()).unwrap();
    let all = format!("0-{}", online_cpus() - 1);
    let arguments = ["in0", "--policy", "rps+balance", "--cpus", &all, "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let behind = &testbed.links[1].far;
    let traffic = Traffic {
        flows: 65,
        random: true,
        elephant: 50,
        pace: Duration::from_micros(10),
        elsewhere: Some(behind.ipv4.into()),
        ..Traffic::default()
    };
    let link = testbed.link();
    let check = OrderCheck::new(testbed.receiver(), &link.far, traffic.flows).unwrap();
    let forwarded = OrderCheck::new(&testbed.namespaces[2], behind, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let shown = std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 1_000, &stop));
        let end = Stop(&stop);
        let shown = until_moved(&socket);
        // Buckets continue to move while the elephant never pauses.
        std::thread::sleep(Duration::from_secs(1));
        drop(end);
        sending.join().unwrap().unwrap();
        shown
    });
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!(shown["problem"], Value::Null, "{shown}");
    if shown["moved"].as_u64() == Some(0) {
        skipped(&format!("{test}/moves"), "other work keeps the CPUs equally busy");
    }
    assert_eq!(seen.late, 0, "{seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    let flows = check.flows().unwrap();
    let mice: u64 = flows[1..].iter().map(|flow| flow.frames).sum();
    assert!(flows[0].frames > mice * 2 / 3, "{flows:?}");
    assert!(forwarded.total().unwrap().frames > 0, "the router forwards");
}
