//! Every received frame passes, is delivered or is dropped, exactly, for any size of the ring.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rxsteer_lab::{
    Family, LinkOptions, LiveFrames, OrderCheck, Steering, Testbed, Totals, Traffic, rxsteer, slice,
};

/// Floods an interface that is steered to `cpus`; returns the counters of rxsteer, and the frames that the stack saw.
fn flood(queue_size: &str, cpus: &str, policy: &str, family: Family) -> (Totals, u64) {
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = ["in0", "--policy", policy, "--cpus", cpus, "--queue-size", queue_size];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic = Traffic { flows: 1000, train: 8, family, ..Traffic::default() };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    source.send(testbed.sender(), 0, slice(100_000, 1_000_000)).unwrap();
    let seen = check.drained().unwrap();
    assert_eq!(seen.late, 0, "ring {queue_size}: {seen:?}");
    (steering.totals().unwrap(), seen.frames)
}

#[test]
fn nothing_is_unaccounted_for() {
    let Some(_alone) = super::ready("conservation::nothing_is_unaccounted_for", &[], 2) else {
        return;
    };
    for (queue_size, family) in [
        ("8", Family::V4),
        ("64", Family::V6),
        ("192", Family::V4),
        ("2048", Family::V6),
        ("16384", Family::V4),
    ] {
        let (totals, seen) = flood(queue_size, "0-1", "rps", family);
        assert_eq!(totals.unaccounted(), 0, "ring {queue_size}: {totals:?}");
        assert!(totals.received > 50_000, "ring {queue_size}: {totals:?}");
        // A few more frames than the numbered ones arrive: frames that hosts send by themselves.
        let more = (totals.passed + totals.delivered).saturating_sub(seen);
        assert!(more < 1000, "ring {queue_size}: {seen} seen by the stack, {totals:?}");
    }
}

#[test]
fn what_a_small_ring_refuses_is_counted() {
    let Some(_alone) = super::ready("conservation::what_a_small_ring_refuses_is_counted", &[], 1)
    else {
        return;
    };
    // The receiving CPU is also the target: no thread empties its ring of 8 while a list of up to 64 frames is put in.
    let (totals, _) = flood("8", "0-0", "rps", Family::V4);
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    assert!(totals.dropped() > 0, "{totals:?}");
}

#[test]
fn policy_none_passes_everything() {
    let Some(_alone) = super::ready("conservation::policy_none_passes_everything", &[], 1) else {
        return;
    };
    let (totals, _) = flood("2048", "0-0", "none", Family::V4);
    assert_eq!((totals.unaccounted(), totals.redirected), (0, 0), "{totals:?}");
    assert!(totals.passed > 50_000, "{totals:?}");
}

/// The drops that `rxsteer status` reports, one reading after the other, until it is stopped.
fn read_drops(socket: &str, stop: &AtomicBool) -> Vec<u64> {
    let mut readings = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut status = Command::new(rxsteer().unwrap());
        let output = status.args(["status", "--json", "--socket", socket]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let status = serde_json::from_slice(&output.stdout).unwrap();
        readings.push(Totals::of(&status).unwrap().dropped());
    }
    readings
}

#[test]
fn drops_never_get_fewer_from_one_reading_to_the_next() {
    let test = "conservation::drops_never_get_fewer_from_one_reading_to_the_next";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    // Threads of the ordinary class, since threads of other classes empty their rings in time.
    let ring = ["--queue-size", "64", "--threads", "other"];
    let to = ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let arguments = [&to[..], &ring].concat();
    let steering = Steering::start(receiver, &arguments).unwrap();
    let source = LiveFrames::new(link, &Traffic { flows: 64, ..Traffic::default() }).unwrap();
    let stop = AtomicBool::new(false);
    let readings = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_drops(&socket, &stop));
        let stopping = super::Stop(&stop);
        // Short lists, so that a list often ends while drops are read.
        for _ in 0..slice(50, 500) {
            source.send(testbed.sender(), 0, 2000).unwrap();
        }
        drop(stopping);
        reading.join().unwrap()
    });
    assert!(readings.is_sorted(), "{readings:?}");
    let totals = steering.totals().unwrap();
    let last = *readings.last().unwrap();
    assert!(last > 0 && totals.dropped() >= last, "{last} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}
