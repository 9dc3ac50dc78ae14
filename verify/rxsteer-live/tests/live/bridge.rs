//! `rxsteer live --bridge`: order per flow on the wire behind it, in both directions, and TCP through it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::seq::IndexedRandom;
use rxsteer_core::Policy;
use rxsteer_io::xdp::{Port, XdpOptions, open};
use rxsteer_lab::{Link, LinkOptions, LiveFrames, OrderCheck, Steering, Testbed, Traffic, slice};
use rxsteer_user::forward::{Bridge, Forwarder};
use rxsteer_user::source::xdp::{XdpQueue, XdpSource};
use rxsteer_user::{OnFull, PipelineConfig, Speed, SteerChange};

use super::xdp::{dropped, quiet};

/// Three hosts in a row, of which the middle one is to be the bridge.
fn row(options: LinkOptions) -> Testbed {
    let testbed = Testbed::router(options).unwrap();
    testbed.namespaces[1].run("sysctl -q -w net.ipv4.ip_forward=0").unwrap();
    for (host, interface) in [(0, "out0"), (1, "in0"), (1, "out1"), (2, "in1")] {
        quiet(&testbed.namespaces[host], interface);
    }
    // Merged segments would hide frames.
    testbed.namespaces[2].run("ethtool -K in1 gro off rx-gro-list off").unwrap();
    testbed
}

fn arguments<'a>(policy: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = ["in0", "--bridge", "out1", "--policy", policy, "--cpus", "0-1"];
    [&first, more].concat()
}

/// The link in the other direction.
fn turned(link: &Link) -> Link {
    Link { near: link.far.clone(), far: link.near.clone() }
}

#[test]
fn frames_leave_in_order_and_are_conserved() {
    let test = "bridge::frames_leave_in_order_and_are_conserved";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let frames = slice(20_000, 1_000_000);
    for policy in ["rps", "sparse", "rfs+sparse"] {
        for (back, first, last) in [(false, 0, 2), (true, 2, 0)] {
            let testbed = row(LinkOptions::default());
            let hosts = &testbed.namespaces;
            let there = &testbed.links[if back { 1 } else { 0 }];
            let from = if back { turned(there) } else { there.clone() };
            let to =
                if back { testbed.links[0].near.clone() } else { testbed.links[1].far.clone() };
            let live = Steering::live(&hosts[1], &arguments(policy, &[])).unwrap();
            let traffic = Traffic { flows: 20, train: 2, random: true, ..Traffic::default() };
            let check = OrderCheck::new(&hosts[last], &to, traffic.flows).unwrap();
            let source = LiveFrames::new(&from, &traffic).unwrap();
            source.send(&hosts[first], 0, frames).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let seen = check.drained().unwrap();
            let (report, _) = live.stop().unwrap();
            let what = || format!("{policy}, back: {back}: {seen:?} {report}");
            assert_eq!((seen.late, &report["reordered"]), (0, &0.into()), "{}", what());
            assert_eq!(report["delivered"].as_u64(), Some(seen.frames), "{}", what());
            let lost = dropped(&report) + report["kernel_drops"].as_u64().unwrap();
            assert_eq!(seen.frames + lost, frames, "{}", what());
            assert!(seen.frames > frames / 20, "{}", what());
        }
    }
}

