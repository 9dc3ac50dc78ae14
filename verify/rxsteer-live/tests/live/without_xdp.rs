//! The kernel's own steering where rxsteer cannot attach: tun, WireGuard, and a NIC without native XDP.
//!
//! `host apply` moves packets to another CPU, according to the kernel's own count (softnet_stat). `host restore`
//! restores every file byte for byte, and so does `auto`, whatever it measures. In the machines of `cargo xtask vm` the
//! NIC is one of theirs (`RXSTEER_CARDS`).

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rxsteer_lab::{Datagrams, LinkOptions, Namespace, Testbed, rxsteer, skipped};
use serde_json::Value;

const FLOWS: u16 = 16;
/// Packets that must arrive.
const PACKETS: u64 = 2_000;
/// A step that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(120);

fn command(namespace: &Namespace, arguments: &[&str]) -> Command {
    let mut command = namespace.command(rxsteer().unwrap());
    command.args(arguments).stdin(Stdio::null());
    command
}

/// All its output, if it ends with one of these.
fn ends(namespace: &Namespace, statuses: &[i32], arguments: &[&str]) -> String {
    let output = command(namespace, arguments).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = output.status.code().unwrap_or(-1);
    assert!(statuses.contains(&status), "{arguments:?}: {status}: {text}");
    text
}

/// Every file that may be written, with its contents.
fn values(namespace: &Namespace, interface: &str) -> String {
    let script = format!(
        "for f in /sys/class/net/{interface}/queues/*/[rx]ps_*; do echo \"$f $(cat $f 2>/dev/null)\"; done"
    );
    let output = namespace.command("sh").args(["-c", &script]).output().unwrap();
    let core = ["rps_sock_flow_entries", "flow_limit_cpu_bitmap"].map(|name| {
        std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default()
    });
    let values = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(values.contains("rps_cpus 0"), "{values}");
    format!("{values}{core:?}")
}

