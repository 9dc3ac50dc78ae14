//! `rxsteer live --bridge`, with AF_XDP and packet sockets: order per flow on the wire after the bridge, in both
//! directions, and TCP through it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::seq::IndexedRandom;
use rxsteer_core::Policy;
use rxsteer_io::xdp::{Port, XdpOptions, open};
use rxsteer_lab::{
    End, Link, LinkOptions, LiveFrames, OrderCheck, Pass, Steering, Testbed, Traffic, online_cpus,
    rxsteer, slice,
};
use rxsteer_user::forward::{Bridge, ForwardPort, Forwarder, PacketPort};
use rxsteer_user::source::Source;
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::source::xdp::{XdpQueue, XdpSource};
use rxsteer_user::{OnFull, PipelineConfig, Speed, SteerChange};

use serde_json::Value;

use super::ask;
use super::xdp::{dropped, quiet};

/// Flows of each direction while settings change.
const FLOWS: u32 = 6;

/// Three hosts in a row; the middle one becomes the bridge.
pub(crate) fn row(options: LinkOptions) -> Testbed {
    bridging(Testbed::router(options).unwrap())
}

fn bridging(testbed: Testbed) -> Testbed {
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

/// Frames that an XDP program sends arrive only at an interface that has an XDP program.
pub(crate) fn pass(testbed: &Testbed) -> [Pass; 2] {
    let middle = &testbed.namespaces[1];
    [&testbed.links[0].far, &testbed.links[1].near].map(|end| Pass::attach(middle, end).unwrap())
}

#[test]
fn frames_leave_in_order_and_are_conserved() {
    let test = "bridge::frames_leave_in_order_and_are_conserved";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    leave_in_order("xdp");
}

#[test]
fn frames_leave_in_order_by_packet_sockets() {
    let test = "bridge::frames_leave_in_order_by_packet_sockets";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    leave_in_order("packet");
}

/// Sends numbered frames through a bridge `io`, in each direction.
fn leave_in_order(io: &str) {
    let frames = slice(20_000, 1_000_000);
    for policy in ["rps", "sparse", "rfs+sparse"] {
        for (back, first, last) in [(false, 0, 2), (true, 2, 0)] {
            let testbed = row(LinkOptions::default());
            let hosts = &testbed.namespaces;
            let there = &testbed.links[if back { 1 } else { 0 }];
            let from = if back { turned(there) } else { there.clone() };
            let to =
                if back { testbed.links[0].near.clone() } else { testbed.links[1].far.clone() };
            let _pass = (io == "packet").then(|| pass(&testbed));
            let live = Steering::live(&hosts[1], &arguments(policy, &["--io", io])).unwrap();
            let traffic = Traffic { flows: 20, train: 2, random: true, ..Traffic::default() };
            let check = OrderCheck::new(&hosts[last], &to, traffic.flows).unwrap();
            let source = LiveFrames::new(&from, &traffic).unwrap();
            source.send(&hosts[first], 0, frames).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let seen = check.drained().unwrap();
            let (report, _) = live.stop().unwrap();
            let what = || format!("{io}, {policy}, back: {back}: {seen:?} {report}");
            assert_eq!((seen.late, &report["reordered"]), (0, &0.into()), "{}", what());
            assert_eq!(report["delivered"].as_u64(), Some(seen.frames), "{}", what());
            let lost = dropped(&report) + report["kernel_drops"].as_u64().unwrap();
            assert_eq!(seen.frames + lost, frames, "{}", what());
            assert!(seen.frames > frames / 20, "{}", what());
        }
    }
}

#[test]
fn changes_under_load_keep_the_order_on_the_wire() {
    let test = "bridge::changes_under_load_keep_the_order_on_the_wire";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    changes_by_xdp(&row(LinkOptions::default()), 1);
}

/// Packets of one RX queue leave on several TX queues, each flow on one of them.
#[test]
fn changes_keep_the_order_over_several_tx_queues() {
    let test = "bridge::changes_keep_the_order_over_several_tx_queues";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = bridging(Testbed::router_with_tx_queues(LinkOptions::default()).unwrap());
    // With GRO each queue of a veth counts what it receives.
    testbed.namespaces[2].run("ethtool -K in1 gro on").unwrap();
    let queues = online_cpus() as u32;
    changes_by_xdp(&testbed, queues);
    let counts = testbed.namespaces[2].run("ethtool -S in1").unwrap();
    for queue in 0..queues {
        let name = format!("rx_queue_{queue}_xdp_packets:");
        let line = counts.lines().find_map(|line| line.trim().strip_prefix(&name));
        let packets: u64 = line.unwrap().trim().parse().unwrap();
        assert!(packets > 1000, "{queue}: {counts}");
    }
}

/// Changes under load; the second interface has this many queues.
fn changes_by_xdp(testbed: &Testbed, queues: u32) {
    let port =
        |end: &End, queues| Port { name: end.name.clone(), ifindex: end.index, queues, mtu: 1500 };
    let ports = [port(&testbed.links[0].far, 1), port(&testbed.links[1].near, queues)];
    let mut options = XdpOptions::default();
    options.forwards = true;
    let mut opened = testbed.namespaces[1].inside(|| Ok(open(&ports, &options))).unwrap().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut sources: Vec<XdpSource> = Vec::new();
    let mut rx_queues = 0..;
    for port in &mut opened {
        for (receiver, rx_queue) in port.receivers.drain(..).zip(&mut rx_queues) {
            let queue = XdpQueue { receiver, interface: port.name.clone(), rx_queue };
            sources.push(XdpSource::new(vec![queue], stop.clone()));
        }
    }
    // Enough flows for each of several TX queues to get some.
    let flows = if queues > 1 { 64 } else { FLOWS };
    change_under_load(testbed, &opened, &mut sources, &stop, flows);
}

#[test]
fn changes_keep_the_order_of_packet_sockets() {
    let test = "bridge::changes_keep_the_order_of_packet_sockets";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = row(LinkOptions::default());
    let _pass = pass(&testbed);
    let stop = Arc::new(AtomicBool::new(false));
    let names = [&testbed.links[0].far.name, &testbed.links[1].near.name];
    let ports = names.map(|name| PacketPort { name: name.clone(), rx_queues: 1 });
    let source = |(name, rx_queue): (&String, u16)| {
        let mut options = PacketOptions::default();
        (options.rx_queue, options.forwards, options.promiscuous) = (rx_queue, true, true);
        options.stop = stop.clone();
        let open = || Ok(PacketSource::with(name, options).unwrap());
        testbed.namespaces[1].inside(open).unwrap()
    };
    let mut sources: Vec<PacketSource> = names.into_iter().zip(0..).map(source).collect();
    change_under_load(&testbed, &ports, &mut sources, &stop, FLOWS);
}

/// Policy and CPUs change every few milliseconds while frames of both directions pass: on the wire, no frame overtakes
/// another one of its flow.
fn change_under_load(
    testbed: &Testbed,
    ports: &[impl ForwardPort + Sync],
    sources: &mut [impl Source],
    stop: &Arc<AtomicBool>,
    flows: u32,
) {
    let hosts = &testbed.namespaces;
    let mut config = PipelineConfig::new(Policy::Rps, "0-1".parse().unwrap());
    config.rx_cpus = config.cpus.iter().cycle().take(sources.len()).collect();
    config.rx_queues = sources.len() as u16;
    config.on_full = OnFull::Drop;
    config.check_order = true;
    let [there, back] = [testbed.links[0].clone(), turned(&testbed.links[1])];
    // Slow enough that backlogs drain: a flow moves when none of its packets waits.
    let pace = Duration::from_micros(50);
    let traffic = Traffic { flows, train: 2, random: true, pace, ..Traffic::default() };
    let check = OrderCheck::new(&hosts[2], &testbed.links[1].far, traffic.flows).unwrap();
    let check_back = OrderCheck::new(&hosts[0], &testbed.links[0].near, traffic.flows).unwrap();
    let frames = slice(20_000, 1_000_000);
    let (mut control, mut changes) = (None, 0);
    let report = std::thread::scope(|scope| {
        let (to_here, from_there) = std::sync::mpsc::channel();
        let stopped = stop.clone();
        let handler = |_| Forwarder::new(Bridge::between(ports), ports).unwrap();
        let mut run = move || {
            rxsteer_user::run(&config, sources, Speed::Max, &stopped, handler, |_, control| {
                to_here.send(control).unwrap();
            })
        };
        // The bridge's sending sockets must be in this namespace as well.
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

#[test]
fn set_keeps_the_order_on_the_wire() {
    let test = "bridge::set_keeps_the_order_on_the_wire";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    ["packet", "xdp"].into_iter().for_each(set_under_load);
}

/// `rxsteer set` changes policy, CPUs, rules and limits of a bridge `io` while frames pass.
fn set_under_load(io: &str) {
    let changes: [&[&str]; 8] = [
        &["policy=sparse", "max-backlog=900"],
        &["cpus=1-1", "policy=rps"],
        &["rule=udp src-port 10000-10003 -> 0-0", "rule=udp -> 1"],
        &["cpus=0-1", "rule=src-port 10002 -> 1", "policy=rfs+sparse"],
        &["rule=none", "flow-cnt=64", "max-backlog=1000"],
        &["policy=none"],
        &["policy=rps+balance", "cpus=0-1"],
        &["rule=udp src-port 10005-10007 -> local", "policy=rps", "flow-cnt=4096"],
    ];
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = row(LinkOptions::default());
    let hosts = &testbed.namespaces;
    let _pass = (io == "packet").then(|| pass(&testbed));
    let more = ["--io", io, "--socket", &socket];
    let live = Steering::live(&hosts[1], &arguments("rps", &more)).unwrap();
    let pace = Duration::from_micros(50);
    let traffic = Traffic { flows: 8, train: 2, random: true, pace, ..Traffic::default() };
    let check = OrderCheck::new(&hosts[2], &testbed.links[1].far, traffic.flows).unwrap();
    let source = LiveFrames::new(&testbed.links[0], &traffic).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(&hosts[0], 0, 2_000, &stop));
        let stopping = super::Stop(&stop);
        for change in changes.iter().cycle().take(slice(3 * changes.len(), 100 * changes.len())) {
            ask(&[&["set", "--socket", &socket], *change].concat());
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
    });
    std::thread::sleep(Duration::from_millis(100));
    let seen = check.drained().unwrap();
    let report = live.stop().unwrap().0;
    let what = format!("{io}: {seen:?} {report}");
    assert_eq!((seen.late, &report["reordered"]), (0, &0.into()), "{what}");
    assert_eq!(report["delivered"].as_u64(), Some(seen.frames), "{what}");
    let lost = dropped(&report) + report["kernel_drops"].as_u64().unwrap();
    assert_eq!(seen.frames + lost, source.sent().unwrap().iter().sum::<u64>(), "{what}");
    assert!(report["moves"].as_u64().unwrap() > 8 && report["policy"] == "rps", "{what}");
}

#[test]
fn tcp_passes_both_ways() {
    let Some(_alone) = super::ready("bridge::tcp_passes_both_ways", &[], 2) else { return };
    let report = tcp_there_and_back(&row(LinkOptions::default()), "xdp");
    assert_eq!(report["reordered"], 0, "{report}");
}

/// Both hosts leave checksums and segmentation to a device: frames of up to 64 KiB without a checksum leave as such.
#[test]
fn merged_segments_pass_by_packet_sockets() {
    let test = "bridge::merged_segments_pass_by_packet_sockets";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = row(LinkOptions::default());
    for (host, interface) in [(0, "out0"), (1, "in0"), (1, "out1"), (2, "in1")] {
        let command = format!("ethtool -K {interface} tx on tso on gso on");
        testbed.namespaces[host].run(&command).unwrap();
    }
    let report = tcp_there_and_back(&testbed, "packet");
    assert_eq!(report["reordered"], 0, "{report}");
    let (packets, bytes) = (report["packets"].as_u64().unwrap(), report["bytes"].as_u64().unwrap());
    // More than fits into frames of this MTU, including acknowledgements.
    assert!(bytes > 1514 * packets, "nothing was merged: {report}");
}

/// Sends megabytes there and back on one connection, with ARP through the bridge; returns the report.
fn tcp_there_and_back(testbed: &Testbed, io: &str) -> Value {
    let hosts = &testbed.namespaces;
    hosts[0].ip("addr add 10.99.0.1/24 dev out0").unwrap();
    hosts[2].ip("addr add 10.99.0.2/24 dev in1").unwrap();
    let live =
        Steering::live(&hosts[1], &arguments("sparse", &["--max-backlog", "10000", "--io", io]))
            .unwrap();
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
    live.stop().unwrap().0
}

#[test]
fn egress_that_is_down_costs_packets_and_no_more() {
    let test = "bridge::egress_that_is_down_costs_packets_and_no_more";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    for io in ["xdp", "packet"] {
        egress_down(io);
    }
}

/// The egress interface is down for a while: packets are dropped and counted, and the bridge continues.
fn egress_down(io: &str) {
    let testbed = row(LinkOptions::default());
    let hosts = &testbed.namespaces;
    let _pass = (io == "packet").then(|| pass(&testbed));
    let live = Steering::live(&hosts[1], &arguments("rps", &["--io", io])).unwrap();
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

/// The egress interface is removed: no packet counts as delivered that was not sent.
#[test]
fn packets_for_an_interface_that_is_gone_are_dropped_and_counted() {
    let test = "bridge::packets_for_an_interface_that_is_gone_are_dropped_and_counted";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    for io in ["xdp", "packet"] {
        let testbed = row(LinkOptions::default());
        let hosts = &testbed.namespaces;
        let _pass = (io == "packet").then(|| pass(&testbed));
        let live = Steering::live(&hosts[1], &arguments("rps", &["--io", io])).unwrap();
        let traffic = Traffic { flows: 4, pace: Duration::from_micros(10), ..Traffic::default() };
        let source = LiveFrames::new(&testbed.links[0], &traffic).unwrap();
        hosts[1].ip("link del out1").unwrap();
        source.send(&hosts[0], 0, 20_000).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        // Without interfaces it ends by itself.
        hosts[1].ip("link del in0").unwrap();
        let (status, report) = live.report().unwrap();
        assert_eq!(status.code(), Some(1), "{io}: {report}");
        let tx_full = report["dropped"]["tx_full"].as_u64().unwrap();
        let delivered = report["delivered"].as_u64().unwrap();
        // A host may send a frame by itself before.
        assert!(tx_full > 1000 && delivered < 20, "{io}: {report}");
    }
}

/// With packet sockets the kernel chooses the TX queue by the sending CPU: if flows can move, only one queue is
/// allowed.
#[test]
fn several_tx_queues_are_refused_where_flows_move() {
    let test = "bridge::several_tx_queues_are_refused_where_flows_move";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = row(LinkOptions { queues: 2, ..LinkOptions::default() });
    let middle = &testbed.namespaces[1];
    for policy in ["sparse", "rps+balance"] {
        let live = Steering::begin_live_by(middle, &[], &arguments(policy, &["--io", "packet"]));
        let (mut live, soon) = (live.unwrap(), Duration::from_secs(20));
        assert_eq!(live.wait(soon).unwrap().code(), Some(2), "{policy}");
        live.wait_for_stderr("2 TX queues", soon).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let more = ["--io", "packet", "--socket", &socket];
    let live = Steering::live(middle, &arguments("rps", &more)).unwrap();
    let mut change = std::process::Command::new(rxsteer().unwrap());
    let refused = change.args(["set", "--socket", &socket, "cpus=1-1"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && stderr.contains("2 TX queues"), "{stderr}");
    assert_eq!(live.stop().unwrap().0["settings"]["rx_queues"], 4);
}
