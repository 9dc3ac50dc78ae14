//! Packet sockets with other input than one queue of Ethernet frames: several RX queues, merged segments, raw IP of
//! WireGuard.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, Namespace, Steering, Testbed, missing, skipped};
use rxsteer_user::Block;
use rxsteer_user::source::packet::{PacketOptions, PacketSource};
use rxsteer_user::source::{Fill, Source};

use super::xdp::{dropped, quiet};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The offsets of IPv4's protocol and UDP's source port after an Ethernet header.
const PROTOCOL: usize = 14 + 9;
const SOURCE_PORT: usize = 14 + 20;
const UDP: u8 = 17;

/// Everything that a source delivers, as source ports of UDP; it ends when its flag is set.
fn ports_received(mut source: PacketSource) -> Vec<u16> {
    let mut ports = vec![];
    loop {
        let mut block = Block::new();
        let fill = source.fill(&mut block);
        for bytes in block.frames().iter().map(|frame| block.bytes_of(frame)) {
            if bytes.get(PROTOCOL) == Some(&UDP) {
                ports.push(u16::from_be_bytes([bytes[SOURCE_PORT], bytes[SOURCE_PORT + 1]]));
            }
        }
        if fill == Fill::End {
            return ports;
        }
    }
}

/// Two sockets share the RX queues of an interface: each frame arrives at one of them, and all frames of a flow at the
/// same one.
#[test]
fn sockets_share_rx_queues() {
    let test = "packet_links::sockets_share_rx_queues";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions { queues: 4, ..LinkOptions::default() }).unwrap();
    let (sender, receiver, link) = (testbed.sender(), testbed.receiver(), testbed.link());
    let stop = Arc::new(AtomicBool::new(false));
    let open = |own: u32| {
        let mut options = PacketOptions::default();
        (options.share, options.stop) = ((own, 2), stop.clone());
        receiver.inside(|| Ok(PacketSource::with("in0", options).unwrap())).unwrap()
    };
    let sources = [open(0), open(1)];
    let (flows, each) = (64_u16, 50);
    let send = || {
        for flow in 0..flows {
            let socket = UdpSocket::bind((link.near.ipv4, 10_000 + flow)).unwrap();
            for _ in 0..each {
                socket.send_to(b"frame", (link.far.ipv4, 9)).unwrap();
            }
        }
        Ok(())
    };
    let received = std::thread::scope(|scope| {
        let threads = sources.map(|source| scope.spawn(|| ports_received(source)));
        sender.inside(send).unwrap();
        stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    let [first, second] = received.each_ref().map(Vec::len);
    assert_eq!(first + second, usize::from(flows) * each, "{first} and {second}");
    assert!(first > 0 && second > 0, "all came to one socket: {first} and {second}");
    assert!(received[0].iter().all(|port| !received[1].contains(port)), "a flow came to both");
}

/// Segments that were merged, or never split, arrive as frames of up to 64 KiB, and are not cut off.
#[test]
fn merged_segments_are_received_whole() {
    let test = "packet_links::merged_segments_are_received_whole";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions { gro: true, ..LinkOptions::default() }).unwrap();
    let (sender, receiver, link) = (testbed.sender(), testbed.receiver(), testbed.link());
    sender.run("ethtool -K out0 tx on tso on gso on").unwrap();
    let arguments = ["in0", "--io", "packet", "--cpus", "0-0", "--filter", "tcp port 7777"];
    let live = Steering::live(receiver, &arguments).unwrap();
    let listener =
        receiver.inside(|| Ok(TcpListener::bind((link.far.ipv4, 7777)).unwrap())).unwrap();
    let bytes = vec![7_u8; 8_000_000];
    let len = bytes.len();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut vec![0; len]).unwrap();
    });
    let mut stream =
        sender.inside(|| Ok(TcpStream::connect((link.far.ipv4, 7777)).unwrap())).unwrap();
    stream.write_all(&bytes).unwrap();
    reader.join().unwrap();
    let (report, _) = live.stop().unwrap();
    let [packets, received] = ["packets", "bytes"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(report["kernel_drops"], 0, "{report}");
    assert!(received > 8_000_000, "{report}");
    assert!(received / packets > 3 * 1514, "nothing was merged: {report}");
    assert_eq!(report["flows_steered"], 1, "{report}");
}

/// A WireGuard interface of the kernel or of wireguard-go; dropping this removes it.
struct WireGuard {
    /// The process of wireguard-go, with the socket that configures it.
    process: Option<(Child, String)>,
}

