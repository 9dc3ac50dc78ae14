//! Admission to sparse slots with live traffic, in the kernel and with packet sockets: while a scan sends flows of a
//! single packet, large flows that begin later get a slot each with `after=N`, and none without it.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, LiveFrames, Pass, Steering, Testbed, Traffic};
use serde_json::Value;

use super::{Stop, ask};

/// The frames of the large flows, which send in turn: as many as they send in 1.6 seconds.
const FRAMES: u64 = 8000;
const LARGE_FLOWS: u32 = 4;

/// The frames that an instance has received, and how many of them were in sparse slots.
fn counts(socket: &str) -> (u64, u64) {
    let status: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap();
    let count = |name: &str| status[name].as_u64().unwrap();
    (count("received"), count("in_slots"))
}

/// Returns how many of [`FRAMES`] frames of large flows were in sparse slots, while a scan that began before sends a
/// thousand new flows per second, of one frame each. There are as many slots as large flows.
fn in_slots<T>(policy: &str, begin: impl FnOnce(&Testbed, &[&str]) -> T) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", policy, "--cpus", "0-1", "--socket", &socket];
    let steering = begin(&testbed, &arguments);
    let scan = Traffic { flows: 40_000, pace: Duration::from_millis(1), ..Traffic::default() };
    let scan = LiveFrames::new(testbed.link(), &scan).unwrap();
    let large = Traffic {
        flows: LARGE_FLOWS,
        pace: Duration::from_micros(200),
        source_port: 60_000,
        destination_port: 443,
        ..Traffic::default()
    };
    let large = LiveFrames::new(testbed.link(), &large).unwrap();
    let stop = AtomicBool::new(false);
    let placed = std::thread::scope(|scope| {
        let scanning = scope.spawn(|| scan.send_until(testbed.sender(), 0, 1000, &stop));
        let stopping = Stop(&stop);
        // The scan's first flows may hold slots for a second.
        let started = Instant::now();
        while counts(&socket).0 < 1500 {
            assert!(started.elapsed() < Duration::from_secs(30), "{:?}", counts(&socket));
            std::thread::sleep(Duration::from_millis(50));
        }
        let (received, before) = counts(&socket);
        large.send(testbed.sender(), 1, FRAMES).unwrap();
        while counts(&socket).0 < received + FRAMES {
            assert!(started.elapsed() < Duration::from_secs(60), "{:?}", counts(&socket));
            std::thread::sleep(Duration::from_millis(50));
        }
        let placed = counts(&socket).1 - before;
        drop(stopping);
        scanning.join().unwrap().unwrap();
        placed
    });
    drop(steering);
    placed
}

/// If a scan pauses for a second, as on a machine with other load, slots become free; so there are several attempts.
fn admitted<T>(begin: impl Fn(&Testbed, &[&str]) -> T) {
    let placed = in_slots("sparse:after=8,loops=2", &begin);
    // Three of the large flows have no more frames than this.
    let most_of_three = FRAMES / u64::from(LARGE_FLOWS) * 3;
    assert!((most_of_three + 1..=FRAMES).contains(&placed), "{placed} of {FRAMES} frames");
    let without = (0..3).map(|_| in_slots("sparse:loops=2", &begin)).find(|placed| *placed == 0);
    assert_eq!(without, Some(0), "the scan keeps large flows from slots");
}

#[test]
fn large_flows_get_slots_beside_a_scan() {
    let test = "slots::large_flows_get_slots_beside_a_scan";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    admitted(|testbed, arguments| Steering::start(testbed.receiver(), arguments).unwrap());
}

#[test]
fn large_flows_get_slots_beside_a_scan_by_packet_sockets() {
    let test = "slots::large_flows_get_slots_beside_a_scan_by_packet_sockets";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    admitted(|testbed, arguments| {
        let pass = Pass::attach(testbed.receiver(), &testbed.link().far).unwrap();
        let arguments = [arguments, &["--io", "packet"]].concat();
        (Steering::live(testbed.receiver(), &arguments).unwrap(), pass)
    });
}
