//! Tests of the lab's own instruments, which must be reliable before they judge anything else.
#![cfg(feature = "bpf")]

use std::time::Duration;

use rxsteer_lab::{
    Family, Fixed, FixedRoute, LinkOptions, LiveFrames, MovingApplication, OrderCheck, Pass,
    Protocol, Seen, Testbed, Traffic, alone, missing, online_cpus, skipped,
};

const FRAMES: u64 = 20_000;

/// Whether `test` can run here; prints the reason if not.
fn can_run(test: &str) -> bool {
    let reason = missing(&["ip", "ethtool", "sysctl"]);
    if let Some(reason) = &reason {
        skipped(&format!("testbed::{test}"), reason);
    }
    reason.is_none()
}

/// Whether most of the frames arrived. Normally all do; but while a stray packet makes the receiver run on the other
/// CPU, its queue of 256 can overflow.
fn most(frames: u64) -> bool {
    (FRAMES / 2..=FRAMES).contains(&frames)
}

/// Sends frames over a pair, and returns what the check has seen.
fn sent(options: LinkOptions, traffic: &Traffic) -> Seen {
    let testbed = Testbed::hosts(options).unwrap();
    let far = &testbed.link().far;
    let _pass = Pass::attach(testbed.receiver(), far).unwrap();
    let check = OrderCheck::new(testbed.receiver(), far, traffic.flows).unwrap();
    let frames = LiveFrames::new(testbed.link(), traffic).unwrap();
    frames.send(testbed.sender(), 0, FRAMES).unwrap();
    assert_eq!(frames.sent().unwrap().iter().sum::<u64>(), FRAMES);
    let seen = check.drained().unwrap();
    assert_eq!(check.by_cpu().unwrap().iter().sum::<u64>(), seen.frames);
    seen
}

#[test]
fn every_live_frame_is_seen_in_order() {
    if !can_run("every_live_frame_is_seen_in_order") {
        return;
    }
    let _alone = alone();
    for (family, protocol) in [
        (Family::V4, Protocol::Udp),
        (Family::V6, Protocol::Udp),
        (Family::V4, Protocol::Tcp),
        (Family::V6, Protocol::Tcp),
    ] {
        let traffic = Traffic { flows: 5000, train: 3, family, protocol, ..Traffic::default() };
        let seen = sent(LinkOptions::default(), &traffic);
        assert_eq!(
            (seen.frames, seen.late, seen.merged),
            (FRAMES, 0, 0),
            "{family:?} {protocol:?}"
        );
    }
}

#[test]
fn merged_segments_are_counted_as_frames() {
    if !can_run("merged_segments_are_counted_as_frames") {
        return;
    }
    let _alone = alone();
    for family in [Family::V4, Family::V6] {
        let traffic =
            Traffic { flows: 2, train: 8, family, protocol: Protocol::Tcp, ..Traffic::default() };
        let seen = sent(LinkOptions { gro: true, ..LinkOptions::default() }, &traffic);
        assert_eq!(seen.late, 0, "{family:?}");
        assert!(most(seen.frames), "{family:?}: {seen:?}");
        // Only segments with correct checksums are merged.
        assert!(seen.merged > FRAMES / 100 && seen.buffers < FRAMES / 2, "{family:?}: {seen:?}");
    }
}

#[test]
fn late_frames_are_found() {
    if !can_run("late_frames_are_found") {
        return;
    }
    let _alone = alone();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let far = &testbed.link().far;
    let _pass = Pass::attach(testbed.receiver(), far).unwrap();
    let check = OrderCheck::new(testbed.receiver(), far, 1).unwrap();
    // The second source begins again at 0: each of its frames comes after a later one.
    for frames in [1000, 10] {
        let source = LiveFrames::new(testbed.link(), &Traffic::default()).unwrap();
        source.send(testbed.sender(), 0, frames).unwrap();
    }
    let seen = check.drained().unwrap();
    assert!(seen.late >= 5 && seen.furthest >= 500, "{seen:?}");
}

/// The number of frames that are late when every 16th is sent to the other CPU.
fn late_of_unguarded(options: LinkOptions, frames: u64) -> u64 {
    let testbed = Testbed::hosts(options).unwrap();
    let far = &testbed.link().far;
    let route = FixedRoute { cpu: 0, other: 1, every: 16, drop: false, queue_size: 2048 };
    let _fixed = Fixed::attach(testbed.receiver(), far, route).unwrap();
    let check = OrderCheck::new(testbed.receiver(), far, 1).unwrap();
    let source = LiveFrames::new(testbed.link(), &Traffic::default()).unwrap();
    source.send(testbed.sender(), 0, frames).unwrap();
    check.drained().unwrap().late
}

#[test]
fn moving_without_a_guard_makes_packets_late() {
    if !can_run("moving_without_a_guard_makes_packets_late") {
        return;
    }
    if online_cpus() < 2 {
        skipped("testbed::moving_without_a_guard_makes_packets_late", "there is one CPU only");
        return;
    }
    let _alone = alone();
    for gro in [false, true] {
        let late = late_of_unguarded(LinkOptions { gro, ..LinkOptions::default() }, 100_000);
        // The prototypes had tens of thousands of late packets; none at all would mean that the check does not work.
        assert!(late > 0, "gro {gro}");
    }
}

#[test]
fn moving_application_reads_what_arrives() {
    if !can_run("moving_application_reads_what_arrives") {
        return;
    }
    let _alone = alone();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (near, far) = (&testbed.link().near, &testbed.link().far);
    let _pass = Pass::attach(testbed.receiver(), far).unwrap();
    let traffic =
        Traffic { flows: 8, listeners: 2, pace: Duration::from_micros(20), ..Traffic::default() };
    let pairs: Vec<_> = (0..2)
        .map(|flow| ((far.ipv4, 20_000 + flow).into(), (near.ipv4, 10_000 + flow).into()))
        .collect();
    let application = MovingApplication::start(testbed.receiver(), &pairs, &[0], 100).unwrap();
    let frames = LiveFrames::new(testbed.link(), &traffic).unwrap();
    frames.send(testbed.sender(), 0, 8000).unwrap();
    let heard = application.finish().unwrap();
    // The reader shares the CPU with the sender, so a full socket may lose datagrams, which are then skipped numbers.
    assert!(heard.datagrams > 0 && heard.moves > 0, "{heard:?}");
    assert_eq!((heard.late, heard.repeated), (0, 0));
    assert!(heard.datagrams + heard.skipped <= 2000, "{heard:?}");
}

#[test]
fn router_forwards_live_frames() {
    if !can_run("router_forwards_live_frames") {
        return;
    }
    let _alone = alone();
    let testbed = Testbed::router(LinkOptions { gro: true, ..LinkOptions::default() }).unwrap();
    let last = &testbed.links[1].far;
    let check = OrderCheck::new(&testbed.namespaces[2], last, 2).unwrap();
    let traffic = Traffic { flows: 2, elsewhere: Some(last.ipv4.into()), ..Traffic::default() };
    let frames = LiveFrames::new(testbed.link(), &traffic).unwrap();
    frames.send(testbed.sender(), 0, FRAMES).unwrap();
    let seen = check.drained().unwrap();
    assert_eq!(seen.late, 0);
    assert!(most(seen.frames), "{seen:?}");
}