/// Packets that a CPU processed, and how often another CPU woke it for packets that RPS sent there.
fn of_cpu(namespace: &Namespace, interface: &str, cpu: usize) -> (u64, u64) {
    let shown = ends(namespace, &[0], &["host", "show", interface, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let of = &shown["softnet"]["cpus"][cpu];
    assert_eq!(of["cpu"], cpu, "{shown}");
    (of["processed"].as_u64().unwrap(), of["received_rps"].as_u64().unwrap())
}

/// Sends all packets to a CPU, and waits until it took this many; returns how often another CPU woke it.
fn moved_to(namespace: &Namespace, interface: &str, cpu: usize) -> u64 {
    let before = of_cpu(namespace, interface, cpu);
    let list = format!("{cpu}-{cpu}");
    let text = ends(namespace, &[0], &["host", "apply", interface, "--cpus", &list, "--yes"]);
    assert!(text.contains(&format!("RPS of RX queue 0: cpu {cpu}")), "{text}");
    let file = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
    let output = namespace.command("cat").arg(file).output().unwrap();
    let map = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(map.trim_end().ends_with(["1", "2"][cpu]), "{map}");
    let started = Instant::now();
    loop {
        let now = of_cpu(namespace, interface, cpu);
        if now.0 >= before.0 + PACKETS {
            return now.1 - before.1;
        }
        assert!(started.elapsed() < TIMEOUT, "CPU {cpu}: {before:?}, then {now:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The whole test for an interface at which packets arrive. Returns the output of `auto`.
fn check_steered_and_restored(namespace: &Namespace, interface: &str) -> String {
    let before = values(namespace, interface);
    // Whichever CPU packets arrive at, one of these two is another CPU.
    let woken = [0, 1].map(|cpu| moved_to(namespace, interface, cpu));
    assert!(woken.iter().sum::<u64>() > 0, "no CPU sent packets to another one");
    ends(namespace, &[0], &["host", "restore", "--yes"]);
    assert_eq!(values(namespace, interface), before);

    let recommended = ["host", "recommend", interface, "--duration", "1s", "--json"];
    let found: Value = serde_json::from_str(&ends(namespace, &[0], &recommended)).unwrap();
    assert!(found["interfaces"][0]["rule"].is_string(), "{found}");
    let options = ["--sample", "1s", "--verify", "6s", "--duration", "15s", "--anyway"];
    let auto = [&["auto", interface][..], &options, &["--policy", "rps", "--cpus", "0-1"]].concat();
    // Whether the change is better depends on the machine. `auto` undoes a change that is worse, and undoes all changes
    // when it ends.
    let output = ends(namespace, &[0, 1], &auto);
    assert!(output.contains("restored"), "{output}");
    assert_eq!(values(namespace, interface), before, "{output}");
    output
}

/// Writes packets of several flows into a tun device from CPU 0 until it is killed.
const WRITER: &str = r#"
import fcntl, os, struct
os.sched_setaffinity(0, {0})
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"tun9", 0x1001))
def packet(flow):
    udp = struct.pack("!HHHH", 1000 + flow, 2000, 16, 0) + bytes(8)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 36, 0, 0, 64, 17, 0, bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack("!H", ~total & 0xFFFF) + ip[12:]
    return ip + udp
packets = [packet(flow) for flow in range(16)]
while True:
    for one in packets:
        os.write(tun, one)
"#;

/// A process; dropping this ends it.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tun_is_steered_and_restored() {
    let test = "without_xdp::tun_is_steered_and_restored";
    let Some(_alone) = super::ready(test, &["python3"], 2) else { return };
    let namespace = Namespace::new().unwrap();
    namespace.ip("tuntap add dev tun9 mode tun").unwrap();
    namespace.ip("link set tun9 up").unwrap();
    let mut writer = namespace.command("python3");
    let writer = writer.args(["-c", WRITER]).stdin(Stdio::null()).spawn().unwrap();
    let _writer = Writer(writer);
    let output = check_steered_and_restored(&namespace, "tun9");
    assert!(output.contains("step 2: native XDP: no, because"), "{output}");
}

#[test]
fn wireguard_is_steered_and_restored() {
    let test = "without_xdp::wireguard_is_steered_and_restored";
    let Some(_alone) = super::ready(test, &["wg"], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (near, far) = (testbed.link().near.ipv4, testbed.link().far.ipv4);
    if let Err(why) = testbed.receiver().ip("link add wg0 type wireguard") {
        return skipped(&format!("live::{test}"), &format!("no WireGuard in this kernel: {why}"));
    }
    testbed.sender().ip("link add wg0 type wireguard").unwrap();
    let (sender, receiver) = (testbed.sender(), testbed.receiver());
    let ends = [(sender, 1, near), (receiver, 2, far)];
    let folder = tempfile::tempdir().unwrap();
    let keys = ends.map(|(namespace, number, _)| {
        let file = folder.path().join(number.to_string());
        std::fs::write(&file, namespace.run("wg genkey").unwrap()).unwrap();
        let script = ["-c", "wg pubkey <\"$1\"", "sh"];
        let output = namespace.command("sh").args(script).arg(&file).output().unwrap();
        let public = String::from_utf8(output.stdout).unwrap();
        (file.display().to_string(), public.trim().to_owned())
    });
    for (own, (namespace, number, _)) in ends.into_iter().enumerate() {
        let (key, other) = (&keys[own].0, &keys[1 - own].1);
        let (_, _, there) = ends[1 - own];
        let line = format!(
            "wg set wg0 listen-port 51820 private-key {key} peer {other} allowed-ips 198.51.100.0/24 endpoint {there}:51820"
        );
        namespace.run(&line).unwrap();
        namespace.ip(&format!("addr add 198.51.100.{number}/24 dev wg0")).unwrap();
        namespace.ip("link set wg0 up").unwrap();
    }
    let inside = |number| Ipv4Addr::new(198, 51, 100, number);
    let pairs: Vec<(SocketAddr, SocketAddr)> = (0..FLOWS)
        .map(|flow| ((inside(1), 10_000 + flow).into(), (inside(2), 20_000 + flow).into()))
        .collect();
    let sending = Datagrams::start(sender, &pairs, 0).unwrap();
    let message = check_steered_and_restored(receiver, "wg0");
    assert!(message.contains("step 2: native XDP: no, because"), "{message}");
    drop(sending);
}

#[test]
fn card_is_steered_and_restored() {
    let test = "without_xdp::card_is_steered_and_restored";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::cards_or_pair(LinkOptions::default()).unwrap();
    let link = testbed.link();
    let pairs: Vec<(SocketAddr, SocketAddr)> = (0..FLOWS)
        .map(|flow| ((link.near.ipv4, 10_000 + flow).into(), (link.far.ipv4, 20_000 + flow).into()))
        .collect();
    let sending = Datagrams::start(testbed.sender(), &pairs, 0).unwrap();
    let output = check_steered_and_restored(testbed.receiver(), &link.far.name);
    // If `rxsteer run` must refuse, `auto` must continue without it.
    if std::env::var_os("RXSTEER_REFUSED").is_some() {
        assert!(output.contains("step 2: native XDP: no, because"), "{output}");
        assert!(output.contains("step 3"), "{output}");
    }
    drop(sending);
}
