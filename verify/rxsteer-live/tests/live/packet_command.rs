//! `rxsteer live` with packet sockets: it counts the same as a replay, continues when an interface goes down and up,
//! ends when the interface is gone, and leaves nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, Pass, Steering, Testbed, Traffic, rxsteer, send_recorded, slice,
};
use serde_json::Value;

const SEED: &str = "0123456789abcdef0123456789abcdef";
const TIMEOUT: Duration = Duration::from_secs(20);

/// The figures that must be equal for recorded frames, live and in a replay.
fn counted(report: &Value) -> Vec<Value> {
    let mut all: Vec<Value> = [
        "packets",
        "bytes",
        "frames_not_ip",
        "malformed",
        "transport_truncated",
        "flows_bidirectional",
        "flows_unidirectional",
        "flows_steered",
        "largest_flow_packets",
        "delivered",
        "reordered",
        "dropped",
    ]
    .iter()
    .map(|key| report[key].clone())
    .collect();
    let cpus = report["cpus"].as_array().unwrap();
    all.extend(cpus.iter().map(|cpu| cpu["delivered"].clone()));
    all
}

fn replayed(pcap: &std::path::Path) -> Value {
    let mut replay = Command::new(rxsteer().unwrap());
    replay.args(["replay", "--policy", "rps", "--cpus", "0-1", "--json", "--hash-seed", SEED]);
    let output = replay.arg(pcap).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn recorded_frames_are_counted_as_replay_counts_them() {
    let test = "packet_command::recorded_frames_are_counted_as_replay_counts_them";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let Some(captures) = super::captures::captures(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let pcap = folder.path().join("frames.pcap");
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    for (host, interface) in [(testbed.sender(), "out0"), (receiver, "in0")] {
        host.run(&format!("sysctl -q -w net.ipv6.conf.{interface}.disable_ipv6=1")).unwrap();
    }
    let _pass = Pass::attach(receiver, &link.far).unwrap();
    let mut arguments = vec!["in0", "--io", "packet", "--policy", "rps", "--cpus", "0-1"];
    arguments.extend(["--hash-seed", SEED, "--max-backlog", "32768", "--promiscuous"]);
    let (mut compared, mut tagged, mut different) = (0, 0, vec![]);
    for capture in captures.into_iter().step_by(slice(2, 1)) {
        let frames = super::captures::frames(&capture);
        if frames.is_empty() {
            continue;
        }
        super::captures::write_pcap(&pcap, &frames);
        let live = Steering::live(receiver, &arguments).unwrap();
        send_recorded(testbed.sender(), link, 0, &frames).unwrap();
        let (live, _) = live.stop().unwrap();
        let replay = replayed(&pcap);
        assert_eq!(live["kernel_drops"], 0, "{}", capture.display());
        if counted(&live) != counted(&replay) {
            let (live, replay) = (counted(&live), counted(&replay));
            different.push(format!("{}:\nlive   {live:?}\nreplay {replay:?}", capture.display()));
        }
        compared += frames.len();
        tagged +=
            frames.iter().filter(|frame| matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8])).count();
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(
        compared > 1000 && tagged > 0,
        "{compared} frames to compare, {tagged} with a VLAN tag"
    );
}

#[test]
fn receiving_cpus_get_no_flows_unless_cpus_are_named() {
    let test = "packet_command::receiving_cpus_get_no_flows_unless_cpus_are_named";
    let Some(_alone) = super::ready(test, &[], 4) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let _pass = Pass::attach(testbed.receiver(), &testbed.link().far).unwrap();
    let traffic = Traffic { flows: 64, pace: Duration::from_micros(50), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let delivered_on_first = |arguments: &[&str]| {
        let live = Steering::live(testbed.receiver(), arguments).unwrap();
        source.send(testbed.sender(), 0, 5_000).unwrap();
        let (report, _) = live.stop().unwrap();
        assert!(report["delivered"].as_u64() >= Some(4_900), "{report:#}");
        assert_eq!(report["settings"]["rx_cpus"], serde_json::json!([0]), "{report:#}");
        let cpus = report["cpus"].as_array().unwrap();
        cpus.iter().find(|cpu| cpu["cpu"] == 0).map_or(0, |cpu| cpu["delivered"].as_u64().unwrap())
    };
    let basic = ["in0", "--io", "packet", "--policy", "rps"];
    assert_eq!(delivered_on_first(&basic), 0);
    assert!(delivered_on_first(&[&basic[..], &["--cpus", "0-1"]].concat()) > 0);
}

/// Waits until `is_so` returns true.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn it_goes_on_when_the_interface_goes_down_and_up() {
    let test = "packet_command::it_goes_on_when_the_interface_goes_down_and_up";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let _pass = Pass::attach(receiver, &link.far).unwrap();
    let traffic = Traffic { flows: 4, ..Traffic::default() };
    let source = LiveFrames::new(link, &traffic).unwrap();
    let live = Steering::live(receiver, &["in0", "--io", "packet", "--cpus", "0-0"]).unwrap();
    source.send(testbed.sender(), 0, 500).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    for command in [
        "link set in0 down",
        "link set in0 mtu 1400",
        "link set in0 name other",
        "link set other up",
    ] {
        receiver.ip(command).unwrap();
    }
    soon("the link comes up", || receiver.ip("-o link show other").unwrap().contains("LOWER_UP"));
    source.send(testbed.sender(), 0, 500).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (report, _) = live.stop().unwrap();
    let packets = report["packets"].as_u64().unwrap();
    assert!(packets >= 1000, "{report}");
    assert_eq!((&report["delivered"], &report["errors"]), (&packets.into(), &Value::Array(vec![])));
}

#[test]
fn it_ends_with_its_report_when_the_interface_is_gone() {
    let test = "packet_command::it_ends_with_its_report_when_the_interface_is_gone";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    for commands in [&["link del in0"][..], &["link set in0 down", "link del in0"]] {
        let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
        let receiver = testbed.receiver();
        let live = Steering::live(receiver, &["in0", "--io", "packet", "--cpus", "0-0"]).unwrap();
        for command in commands {
            receiver.ip(command).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        let (status, report) = live.report().unwrap();
        assert_eq!(status.code(), Some(1), "{report}");
        let message = report["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains("gone"), "{message}");
    }
}

#[test]
fn killing_it_leaves_nothing() {
    let Some(_alone) = super::ready("packet_command::killing_it_leaves_nothing", &[], 1) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let promiscuity = || -> Value {
        let text = receiver.ip("-j -d link show dev in0").unwrap();
        serde_json::from_str::<Value>(&text).unwrap()[0]["promiscuity"].clone()
    };
    let sockets = || receiver.run("cat /proc/net/packet").unwrap().lines().count();
    let before = (promiscuity(), sockets());
    let arguments = ["in0", "--io", "packet", "--cpus", "0-0", "--promiscuous"];
    let live = Steering::live(receiver, &arguments).unwrap();
    assert_eq!((promiscuity(), sockets()), (1.into(), before.1 + 1));
    live.kill().unwrap();
    soon("the socket is gone", || (promiscuity(), sockets()) == before);
}

#[test]
fn missing_privileges_are_named() {
    let test = "packet_command::missing_privileges_are_named";
    let Some(_alone) = super::ready(test, &["setpriv"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let by = ["setpriv", "--bounding-set", "-net_raw"];
    let arguments = ["in0", "--io", "packet", "--cpus", "0-0"];
    let mut live = Steering::begin_live_by(testbed.receiver(), &by, &arguments).unwrap();
    assert_eq!(live.wait(TIMEOUT).unwrap().code(), Some(2));
    live.wait_for_stderr("CAP_NET_RAW", TIMEOUT).unwrap();
}