/// Policy and CPUs change every few milliseconds while frames of both directions pass: none overtakes another of its
/// flow, on the wire.
#[test]
fn changes_under_load_keep_the_order_on_the_wire() {
    let test = "bridge::changes_under_load_keep_the_order_on_the_wire";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = row(LinkOptions::default());
    let hosts = &testbed.namespaces;
    let ports = [&testbed.links[0].far, &testbed.links[1].near].map(|end| Port {
        name: end.name.clone(),
        ifindex: end.index,
        queues: 1,
        mtu: 1500,
    });
    let mut options = XdpOptions::default();
    options.forwards = true;
    let mut opened = hosts[1].inside(|| Ok(open(&ports, &options))).unwrap().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut sources: Vec<XdpSource> = Vec::new();
    for (port, rx_queue) in opened.iter_mut().zip(0..) {
        let receiver = port.receivers.remove(0);
        let queue = XdpQueue { receiver, interface: port.name.clone(), rx_queue };
        sources.push(XdpSource::new(vec![queue], stop.clone()));
    }
    let mut config = PipelineConfig::new(Policy::Rps, "0-1".parse().unwrap());
    config.rx_cpus = "0-1".parse::<rxsteer_core::CpuSet>().unwrap().iter().collect();
    config.rx_queues = 2;
    config.on_full = OnFull::Drop;
    config.check_order = true;
    let [there, back] = [testbed.links[0].clone(), turned(&testbed.links[1])];
    // So slow that backlogs drain: a flow moves when nothing of it waits.
    let pace = Duration::from_micros(50);
    let traffic = Traffic { flows: 6, train: 2, random: true, pace, ..Traffic::default() };
    let check = OrderCheck::new(&hosts[2], &testbed.links[1].far, traffic.flows).unwrap();
    let check_back = OrderCheck::new(&hosts[0], &testbed.links[0].near, traffic.flows).unwrap();
    let frames = slice(20_000, 1_000_000);
    let (mut control, mut changes) = (None, 0);
    let report = std::thread::scope(|scope| {
        let (to_here, from_there) = std::sync::mpsc::channel();
        let ports = &opened;
        let (stopped, sources) = (stop.clone(), &mut sources);
        let handler = |_| Forwarder::new(Bridge::between(ports), ports).unwrap();
        let mut run = move || {
            rxsteer_user::run(&config, sources, Speed::Max, &stopped, handler, |_, control| {
                to_here.send(control).unwrap();
            })
        };
        // Sockets that send are of this namespace, too.
        let pipeline = scope.spawn(move || hosts[1].inside(move || Ok(run())).unwrap().unwrap());
        let control = control.insert(from_there.recv().unwrap());
        let senders = [(&there, 0), (&back, 2)].map(|(link, host)| {
            let source = LiveFrames::new(link, &traffic).unwrap();
            scope.spawn(move || source.send(&hosts[host], host / 2, frames).unwrap())
        });
        let mut rng = rand::rng();
        while senders.iter().any(|sender| !sender.is_finished()) {
            let policies = ["rps", "sparse", "rfs", "rfs+sparse", "none"];
            let change = SteerChange {
                policy: Some(policies.choose(&mut rng).unwrap().parse().unwrap()),
                cpus: Some(["0-0", "1-1", "0-1"].choose(&mut rng).unwrap().parse().unwrap()),
                ..SteerChange::default()
            };
            control.change(&change).unwrap();
            changes += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        pipeline.join().unwrap()
    });
    let (seen, seen_back) = (check.drained().unwrap(), check_back.drained().unwrap());
    let what = format!(
        "{changes} changes, {} moves, {seen:?} {seen_back:?} {:?}, by the kernel {}",
        report.moves, report.drops, report.kernel_drops
    );
    assert_eq!((seen.late, seen_back.late, report.reordered), (0, 0, 0), "{what}");
    assert_eq!(report.delivered, seen.frames + seen_back.frames, "{what}");
    let lost = report.drops.total() + report.kernel_drops;
    assert_eq!(report.delivered + lost, 2 * frames, "{what}");
    assert!(changes > 10 && report.moves > 10, "{what}");
}

/// Megabytes there and back on one connection, with ARP through the bridge.
#[test]
fn tcp_passes_both_ways() {
    let Some(_alone) = super::ready("bridge::tcp_passes_both_ways", &[], 2) else { return };
    let testbed = row(LinkOptions::default());
    let hosts = &testbed.namespaces;
    hosts[0].ip("addr add 10.99.0.1/24 dev out0").unwrap();
    hosts[2].ip("addr add 10.99.0.2/24 dev in1").unwrap();
    let live =
        Steering::live(&hosts[1], &arguments("sparse", &["--max-backlog", "10000"])).unwrap();
    let listener = hosts[2].inside(|| Ok(TcpListener::bind("10.99.0.2:7777").unwrap())).unwrap();
    let bytes: Vec<u8> = (0..slice(4_000_000_u32, 100_000_000)).map(|at| (at / 7) as u8).collect();
    let expected = bytes.clone();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut all = vec![0; expected.len()];
        stream.read_exact(&mut all).unwrap();
        assert!(all == expected, "other bytes arrived");
        stream.write_all(&all).unwrap();
    });
    let connect = || Ok(TcpStream::connect("10.99.0.2:7777").unwrap());
    let mut stream = hosts[0].inside(connect).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
    echo.join().unwrap();
    let (report, _) = live.stop().unwrap();
    assert_eq!(report["reordered"], 0, "{report}");
}

/// The egress interface is down for a while: packets are dropped and counted, and it goes on.
#[test]
fn egress_that_is_down_costs_packets_and_no_more() {
    let test = "bridge::egress_that_is_down_costs_packets_and_no_more";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = row(LinkOptions::default());
    let hosts = &testbed.namespaces;
    let live = Steering::live(&hosts[1], &arguments("rps", &[])).unwrap();
    let pace = Duration::from_micros(10);
    let traffic = Traffic { flows: 4, pace, ..Traffic::default() };
    let check = OrderCheck::new(&hosts[2], &testbed.links[1].far, traffic.flows).unwrap();
    let source = LiveFrames::new(&testbed.links[0], &traffic).unwrap();
    hosts[1].ip("link set out1 down").unwrap();
    source.send(&hosts[0], 0, 20_000).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    hosts[1].ip("link set out1 up").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let before = check.total().unwrap().frames;
    source.send(&hosts[0], 0, 20_000).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let seen = check.drained().unwrap();
    let (report, _) = live.stop().unwrap();
    assert!(report["dropped"]["tx_full"].as_u64().unwrap() > 1000, "{report}");
    assert!(seen.frames - before > 10_000, "{before} then {seen:?}: {report}");
    assert_eq!((seen.late, &report["reordered"]), (0, &0.into()), "{seen:?} {report}");
}
