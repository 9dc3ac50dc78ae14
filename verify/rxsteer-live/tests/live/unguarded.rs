//! Policies that never move a flow do not use the guard; changes keep the order nevertheless.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rxsteer_lab::{
    LinkOptions, LiveFrames, OrderCheck, Protocol, Steering, Testbed, Traffic, pin, ring_threads,
    skipped, slice,
};
use serde_json::Value;

use super::{ask, set};

/// How many readings of the status to take until frames are unguarded, which takes some ticks. Each reading takes at
/// least one tick.
const MAX_POLLS: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Ends the sender, even if a check fails before the end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The status of a running rxsteer.
fn status(socket: &str) -> Value {
    let report: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap();
    // The report is one instance, or a list of instances.
    report.get(0).unwrap_or(&report).clone()
}

fn is_guarded(socket: &str) -> bool {
    status(socket)["guarded"] != false
}

/// Waits until frames are unguarded.
fn wait_until_unguarded(socket: &str) {
    let polls = (0..MAX_POLLS).find(|_| {
        let is_over = !is_guarded(socket);
        if !is_over {
            std::thread::sleep(POLL_INTERVAL);
        }
        is_over
    });
    assert!(
        polls.is_some(),
        "frames are still guarded after {MAX_POLLS} polls: {}",
        status(socket)
    );
}

/// Changes away from unguarded frames, again and again under load. Before each change, some or all frames go to a CPU
/// that cannot keep up. No frame may be late.
fn changes_keep_order(test: &str, cpus: &str, gro: bool, protocol: Protocol, more: &[&str]) {
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions { gro, ..LinkOptions::default() }).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    // Threads of this class can get a lower priority.
    let ordinary = ["--threads", "other"];
    let start = ["in0", "--policy", "rps", "--cpus", cpus, "--socket", &socket];
    let steering = Steering::start(receiver, &[&start, &ordinary[..], more].concat()).unwrap();
    // There are enough flows that most of them send nothing during a change of rules.
    let traffic = Traffic {
        flows: 4096,
        train: 4,
        protocol,
        length: 200,
        pace: Duration::from_micros(2),
        ..Traffic::default()
    };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    // Policies that remember flows, and policies that do not; CPUs, rings, and settings that need the guard.
    let away = [
        "cpus=1-1",
        "policy=sparse cpus=1-1",
        "policy=bound:0=1",
        "cpus=1-1 queue-size=512",
        "policy=rfs+sparse cpus=0-1",
        "policy=none",
    ];
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 100_000, &stop));
        let ends = Ends(&stop);
        for round in 0..slice(away.len(), 120) {
            // The frames of CPU 0 then wait far longer than a change takes by itself.
            for thread in ring_threads(steering.id()).unwrap() {
                if thread.cpu == 0 {
                    // A ring of former settings, and its thread, may end meanwhile.
                    let gone = || !Path::new("/proc").join(thread.process.to_string()).exists();
                    thread
                        .set_lowest_priority()
                        .or_else(|error| if gone() { Ok(()) } else { Err(error) })
                        .unwrap();
                }
            }
            wait_until_unguarded(&socket);
            let away = away[round % away.len()];
            set(&socket, away);
            if away.starts_with("cpus") || away.starts_with("policy=bound") {
                wait_until_unguarded(&socket);
            }
            set(&socket, &format!("policy=rps cpus={cpus} queue-size=2048"));
        }
        drop(ends);
        sending.join().unwrap().unwrap();
    });
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!(seen.late, 0, "{seen:?} {totals:?}");
    assert!(gro || seen.merged == 0, "{seen:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    if seen.moves <= 20 || (gro && seen.merged == 0) {
        skipped(
            &format!("live::{test}"),
            &format!("flows hardly moved, or GRO merged nothing: {seen:?}"),
        );
    }
}

#[test]
fn changes_away_from_unguarded_frames_keep_order() {
    let test = "unguarded::changes_away_from_unguarded_frames_keep_order";
    changes_keep_order(test, "0-0", false, Protocol::Udp, &["--no-flow-stats"]);
}

#[test]
fn merged_unguarded_segments_keep_order() {
    let test = "unguarded::merged_unguarded_segments_keep_order";
    changes_keep_order(test, "0-0", true, Protocol::Tcp, &[]);
}

#[test]
fn unguarded_segments_keep_order_by_the_rule_for_short_ticks() {
    // If a second has 1000 ticks, GRO's flushes must be detected in another way. As long as ticks are long here, only
    // the model (rxsteer-bpf-native) shows whether that is right.
    let test = "unguarded::unguarded_segments_keep_order_by_the_rule_for_short_ticks";
    changes_keep_order(test, "0-0", true, Protocol::Tcp, &["--as-with-short-ticks"]);
}

