//! `rxsteer run --listen` under live traffic: its numbers are those of `rxsteer status --json`, and its thread has no
//! privileges.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, Namespace, Steering, Testbed, Traffic};
use serde_json::Value;

use super::ask;

/// The body of the answer to a request in a namespace; the status if it is not 200.
fn get(namespace: &Namespace, address: SocketAddr, path: &str, host: &str) -> Result<String, u16> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = namespace.inside(|| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Ok(text)
    });
    let answer = answer.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    match head.split(' ').nth(1).unwrap().parse().unwrap() {
        200 => Ok(body.to_owned()),
        status => Err(status),
    }
}

#[test]
fn metrics_and_page_show_what_status_shows() {
    let test = "serve::metrics_and_page_show_what_status_shows";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    receiver.ip("link set lo up").unwrap();
    let arguments =
        ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket, "--listen", "127.0.0.1:0"];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let prefix = "rxsteer: metrics and page at http://";
    steering.wait_for_stderr(prefix, Duration::from_secs(10)).unwrap();
    let stderr = steering.stderr();
    let address =
        stderr.lines().find_map(|line| line.strip_prefix(prefix)?.strip_suffix('/')).unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let source =
        LiveFrames::new(testbed.link(), &Traffic { flows: 16, ..Traffic::default() }).unwrap();
    source.send(testbed.sender(), 0, 20_000).unwrap();
    // Waits until frames under way have arrived.
    std::thread::sleep(Duration::from_millis(500));
    let here = address.to_string();
    let status = || -> Value {
        serde_json::from_str(&ask(&["status", "--socket", &socket, "--json"])).unwrap()
    };
    // Repeats the comparison, since a host may send a frame by itself between two readings.
    let readings = (0..20).find_map(|_| {
        let before = status();
        let shown = get(receiver, address, "/api/status", &here).unwrap();
        let metrics = get(receiver, address, "/metrics", &here).unwrap();
        (status()["received"] == before["received"]).then_some((before, shown, metrics))
    });
    let (status, shown, metrics) = readings.expect("frames come all the time");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let instance = &shown["instances"][0];
    assert!(status["received"].as_u64() >= Some(20_000), "{status}");
    for name in [
        "received",
        "passed",
        "redirected",
        "delivered",
        "drops",
        "moves",
        "deferred",
        "bytes",
        "pid",
        "settings",
    ] {
        assert_eq!(instance[name], status[name], "{name}");
    }
    for (at, name) in [
        ("rxsteer_cpu_delivered_packets_total", "delivered"),
        ("rxsteer_cpu_received_packets_total", "received"),
    ] {
        let values = metrics
            .lines()
            .filter(|line| line.starts_with(at))
            .filter_map(|line| line.split(' ').nth(1));
        let sum: f64 = values.map(|value| value.parse::<f64>().unwrap()).sum();
        assert_eq!(Some(sum), status[name].as_f64(), "{name}");
    }
    assert!(get(receiver, address, "/", &here).unwrap().contains("<title>rxsteer</title>"));
    assert_eq!(get(receiver, address, "/", "evil.example"), Err(421));
    // The serving thread, and those that it started, have no capability.
    let tasks = format!("/proc/{}/task", steering.id());
    let mut seen = 0;
    for task in std::fs::read_dir(&tasks).unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "rxsteer-serve" {
            seen += 1;
            let status = read("status");
            for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
                let line = status.lines().find(|line| line.starts_with(set)).unwrap();
                assert!(line.ends_with("0000000000000000"), "{line}");
            }
        }
    }
    assert!(seen > 0, "no thread serves");
    assert_eq!(steering.totals().unwrap().unaccounted(), 0);
}
