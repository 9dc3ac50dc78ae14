//! Flows that move because the set of CPUs changes: merged TCP segments that no socket receives.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, OrderCheck, Protocol, Seen, Steering, Testbed, Traffic, skipped, slice,
};

use super::set;

/// Changes the CPUs of a running rxsteer back and forth for a time; returns how often.
fn keep_changing(socket: &str, time: Duration) -> u32 {
    let started = Instant::now();
    let mut changes = 0;
    while started.elapsed() < time {
        let cpus = if changes % 2 == 0 { "cpus=0-0" } else { "cpus=1-1" };
        set(socket, cpus);
        changes += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    changes
}

#[test]
fn changing_cpus_keeps_the_order_of_merged_segments() {
    let test = "guard::changing_cpus_keeps_the_order_of_merged_segments";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let mut all = Vec::new();
    for _ in 0..5 {
        let seen = change_cpus_under_load();
        if seen.merged > 0 && seen.moves > 10 {
            return;
        }
        all.push(seen);
    }
    let reason = format!("in 5 runs flows hardly moved, or GRO merged nothing: {all:?}");
    skipped(&format!("live::{test}"), &reason);
}

/// Sends merged segments of flows that move with each change of the CPUs; none may be late.
fn change_cpus_under_load() -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions { gro: true, ..LinkOptions::default() }).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic = Traffic {
        flows: 8,
        train: 8,
        protocol: Protocol::Tcp,
        pace: Duration::from_micros(2),
        length: 200,
        ..Traffic::default()
    };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let changes = std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 200_000, &stop));
        let stopping = super::Stop(&stop);
        let changes =
            keep_changing(&socket, slice(Duration::from_secs(2), Duration::from_secs(60)));
        drop(stopping);
        sending.join().unwrap().unwrap();
        changes
    });
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!(seen.late, 0, "{changes} changes: {seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    seen
}

#[test]
fn change_away_from_none_waits_for_what_gro_holds() {
    let test = "guard::change_away_from_none_waits_for_what_gro_holds";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions { gro: true, ..LinkOptions::default() }).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    // This is longer than a change takes by itself.
    let timeout = Duration::from_millis(400);
    let file = "/sys/class/net/in0/gro_flush_timeout";
    receiver.write_sys(file, &timeout.as_nanos().to_string()).unwrap();
    let arguments = ["in0", "--policy", "none", "--cpus", "1-1", "--socket", &socket];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic = Traffic { train: 8, protocol: Protocol::Tcp, length: 200, ..Traffic::default() };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let seen = || check.total().unwrap().frames;
    let mut deferred = 0;
    for round in 0..20 {
        // On a busy machine GRO may have passed on the frames before the test counts them.
        if round >= slice(3, 20) && deferred > 0 {
            break;
        }
        source.send(testbed.sender(), 0, 8).unwrap();
        deferred += round * 16 + 8 - seen();
        set(&socket, "policy=rps");
        assert_eq!(seen(), round * 16 + 8, "what passed is in the stack by now");
        source.send(testbed.sender(), 0, 8).unwrap();
        set(&socket, "policy=none");
        std::thread::sleep(timeout + timeout / 2);
    }
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!(seen.late, 0, "{seen:?} {totals:?}");
    assert!(seen.moves > 0, "{seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    if deferred == 0 {
        let reason = "in 20 rounds GRO held no frames when a change began, so none had to wait";
        skipped(&format!("live::{test}"), reason);
    }
}

#[test]
fn flows_at_rest_are_not_deferred() {
    let test = "guard::flows_at_rest_are_not_deferred";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    // A ring counts as at rest some ticks after its last frame, and ticks are late if other processes use the CPU.
    let mut deferred = Vec::new();
    for rest in [1, 4, 16] {
        deferred.push(deferred_after(Duration::from_secs(rest)));
        if deferred.ends_with(&[0]) {
            return;
        }
    }
    panic!("deferred although rings were at rest for 1, 4 and 16 s: {deferred:?}");
}

/// Returns how many frames are deferred when flows move that have sent nothing for a time.
fn deferred_after(rest: Duration) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = ["in0", "--policy", "sparse", "--cpus", "0-0", "--socket", &socket];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic = Traffic { flows: 5, ..Traffic::default() };
    let source = LiveFrames::new(link, &traffic).unwrap();
    // There are few frames, so that the last ones carry no number.
    for cpus in ["cpus=1-1", "cpus=0-0", "cpus=1-1"] {
        source.send(testbed.sender(), 0, 30).unwrap();
        std::thread::sleep(rest);
        set(&socket, cpus);
    }
    source.send(testbed.sender(), 0, 30).unwrap();
    let totals = steering.totals().unwrap();
    assert!(totals.moves >= 15, "{totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    totals.deferred
}
