//! Tunnels by their numbers (`--key-tunnels`), in the kernel and with packet sockets: frames with the same addresses
//! and ports are spread by SPI, TEID, session and receiver index, and each number's frames stay in order while settings
//! change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rxsteer_io::PacketSender;
use rxsteer_lab::{End, Link, LinkOptions, OrderCheck, Steering, Testbed, slice};
use rxsteer_user::Block;
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::source::{Fill, Source};

use super::packet::Order;
use super::set;
use super::xdp::quiet;

/// Numbers of each kind of tunnel.
const NUMBERS: u64 = 64;

/// A kind of tunnel: its protocol, and what follows the IPv4 header of a packet with this number.
type Kind = (u8, fn(u32) -> Vec<u8>);

const KINDS: [Kind; 4] = [
    (50, |spi| [spi.to_be_bytes(), [0, 0, 0, 1]].concat()),
    (17, |teid| udp(2152, &[[0x30, 0xff, 0, 32], teid.to_be_bytes()].concat())),
    (115, |session| session.to_be_bytes().to_vec()),
    (17, |receiver| udp(51820, &[[4, 0, 0, 0], receiver.to_le_bytes()].concat())),
];

/// The length of the shortest of these frames, one of L2TPv3. The host itself sends no frame of this length or more.
const SHORTEST: usize = 14 + 20 + 4 + 60;

/// A UDP header without a checksum, which IPv4 allows.
fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let ports = [port.to_be_bytes(), port.to_be_bytes()].concat();
    [&ports[..], &(8 + payload.len() as u16 + 60).to_be_bytes(), &[0, 0], payload].concat()
}

/// A frame of this number, which ends with flow and sequence number.
fn frame(Link { near, far }: &Link, kind: usize, number: u64, sequence: u64) -> Vec<u8> {
    let (protocol, payload) = KINDS[kind];
    // The numbers of different kinds differ, because a key has the number, but not its kind.
    let mut packet = payload((kind as u32 + 1) << 24 | number as u32);
    packet.resize(packet.len() + 44, 0);
    packet.extend((kind as u64 * NUMBERS + number).to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend((20 + packet.len() as u16).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    ip.extend(near.ipv4.octets().into_iter().chain(far.ipv4.octets()));
    let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let End { mac, .. } = far;
    [&mac[..], &near.mac, &[8, 0], &ip, &packet].concat()
}

/// Sends `rounds` frames of each number of the kinds, beginning with the sequence number `from`.
fn send(testbed: &Testbed, kinds: &[usize], from: u64, rounds: u64) {
    let inside = || {
        let out = PacketSender::new("out0").unwrap();
        for sequence in from..from + rounds {
            for number in 0..NUMBERS {
                for kind in kinds {
                    // If the queue of the veth is full, the frame is lost.
                    let _ = out.send(&frame(testbed.link(), *kind, number, sequence));
                }
                // Pauses, so that backlogs drain and flows can move.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    };
    testbed.sender().inside(inside).unwrap();
}

/// Notes the order of frames until the source ends.
fn watch(mut source: PacketSource, order: &Order) {
    loop {
        let mut block = Block::new();
        let fill = source.fill(&mut block);
        for frame in block.frames() {
            let bytes = block.bytes_of(frame);
            let end = bytes.len();
            let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
            if end >= SHORTEST {
                order.count(number(end - 16), number(end - 8));
            }
        }
        if fill == Fill::End {
            return;
        }
    }
}

fn testbed() -> Testbed {
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    quiet(testbed.sender(), "out0");
    quiet(testbed.receiver(), "in0");
    testbed
}

const CHANGES: [&str; 6] = [
    "policy=sparse:loops=5 cpus=0-1",
    "policy=rps cpus=1-1",
    "policy=rps cpus=0-1",
    "policy=sparse:after=3,loops=2",
    "policy=rps cpus=0-0",
    "policy=none",
];

/// Sends frames of all kinds while settings change; returns the number of changes.
fn change_under_load(testbed: &Testbed, socket: &str) -> usize {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut made = 0;
            while !done.load(Ordering::Relaxed) || made < CHANGES.len() {
                set(socket, CHANGES[made % CHANGES.len()]);
                made += 1;
                std::thread::sleep(Duration::from_millis(30));
            }
            made
        });
        let _done = super::Stop(&done);
        send(testbed, &[0, 1, 2, 3], 1000, slice(100, 10_000));
        done.store(true, Ordering::Relaxed);
        changing.join().unwrap()
    })
}

#[test]
fn numbers_of_tunnels_spread_flows_and_keep_their_order() {
    let test = "tunnels::numbers_of_tunnels_spread_flows_and_keep_their_order";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let common = ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    for keys in ["none", "all"] {
        let testbed = testbed();
        let arguments = [&common[..], &["--key-tunnels", keys]].concat();
        let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
        let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, 1).unwrap();
        for kind in 0..KINDS.len() {
            let before = check.all_by_cpu().unwrap();
            send(&testbed, &[kind], 0, 4);
            check.drained().unwrap();
            let by_cpu = check.all_by_cpu().unwrap().into_iter().zip(before);
            let frames: Vec<u64> = by_cpu.map(|(now, before)| now - before).collect();
            let cpus = frames.iter().filter(|frames| **frames > 0).count();
            assert_eq!(cpus, if keys == "all" { 2 } else { 1 }, "{keys}, kind {kind}: {frames:?}");
        }
        if keys == "all" {
            let order = Order::of(NUMBERS as u32 * KINDS.len() as u32);
            let end = Arc::new(AtomicBool::new(false));
            let mut options = PacketOptions::default();
            options.stop = end.clone();
            let open = || Ok(PacketSource::with("in0", options).unwrap());
            let source = testbed.receiver().inside(open).unwrap();
            let made = std::thread::scope(|scope| {
                scope.spawn(|| watch(source, &order));
                let _stop = super::Stop(&end);
                let made = change_under_load(&testbed, &socket);
                check.drained().unwrap();
                made
            });
            let (seen, late) = order.seen();
            assert_eq!(late, 0, "{made} changes, {seen} frames");
            assert!(seen > 5000, "{made} changes, {seen} frames");
        }
        let totals = steering.totals().unwrap();
        assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    }
}

/// With packet sockets, the report counts packets that were processed out of order, by the same keys.
#[test]
fn numbers_of_tunnels_are_keys_of_packet_sockets() {
    let test = "tunnels::numbers_of_tunnels_are_keys_of_packet_sockets";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let common = ["in0", "--io", "packet", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    for keys in ["none", "all"] {
        let testbed = testbed();
        let arguments = [&common[..], &["--key-tunnels", keys]].concat();
        let live = Steering::live(testbed.receiver(), &arguments).unwrap();
        send(&testbed, &[0, 1, 2, 3], 0, 4);
        if keys == "all" {
            change_under_load(&testbed, &socket);
        }
        let (report, _) = live.stop().unwrap();
        let (packets, delivered) = (&report["packets"], report["delivered"].as_u64().unwrap());
        let lost = super::xdp::dropped(&report);
        assert_eq!(packets.as_u64(), Some(delivered + lost), "{report}");
        assert_eq!(report["reordered"], 0, "{report}");
        let flows = if keys == "all" { NUMBERS * KINDS.len() as u64 } else { KINDS.len() as u64 };
        assert_eq!(report["flows_steered"].as_u64(), Some(flows), "{report}");
    }
}