impl WireGuard {
    /// Creates `name`, which listens at `port`.
    fn add(host: &Namespace, name: &str, port: u16) -> WireGuard {
        let mut process = None;
        if host.ip(&format!("link add {name} type wireguard")).is_err() {
            let mut command = host.command("wireguard-go");
            command.args(["-f", name]).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let socket = format!("/var/run/wireguard/{name}.sock");
            process = Some((command.spawn().unwrap(), socket));
            let started = Instant::now();
            while host.run(&format!("wg show {name}")).is_err() {
                assert!(started.elapsed() < TIMEOUT, "wireguard-go does not begin");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let this = WireGuard { process };
        quiet(host, name);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), host.run("wg genkey").unwrap()).unwrap();
        let path = file.path().display();
        host.run(&format!("wg set {name} listen-port {port} private-key {path}")).unwrap();
        host.ip(&format!("link set {name} up")).unwrap();
        this
    }
}

impl Drop for WireGuard {
    fn drop(&mut self) {
        if let Some((child, socket)) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Adds a peer to `name`, which may use all addresses.
fn add_peer(host: &Namespace, name: &str, key: &str, endpoint: &str) {
    host.run(&format!("wg set {name} peer {key} allowed-ips 0.0.0.0/0 endpoint {endpoint}"))
        .unwrap();
}

fn key(host: &Namespace, name: &str) -> String {
    host.run(&format!("wg show {name} public-key")).unwrap().trim().to_owned()
}

/// Sends datagrams from WireGuard to WireGuard through a bridge with packet sockets, which receives, steers and sends
/// raw IP.
#[test]
fn wireguard_is_received_and_bridged() {
    let test = "packet_links::wireguard_is_received_and_bridged";
    let Some(_alone) = super::ready(test, &["wg"], 2) else { return };
    let testbed = Testbed::router(LinkOptions::default()).unwrap();
    let hosts = &testbed.namespaces;
    if hosts[0].ip("link add probe type wireguard").is_err() && missing(&["wireguard-go"]).is_some()
    {
        skipped(&format!("live::{test}"), "neither the kernel nor wireguard-go makes WireGuard");
        return;
    }
    hosts[1].run("sysctl -q -w net.ipv4.ip_forward=0").unwrap();
    let links = &testbed.links;
    let _interfaces = [(0, "wga"), (1, "wgb"), (1, "wgc"), (2, "wgd")].map(|(host, name)| {
        WireGuard::add(&hosts[host], name, 5000 + u16::from(name.as_bytes()[2]))
    });
    let port = |name: &str| 5000 + u16::from(name.as_bytes()[2]);
    for (host, name, peer_host, peer, address) in [
        (0, "wga", 1, "wgb", links[0].far.ipv4),
        (1, "wgb", 0, "wga", links[0].near.ipv4),
        (1, "wgc", 2, "wgd", links[1].far.ipv4),
        (2, "wgd", 1, "wgc", links[1].near.ipv4),
    ] {
        let endpoint = format!("{address}:{}", port(peer));
        add_peer(&hosts[host], name, &key(&hosts[peer_host], peer), &endpoint);
    }
    hosts[0].ip("addr add 10.98.0.1/24 dev wga").unwrap();
    hosts[2].ip("addr add 10.98.0.2/24 dev wgd").unwrap();
    let arguments =
        ["wgb", "--bridge", "wgc", "--io", "packet", "--policy", "sparse", "--cpus", "0-1"];
    let live = Steering::live(&hosts[1], &arguments).unwrap();
    let bind = || Ok(UdpSocket::bind("10.98.0.2:7").unwrap());
    let server = hosts[2].inside(bind).unwrap();
    server.set_read_timeout(Some(TIMEOUT)).unwrap();
    let clients: Vec<UdpSocket> = (0..8)
        .map(|_| hosts[0].inside(|| Ok(UdpSocket::bind("10.98.0.1:0").unwrap())).unwrap())
        .collect();
    let (mut buffer, rounds) = ([0; 64], 50_u64);
    for round in 0..rounds {
        for client in &clients {
            client.set_read_timeout(Some(TIMEOUT)).unwrap();
            client.send_to(&round.to_be_bytes(), "10.98.0.2:7").unwrap();
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..len], from).unwrap();
            let len = client.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..len], round.to_be_bytes());
        }
    }
    let (report, _) = live.stop().unwrap();
    let expected = rounds * clients.len() as u64 * 2;
    assert_eq!((&report["packets"], dropped(&report)), (&expected.into(), 0), "{report}");
    assert_eq!((&report["delivered"], &report["frames_not_ip"]), (&expected.into(), &0.into()));
    // Each interface has its own receiving thread, which counts its flows.
    assert_eq!((&report["flows_steered"], &report["reordered"]), (&16.into(), &0.into()));
    assert!(report["interfaces"][0]["link"].as_str().unwrap().contains("raw"), "{report}");
}
