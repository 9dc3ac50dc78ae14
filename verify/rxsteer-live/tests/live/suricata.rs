//! Suricata reads what rxsteer steers, one stream of packets per CPU, and finds complete TCP streams: its own counters
//! show no gap and no session that began in the middle.

use std::path::Path;

use rxsteer_lab::{LinkOptions, Namespace, Pass, Steering, Testbed, send_recorded};
use serde_json::Value;

use super::out::{Running, live, report_of, until};

const STREAMS: u16 = 64;
/// Segments with data, in each direction.
const SEGMENTS: u32 = 20;
const DATA: usize = 1000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

/// A segment of a stream, from its client or its server; the addresses belong to no host here.
fn segment(
    stream: u16,
    from_client: bool,
    flags: u8,
    (seq, ack): (u32, u32),
    data: usize,
) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend((40 + data as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    let (client, server) = ([10, 9, 0, 1], [10, 9, 0, 2]);
    let ports = [1000 + stream, 7000];
    let (addresses, ports) = if from_client {
        ([client, server], ports)
    } else {
        ([server, client], [ports[1], ports[0]])
    };
    frame.extend(addresses.concat());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend([seq, ack].map(u32::to_be_bytes).concat());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(54 + data, b'x');
    frame
}

/// Complete connections, all at the same time.
fn connections() -> Vec<Vec<u8>> {
    let mut steps = Vec::<Vec<_>>::new();
    for _ in 0..STREAMS {
        let (mut client, mut server) = (1, 1);
        let mut all =
            vec![(true, SYN, (0, 0), 0), (false, SYN | ACK, (0, 1), 0), (true, ACK, (1, 1), 0)];
        for _ in 0..SEGMENTS {
            all.push((true, PUSH | ACK, (client, server), DATA));
            client += DATA as u32;
            all.push((false, PUSH | ACK, (server, client), DATA));
            server += DATA as u32;
        }
        all.push((true, FIN | ACK, (client, server), 0));
        all.push((false, FIN | ACK, (server, client + 1), 0));
        all.push((true, ACK, (client + 1, server + 1), 0));
        steps.push(all);
    }
    let mut frames = Vec::new();
    for step in 0..steps[0].len() {
        for (stream, all) in (0..).zip(&steps) {
            let (from_client, flags, numbers, data) = all[step];
            frames.push(segment(stream, from_client, flags, numbers, data));
        }
    }
    frames
}

/// Suricata on an interface, with a separate folder for its output.
fn suricata(namespace: &Namespace, interface: &str, folder: &Path, settings: &[&str]) -> Running {
    std::fs::create_dir(folder).unwrap();
    let mut command = namespace.command("suricata");
    command.args(["-c", "/etc/suricata/suricata.yaml", "-S", "/dev/null", "-k", "none", "-l"]);
    command.arg(folder).arg(format!("--af-packet={interface}"));
    let socket = format!("unix-command.filename={}", folder.join("socket").display());
    // The settings `af-packet.0.*` apply to this interface.
    let entry = format!("af-packet.0.interface={interface}");
    let mut all = vec!["stats.interval=1", "stream.midstream=false", &socket, &entry];
    all.extend(settings);
    for setting in all {
        command.args(["--set", setting]);
    }
    let started = Running::start(&mut command);
    let log = folder.join("suricata.log");
    until("starts Suricata", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("Engine started"))
    });
    started
}

/// The last figures that Suricata wrote.
fn figures(folder: &Path) -> Value {
    let events = std::fs::read_to_string(folder.join("eve.json")).unwrap_or_default();
    let mut events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let last = events.rfind(|event| event["event_type"] == "stats");
    last.map_or(Value::Null, |event| event["stats"].clone())
}

/// The sum of one figure over all instances of Suricata.
fn sum(folders: &[&Path], path: &str) -> u64 {
    folders
        .iter()
        .map(|folder| figures(folder).pointer(path).and_then(Value::as_u64).unwrap_or(0))
        .sum()
}

/// Asserts that all streams are complete.
fn check(folders: &[&Path], frames: usize) {
    until("has read all", || sum(folders, "/decoder/tcp") >= frames as u64);
    // Suricata writes its figures every second; those of the last packets come with the next ones.
    until("has seen all streams end", || sum(folders, "/tcp/sessions") >= u64::from(STREAMS));
    let all: Vec<Value> = folders.iter().map(|folder| figures(folder)).collect();
    for (figure, expected) in [
        ("/decoder/tcp", frames as u64),
        ("/tcp/syn", u64::from(STREAMS)),
        ("/tcp/synack", u64::from(STREAMS)),
        ("/tcp/sessions", u64::from(STREAMS)),
        ("/tcp/reassembly_gap", 0),
        ("/tcp/pkt_on_wrong_thread", 0),
        ("/tcp/invalid_checksum", 0),
        ("/tcp/midstream_pickups", 0),
    ] {
        assert_eq!(sum(folders, figure), expected, "{figure} in {all:?}");
    }
}

#[test]
fn streams_are_whole_behind_outputs() {
    let Some(_alone) = super::ready("suricata::streams_are_whole_behind_outputs", &["suricata"], 2)
    else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (receiver, folder) = (testbed.receiver(), tempfile::tempdir().unwrap());
    // The receiving end needs an XDP program to receive the recorded frames.
    let _pass = Pass::attach(receiver, &testbed.link().far).unwrap();
    let frames = connections();
    let mut live = live(receiver, &["--out", "tap:w%d"]);
    live.wait_for_stderr("receiving from");
    let folders = [0, 1].map(|cpu| folder.path().join(format!("w{cpu}")));
    let folders = [folders[0].as_path(), folders[1].as_path()];
    // Sockets of two interfaces can't be in one fanout group.
    let groups = ["af-packet.0.cluster-id=98", "af-packet.0.cluster-id=99"];
    let readers = [0, 1].map(|cpu| {
        let settings = ["af-packet.0.threads=1", groups[cpu]];
        suricata(receiver, &format!("w{cpu}"), folders[cpu], &settings)
    });
    send_recorded(testbed.sender(), testbed.link(), 0, &frames).unwrap();
    check(&folders, frames.len());
    for folder in folders {
        assert!(sum(&[folder], "/tcp/sessions") > 0, "one of them has seen nothing");
    }
    readers.iter().for_each(|suricata| suricata.signal("-TERM"));
    let report = report_of(live);
    assert_eq!(report["reordered"], 0, "{report}");
    readers.into_iter().for_each(|suricata| drop(suricata.ended()));
}

#[test]
fn streams_are_whole_by_cluster_cpu() {
    let Some(_alone) = super::ready("suricata::streams_are_whole_by_cluster_cpu", &["suricata"], 2)
    else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (receiver, folder) = (testbed.receiver(), tempfile::tempdir().unwrap());
    let frames = connections();
    let steering = Steering::start(receiver, &["in0", "--policy", "rps", "--cpus", "0-1"]).unwrap();
    let settings = ["af-packet.0.cluster-type=cluster_cpu", "af-packet.0.threads=2"];
    let logs = folder.path().join("in0");
    let reader = suricata(receiver, "in0", &logs, &settings);
    send_recorded(testbed.sender(), testbed.link(), 0, &frames).unwrap();
    check(&[&logs], frames.len());
    reader.signal("-TERM");
    reader.ended();
    steering.stop().unwrap();
}
