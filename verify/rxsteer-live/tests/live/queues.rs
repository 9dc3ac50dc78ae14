//! CPU maps and bindings of single interfaces and RX queues, and flows that stay where they are received.
//!
//! Frames that an XDP program sends into a veth arrive on the RX queue of the sending CPU.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_lab::{
    LinkOptions, LiveFrames, MovingApplication, OrderCheck, Steering, Testbed, Totals, Traffic,
    rxsteer, slice,
};
use serde_json::Value;

use super::{ask, set};

const TWO_QUEUES: LinkOptions = LinkOptions { queues: 2, gro: false, mtu: 1500 };

/// Enough flows for each CPU of a map to get some.
fn traffic() -> Traffic {
    Traffic { flows: 64, pace: Duration::from_micros(4), ..Traffic::default() }
}

/// By CPU: the frames that were delivered there, or lost on the way there, without the CPUs that got no frames.
fn sent_to(report: &Value) -> BTreeMap<u64, u64> {
    let sent = |cpu: &Value| {
        let drops = cpu["drops"].as_object().unwrap().values().filter_map(Value::as_u64);
        cpu["delivered"].as_u64().unwrap() + drops.sum::<u64>()
    };
    let cpus = report["cpus"].as_array().unwrap().iter();
    cpus.map(|cpu| (cpu["cpu"].as_u64().unwrap(), sent(cpu)))
        .filter(|(_, sent)| *sent > 0)
        .collect()
}

/// Frames that a host may send by itself (multicast listener reports), which may be counted as well.
const STRAY: u64 = 10;

/// Asserts how many frames were sent to each CPU; other CPUs may only have stray frames. A slow machine may lose some
/// frames before they are received, where its queue is full.
fn assert_sent(report: &Value, expected: &[(u64, u64)]) {
    let sent = sent_to(report);
    let of = |cpu: &u64| expected.iter().find(|(known, _)| known == cpu).map_or(0, |known| known.1);
    let fits = |(cpu, sent): (&u64, &u64)| (of(cpu) * 9 / 10..=of(cpu) + STRAY).contains(sent);
    let all = expected.iter().all(|(cpu, _)| sent.contains_key(cpu));
    assert!(all && sent.iter().all(fits), "{expected:?} {sent:?} {report}");
    assert_eq!(Totals::of(report).unwrap().unaccounted(), 0, "{report}");
}

/// Sends `frames` frames on a CPU through a link, and waits until they have arrived.
fn send(testbed: &Testbed, link: usize, cpu: usize, frames: u64) {
    let link = &testbed.links[link];
    let check = OrderCheck::new(testbed.receiver(), &link.far, traffic().flows).unwrap();
    LiveFrames::new(link, &traffic()).unwrap().send(testbed.sender(), cpu, frames).unwrap();
    assert_eq!(check.drained().unwrap().late, 0);
}

#[test]
fn maps_of_queues_hold_for_their_queues() {
    let Some(_alone) = super::ready("queues::maps_of_queues_hold_for_their_queues", &[], 2) else {
        return;
    };
    let testbed = Testbed::hosts(TWO_QUEUES).unwrap();
    let policies = ["rps", "sparse", "rfs"].into_iter();
    for policy in policies.filter(|policy| *policy != "rfs" || super::has_rfs()) {
        let arguments = [
            "in0",
            "--policy",
            policy,
            "--cpus",
            "0-1",
            "--rps-map",
            "in0:0=1",
            "--rps-map",
            "1=0",
        ];
        let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
        send(&testbed, 0, 0, 30_000);
        send(&testbed, 0, 1, 20_000);
        let report = steering.stop().unwrap().0;
        assert_sent(&report, &[(0, 20_000), (1, 30_000)]);
    }
}

