//! Which sockets set desired CPUs.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use rxsteer_lab::{LinkOptions, Namespace, Steering, Testbed, pin};
use serde_json::Value;

use super::ask;

const PORTS: (u16, u16) = (5000, 6000);

/// A connected UDP socket in a namespace.
fn socket(of: &Namespace, (own, port): (Ipv4Addr, u16), (other, to): (Ipv4Addr, u16)) -> UdpSocket {
    let made = || {
        let socket = UdpSocket::bind(SocketAddrV4::new(own, port)).unwrap();
        socket.connect(SocketAddrV4::new(other, to)).unwrap();
        Ok(socket)
    };
    of.inside(made).unwrap()
}

/// Sends a datagram from a CPU.
fn send_on(cpu: usize, socket: &UdpSocket) {
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            pin(cpu).unwrap();
            socket.send(b"x").unwrap();
        });
        sent.join().unwrap();
    });
}

/// The desired CPU of the flow's next frame, according to rxsteer.
fn desired(socket: &str, flow: &str) -> Value {
    let report: Value =
        serde_json::from_str(&ask(&["explain", flow, "--live", "--json", "--socket", socket]))
            .unwrap();
    let decision = &report["decisions"][0];
    assert_eq!(decision["reason"]["rule"], "rfs", "{report}");
    decision["target"].clone()
}

/// The application of a victim sends on CPU 0. A socket in another namespace, with the same addresses and ports, sends
/// one datagram on CPU 1. Returns the desired CPU of the victim's flow before and after that.
fn attack(test: &str, more: &[&str]) -> Option<(Value, Value)> {
    let _alone = super::ready(test, &[], 2)?;
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (near, far) = (&testbed.link().near, &testbed.link().far);
    let start = ["in0", "--policy", "rfs", "--cpus", "0-1", "--socket", &control];
    let steering = Steering::start(testbed.receiver(), &[&start, more].concat()).unwrap();
    let victim = socket(testbed.receiver(), (far.ipv4, PORTS.0), (near.ipv4, PORTS.1));
    send_on(0, &victim);
    let flow = format!("{}:{}-{}:{}/udp", near.ipv4, PORTS.1, far.ipv4, PORTS.0);
    let before = desired(&control, &flow);
    let attacker = Namespace::new().unwrap();
    attacker.ip(&format!("addr add {}/32 dev lo", far.ipv4)).unwrap();
    attacker.ip("route add default dev lo").unwrap();
    let other = socket(&attacker, (far.ipv4, PORTS.0), (near.ipv4, PORTS.1));
    send_on(1, &other);
    let after = desired(&control, &flow);
    steering.stop().unwrap();
    Some((before, after))
}

#[test]
fn socket_of_another_namespace_moves_no_flow() {
    let test = "namespaces::socket_of_another_namespace_moves_no_flow";
    let Some((before, after)) = attack(test, &[]) else { return };
    assert_eq!((before, after), (0.into(), 0.into()));
}

#[test]
fn all_namespaces_count_where_that_is_asked_for() {
    let test = "namespaces::all_namespaces_count_where_that_is_asked_for";
    let Some((before, after)) = attack(test, &["--rfs-namespaces", "all"]) else { return };
    assert_eq!((before, after), (0.into(), 1.into()));
}