#[test]
fn unguarded_flows_that_share_a_slot_keep_order() {
    // Each slot has 64 flows; those of CPU 1 are fast, and those of CPU 0 wait.
    let test = "unguarded::unguarded_flows_that_share_a_slot_keep_order";
    changes_keep_order(test, "0-1", false, Protocol::Udp, &["--flow-cnt", "64"]);
}

/// Changes while a ring is never empty, so that its thread does not sleep. It must publish what it has delivered
/// nevertheless.
fn busy_ring_drains_past_a_snapshot(test: &str, more: &[&str]) {
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    // Everything that is started here is also pinned to CPU 1, so that nothing delays the sender on the other CPU.
    pin(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions { gro: true, ..LinkOptions::default() }).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    // Its thread must not be faster than the sender.
    let ordinary = ["--threads", "other"];
    let start = ["in0", "--policy", "rps", "--cpus", "1-1", "--socket", &socket];
    let steering = Steering::start(receiver, &[&start, &ordinary[..], more].concat()).unwrap();
    let traffic = Traffic { flows: 64, train: 4, length: 200, ..Traffic::default() };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let threads = ring_threads(steering.id()).unwrap();
    let thread = threads.iter().find(|thread| thread.cpu == 1).unwrap();
    let sleeps = || thread.sleeps().unwrap();
    // Whether frames were unguarded although the thread did not sleep.
    let mut without_sleep = false;
    std::thread::scope(|scope| {
        // Its ring is empty only between two calls.
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 4_000_000, &stop));
        let ends = Ends(&stop);
        for _ in 0..slice(5, 200) {
            let before = sleeps();
            set(&socket, "policy=sparse cpus=1-1");
            set(&socket, "policy=rps cpus=1-1");
            wait_until_unguarded(&socket);
            without_sleep |= sleeps() == before;
            if without_sleep && slice(true, false) {
                break;
            }
        }
        drop(ends);
        sending.join().unwrap().unwrap();
    });
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!((seen.late, totals.unaccounted()), (0, 0), "{seen:?} {totals:?}");
    if !without_sleep {
        let reason = "the ring's thread slept before each snapshot was passed; it takes an idle CPU for the sender";
        skipped(&format!("live::{test}"), reason);
    }
}

#[test]
fn busy_ring_drains_past_a_snapshot_by_the_rule_for_long_ticks() {
    let test = "unguarded::busy_ring_drains_past_a_snapshot_by_the_rule_for_long_ticks";
    busy_ring_drains_past_a_snapshot(test, &[]);
}

#[test]
fn busy_ring_drains_past_a_snapshot_by_the_rule_for_short_ticks() {
    let test = "unguarded::busy_ring_drains_past_a_snapshot_by_the_rule_for_short_ticks";
    busy_ring_drains_past_a_snapshot(test, &["--as-with-short-ticks"]);
}

#[test]
fn losses_are_reported_while_frames_flow() {
    let test = "unguarded::losses_are_reported_while_frames_flow";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    // The sending CPU is also the target.
    let start =
        ["in0", "--policy", "rps", "--cpus", "0-0", "--queue-size", "64", "--socket", &socket];
    let ordinary = ["--threads", "other"];
    let steering = Steering::start(receiver, &[&start[..], &ordinary].concat()).unwrap();
    wait_until_unguarded(&socket);
    let traffic = Traffic { flows: 8, ..Traffic::default() };
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let report = || {
        let status = status(&socket);
        let number = |value: &Value| value.as_u64().unwrap();
        (number(&status["drops"]["ring_full"]), number(&status["waiting"]), status)
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 100_000, &stop));
        let ends = Ends(&stop);
        let mut before = 0;
        for _ in 0..slice(5, 50) {
            std::thread::sleep(Duration::from_millis(200));
            let (lost, waiting, status) = report();
            assert_eq!(status["guarded"], false, "{status}");
            assert!(lost >= before, "what was lost was taken back: {before}, then {status}");
            // The ring, one batch of its thread, and for both CPUs a bulk queue and the frame that finds it full.
            assert!(waiting <= 64 + 8 + 2 * 9, "more waits than there is room for: {status}");
            before = lost;
        }
        assert!(before > 0, "nothing was lost");
        drop(ends);
        sending.join().unwrap().unwrap();
    });
    let (lost, waiting, status) = report();
    let totals = steering.totals().unwrap();
    assert_eq!((totals.unaccounted(), waiting), (0, 0), "{status} {totals:?}");
    assert_eq!(totals.dropped(), lost, "{totals:?}");
}