#[test]
fn queues_are_bound_by_interface() {
    let Some(_alone) = super::ready("queues::queues_are_bound_by_interface", &[], 2) else {
        return;
    };
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    let arguments = ["in0", "in1", "--policy", "bound:in0:0=1,0=0"];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    steering.wait_for_stderr("steering in1", Duration::from_secs(10)).unwrap();
    send(&testbed, 0, 0, 30_000);
    send(&testbed, 1, 0, 20_000);
    let report = steering.stop().unwrap().0;
    assert_sent(&report, &[(0, 20_000), (1, 30_000)]);
}

#[test]
fn interface_that_appears_is_bound() {
    let Some(_alone) = super::ready("queues::interface_that_appears_is_bound", &[], 2) else {
        return;
    };
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in*", "--policy", "bound:in1:0=1,in1:7=0"];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    steering.wait_for_stderr("steering in1", Duration::from_secs(20)).unwrap();
    let stderr = steering.stderr();
    assert!(stderr.contains("in1 has 1 RX queue; without effect: policy bound:in1:7"), "{stderr}");
    send(&testbed, 1, 0, 10_000);
    // A new interface also announces its addresses.
    let report = steering.stop().unwrap().0;
    assert_sent(&report, &[(1, 10_000)]);
}

#[test]
fn queues_that_are_not_there_are_refused() {
    let Some(_alone) = super::ready("queues::queues_that_are_not_there_are_refused", &[], 1) else {
        return;
    };
    let testbed = Testbed::hosts(TWO_QUEUES).unwrap();
    let timeout = Duration::from_secs(20);
    for (arguments, why) in [
        (&["--policy", "bound:7=0"][..], "there is no RX queue 7: in0 has 2 RX queues"),
        (&["--policy", "bound:in0:2=0"], "there is no RX queue 2: in0 has 2 RX queues"),
        (&["--policy", "bound:in1:0=0"], "in1 is not steered here, but in0"),
        (&["--policy", "rps", "--rps-map", "in0:2=0"], "there is no RX queue 2"),
        (&["--policy", "rps", "--rps-map", "in*=0"], "'in*' is a pattern"),
        (&["--policy", "rps", "--rps-map", "in0:1=999"], "this host has no CPU 999"),
        (&["--policy", "rfs", "--rfs-cpus", "999"], "this host has no CPU 999"),
    ] {
        let arguments = [&["in0"], arguments].concat();
        let mut steering = Steering::begin(testbed.receiver(), &arguments).unwrap();
        let status = steering.wait(timeout).unwrap();
        steering.wait_for_stderr(why, timeout).unwrap();
        assert_eq!(status.code(), Some(2), "{}", steering.stderr());
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let steering = Steering::start(testbed.receiver(), &["in0", "--socket", &socket]).unwrap();
    for (setting, why) in [
        ("policy=bound:2=0", "there is no RX queue 2"),
        ("policy=bound:in7:0=0", "in7 is not steered here"),
        ("rps-map=in0:2=0", "there is no RX queue 2"),
        ("rfs-cpus=999", "this host has no CPU 999"),
        ("else=there", "choose one of 'hash', 'local'"),
    ] {
        let mut command = std::process::Command::new(rxsteer().unwrap());
        let output = command.args(["set", "--socket", &socket, setting]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
    set(&socket, "policy=bound:in0:1=0 rps-map=in0:0=0 rps-map=1=0 else=local rfs-cpus=0");
    let status: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
    let settings = &status["settings"];
    assert_eq!(settings["policy"], "bound:in0:1=0");
    assert_eq!(settings["rps_maps"], serde_json::json!(["in0:0=0", "1=0"]));
    assert_eq!((&settings["else"], &settings["rfs_cpus"]), (&"local".into(), &"0".into()));
    steering.totals().unwrap();
}

#[test]
fn flows_without_a_desired_cpu_stay_where_they_are_received() {
    let test = "queues::flows_without_a_desired_cpu_stay_where_they_are_received";
    let Some(_alone) = super::ready_for_rfs(test) else { return };
    let testbed = Testbed::hosts(TWO_QUEUES).unwrap();
    let arguments = ["in0", "--policy", "rfs", "--else", "local", "--cpus", "0-0"];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    send(&testbed, 0, 0, 10_000);
    send(&testbed, 0, 1, 20_000);
    let report = steering.stop().unwrap().0;
    assert_sent(&report, &[(0, 10_000), (1, 20_000)]);
    assert!(report["local"].as_u64().unwrap() >= 27_000, "{report}");
}

/// An application moves between two CPUs; `more` sets where its flow may follow. Returns the report, and how many
/// frames had the application's CPU as their target.
fn followed(more: &[&str]) -> (Value, u64) {
    let testbed = Testbed::hosts(TWO_QUEUES).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = [&["in0", "--policy", "rfs", "--cpus", "0-0"], more].concat();
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic = Traffic { listeners: 1, pace: Duration::from_micros(10), ..Traffic::default() };
    let pair: (SocketAddr, SocketAddr) = (
        (link.far.ipv4, traffic.destination_port).into(),
        (link.near.ipv4, traffic.source_port).into(),
    );
    let application = MovingApplication::start(receiver, &[pair], &[0, 1], 256).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let check = OrderCheck::new(receiver, &link.far, 1).unwrap();
    source.send(testbed.sender(), 0, 100_000).unwrap();
    let seen = check.drained().unwrap();
    let heard = application.finish().unwrap();
    assert_eq!((seen.late, heard.late), (0, 0), "{seen:?} {heard:?}");
    let report = steering.stop().unwrap().0;
    let rfs = report["rfs"].as_u64().unwrap();
    (report, rfs)
}

#[test]
fn applications_are_followed_outside_the_map() {
    let test = "queues::applications_are_followed_outside_the_map";
    let Some(_alone) = super::ready_for_rfs(test) else { return };
    let (report, rfs) = followed(&[]);
    let on_cpu_1 = sent_to(&report).get(&1).copied().unwrap_or(0);
    assert!(rfs > 1_000 && on_cpu_1 > 1_000, "{report}");
    let (report, _) = followed(&["--rfs-cpus", "0"]);
    assert_sent(&report, &[(0, 100_000)]);
}

#[test]
fn changes_of_maps_and_fallbacks_keep_order() {
    let test = "queues::changes_of_maps_and_fallbacks_keep_order";
    let Some(_alone) = super::ready_for_rfs(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions { gro: true, ..TWO_QUEUES }).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let start =
        ["in0", "--policy", "rfs", "--cpus", "0-1", "--queue-size", "256", "--socket", &socket];
    let steering = Steering::start(receiver, &start).unwrap();
    let traffic =
        Traffic { flows: 64, listeners: 2, train: 4, pace: Duration::from_micros(2), ..traffic() };
    let pair = |flow: u16| -> (SocketAddr, SocketAddr) {
        let (to, from) = (traffic.destination_port + flow, traffic.source_port + flow);
        ((link.far.ipv4, to).into(), (link.near.ipv4, from).into())
    };
    let application = MovingApplication::start(receiver, &[pair(0), pair(1)], &[0, 1], 64).unwrap();
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let changes = [
        "rps-map=in0:0=1",
        "else=local",
        "rfs-cpus=0",
        "else=hash rps-map=0=0",
        "policy=rps rps-map=in0=0-1",
        "rps-map=in0:0=1",
        "policy=bound:in0:0=0,1=1",
        "policy=bound:0=1",
        "policy=rfs+sparse rfs-cpus=all else=local rps-map=none",
        "policy=none",
        "policy=rfs else=local",
        "policy=rfs else=hash",
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 100_000, &stop));
        let stopping = super::Stop(&stop);
        for round in 0..slice(2 * changes.len(), 200) {
            set(&socket, changes[round % changes.len()]);
            std::thread::sleep(Duration::from_millis(if round % 3 == 0 { 300 } else { 20 }));
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
    });
    let seen = check.drained().unwrap();
    let heard = application.finish().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!((seen.late, heard.late), (0, 0), "{seen:?} {heard:?} {totals:?}");
    assert!(seen.moves > 20 && seen.merged > 0, "hardly moved: {seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}
