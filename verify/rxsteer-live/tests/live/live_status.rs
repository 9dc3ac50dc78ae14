//! `rxsteer status` of a running `rxsteer live`: once traffic has stopped, its counts are those of the report.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rxsteer_lab::{LinkOptions, LiveFrames, Namespace, Pass, Steering, Testbed, Traffic, rxsteer};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(20);
const FRAMES: u64 = 3000;

/// The output of `rxsteer status` in a namespace.
fn status(namespace: &Namespace, arguments: &[&str]) -> Result<Value, String> {
    let mut command: Command = namespace.command(rxsteer().unwrap());
    let output = command.args(["status", "--json"]).args(arguments).output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Asserts that packets add up; returns how many were received.
fn adds_up(status: &Value) -> u64 {
    let dropped: u64 = status["drops"].as_object().unwrap().values().map(number).sum();
    let known = [&status["passed"], &status["delivered"], &status["waiting"]].map(number);
    let received = number(&status["received"]);
    assert_eq!(received, known.iter().sum::<u64>() + dropped, "{status}");
    received
}

/// Reads statuses until one shows `received` packets, none of which waits.
fn once_received(namespace: &Namespace, arguments: &[&str], received: u64) -> Value {
    let started = Instant::now();
    loop {
        let status = status(namespace, arguments).unwrap();
        if adds_up(&status) >= received && status["waiting"] == 0 {
            return status;
        }
        assert!(started.elapsed() < TIMEOUT, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Compares the figures that the report of a run and a status have in common.
fn equals(status: &Value, report: &Value) {
    for counter in [
        "bytes",
        "delivered",
        "frames_not_ip",
        "malformed",
        "reordered",
        "moves",
        "deferred",
        "rfs",
        "in_slots",
        "hashed",
        "bound",
        "local",
    ] {
        assert_eq!(status[counter], report[counter], "{counter}: {status} {report}");
    }
    assert_eq!(status["received"], report["packets"]);
    assert_eq!(status["drops"]["ring_full"], report["dropped"]["backlog_full"]);
    let (shown, reported) = (&status["cpus"], report["cpus"].as_array().unwrap());
    for (index, of) in reported.iter().enumerate() {
        let cpu = &shown[index];
        assert_eq!((&cpu["cpu"], &cpu["delivered"]), (&of["cpu"], &of["delivered"]));
    }
    let (interface, of) = (&status["interfaces"][0], &report["interfaces"][0]);
    assert_eq!((&interface["received"], &interface["bytes"]), (&of["packets"], &of["bytes"]));
    assert_eq!(interface["kernel_drops"], of["kernel_drops"]);
}

/// Sends frames into a live run with these arguments; returns its status by interface and by socket, and its report.
fn run_and_read(arguments: &[&str], folder: &Path) -> (Value, Value) {
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    for (host, interface) in [(testbed.sender(), "out0"), (receiver, "in0")] {
        host.run(&format!("sysctl -q -w net.ipv6.conf.{interface}.disable_ipv6=1")).unwrap();
    }
    let _pass = Pass::attach(receiver, &link.far).unwrap();
    let source = LiveFrames::new(link, &Traffic { flows: 40, ..Traffic::default() }).unwrap();
    let socket = folder.join("live.sock");
    let socket = socket.to_str().unwrap();
    let at_socket = ["--socket", socket];
    let live = Steering::live(receiver, &[arguments, &at_socket].concat()).unwrap();
    source.send(testbed.sender(), 0, FRAMES).unwrap();
    let shown = once_received(receiver, &["in0", "--flows", "5"], FRAMES);
    assert_eq!((&shown["command"], &shown["socket"]), (&"live".into(), &socket.into()));
    assert_eq!(shown["interfaces"][0]["state"], "steered");
    let same = status(receiver, &at_socket).unwrap();
    assert_eq!((&same["pid"], &same["received"]), (&shown["pid"], &shown["received"]));
    let (report, _) = live.stop().unwrap();
    assert!(status(receiver, &at_socket).is_err(), "the socket goes with it");
    (shown, report)
}

#[test]
fn status_equals_the_report_once_traffic_has_stopped() {
    let test = "live_status::status_equals_the_report_once_traffic_has_stopped";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("flows.csv");
    let common = ["in0", "--io", "packet", "--cpus", "0-1", "--max-backlog", "32768"];
    for policy in ["rps", "rfs+sparse"] {
        let arguments =
            [&common[..], &["--policy", policy, "--flows", records.to_str().unwrap()]].concat();
        let (status, report) = run_and_read(&arguments, folder.path());
        equals(&status, &report);
        assert_eq!(number(&status["flows"]), number(&report["flow_statistics"]["flows_created"]));
        let largest = status["largest_flows"].as_array().unwrap();
        assert_eq!(largest.len(), 5, "{largest:?}");
        for flow in largest {
            let shares = flow["cpus"].as_array().unwrap().iter().map(|on| number(&on["packets"]));
            assert_eq!(shares.sum::<u64>(), number(&flow["packets"]), "{flow}");
        }
    }
}

/// Even without traffic, a setting that can change does so at once, and the report has the last settings.
#[test]
fn settings_change_or_are_refused_with_the_reason() {
    let test = "live_status::settings_change_or_are_refused_with_the_reason";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let set = |settings: &str| {
        let mut command = receiver.command(rxsteer().unwrap());
        let output = command.args(["set", "in0"]).args(settings.split(", ")).output().unwrap();
        let output_text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&output_text).into_owned())
    };
    let arguments = ["in0", "--io", "packet", "--policy", "rps", "--cpus", "0-0"];
    let live = Steering::live(receiver, &arguments).unwrap();
    for (settings, part) in [
        ("cpus=0-1", "CPU 1 has no worker; CPUs with workers: 0. "),
        ("rule=udp -> 1", "restart with --standby 1-1"),
        ("policy=none, rps-map=0=0-0", "policies 'none' and 'bound' use none"),
        ("max-backlog=1001", "here it can be 1 to 1000; start again with a larger --max-backlog"),
        ("queue-size=512", "in rxsteer live it is max-backlog"),
        ("policy=sparse, threads=other", "threads is a setting of rxsteer run alone"),
        ("hash=toeplitz", "hash can't change while rxsteer runs; restart rxsteer to change it"),
    ] {
        let (code, output_text) = set(settings);
        assert!(
            code == Some(2) && output_text.contains(part),
            "{settings}: {code:?} {output_text}"
        );
    }
    let settings = || status(receiver, &["in0"]).unwrap()["settings"].clone();
    assert_eq!((&settings()["policy"], &settings()["queue_size"]), (&"rps".into(), &1000.into()));
    live.stop().unwrap();
    let arguments = [&arguments[..], &["--standby", "0-1"]].concat();
    let live = Steering::live(receiver, &arguments).unwrap();
    for all in ["policy=sparse, cpus=0-1", "rule=udp -> 1, rule=tcp -> pass", "flow-cnt=5000"] {
        assert_eq!(set(all).0, Some(0), "{all}");
    }
    let (code, output_text) = set("policy=rfs, max-backlog=500, flow-limit=64");
    assert_eq!(code, Some(0), "{output_text}");
    assert!(
        output_text.contains("policy rfs, CPUs 0-1, packet mode, queue size 500"),
        "{output_text}"
    );
    let now = settings();
    assert_eq!((&now["flow_cnt"], &now["flow_limit"]), (&8192.into(), &64.into()));
    assert_eq!(now["rules"][1]["rule"], "tcp → pass");
    let report = live.stop().unwrap().0;
    let last = (&report["policy"], &report["settings"]["cpus"]);
    assert_eq!(last, (&"rfs".into(), &"0-1".into()), "{report}");
}

#[test]
fn interface_that_is_down_is_shown_so() {
    let test = "live_status::interface_that_is_down_is_shown_so";
    let Some(_alone) = super::ready(test, &[], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let live = Steering::live(receiver, &["in0", "--io", "packet", "--cpus", "0-0"]).unwrap();
    let interface = || status(receiver, &["in0"]).unwrap()["interfaces"][0].clone();
    assert_eq!(interface()["state"], "steered");
    receiver.ip("link set in0 down").unwrap();
    assert_eq!(interface()["state"], "down");
    live.stop().unwrap();
}

#[test]
fn packets_that_a_full_backlog_drops_are_shown() {
    let test = "live_status::packets_that_a_full_backlog_drops_are_shown";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["in0", "--io", "packet", "--cpus", "0-1", "--max-backlog", "8"];
    let slow = ["--policy", "rps", "--work-ns", "100000"];
    let (status, report) = run_and_read(&[&arguments[..], &slow].concat(), folder.path());
    equals(&status, &report);
    assert!(number(&status["drops"]["ring_full"]) > 0, "{status}");
}

#[test]
fn what_happens_is_in_the_file_of_events_and_in_the_status() {
    let test = "live_status::what_happens_is_in_the_file_of_events_and_in_the_status";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events");
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    let events = ["--events", file.to_str().unwrap()];
    let arguments = [&["in0", "in1", "--io", "packet", "--cpus", "0-1"][..], &events].concat();
    let live = Steering::live(receiver, &arguments).unwrap();
    let of_kind = |kind: &'static str| move |event: &Value| event["kind"] == kind;
    let set = |setting: &str| {
        let output = receiver.command(rxsteer().unwrap()).args(["set", "in0", setting]).output();
        output.unwrap().status.code()
    };
    assert_eq!(set("queue-size=9"), Some(2));
    let text = super::watch::event(&file, of_kind("change_refused"))["text"].to_string();
    assert!(
        text.contains("queue-size=9 is refused: queue-size is a setting of rxsteer run"),
        "{text}"
    );
    assert_eq!([set("policy=sparse"), set("policy=rfs")], [Some(0); 2]);
    let text = super::watch::event(&file, of_kind("change_done"))["text"].to_string();
    assert!(text.contains("policy=sparse (was rps)"), "{text}");
    let steered = super::watch::event(&file, of_kind("interface_steered"));
    assert_eq!((&steered["number"], &steered["fields"]["interface"]), (&1.into(), &"in0".into()));
    receiver.ip("link set in1 down").unwrap();
    let down = super::watch::event(&file, of_kind("interface_changed"));
    assert_eq!(down["fields"]["interface"], "in1");
    receiver.ip("link del in1").unwrap();
    let gone = super::watch::event(&file, of_kind("interface_gone"));
    assert_eq!(gone["fields"]["interface"], "in1");
    assert!(
        live.stderr().contains("in1 is gone"),
        "the message is printed, too: {}",
        live.stderr()
    );
    let shown = status(receiver, &["in0"]).unwrap();
    let kinds: Vec<&Value> =
        shown["events"].as_array().unwrap().iter().map(|e| &e["kind"]).collect();
    assert!(kinds.contains(&&"interface_gone".into()), "{shown}");
    // The exit status is 1 if an interface has disappeared.
    let (status, _) = live.terminated().unwrap();
    assert_eq!(status.code(), Some(1));
}
