//! What the status of a running instance shows: delays, rates and events.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    BusyProcesses, LinkOptions, LiveFrames, Steering, Testbed, Traffic, offline, rxsteer, skipped,
};
use serde_json::Value;

use super::{ask, set};

/// The timeout for something that takes a moment, on a machine with other load.
const TIMEOUT: Duration = Duration::from_secs(20);

/// `rxsteer status --json --interval`; it is killed when this is dropped.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watching {
    fn begin(socket: &str) -> Watching {
        let mut command = Command::new(rxsteer().unwrap());
        command.args(["status", "--json", "--interval", "200ms", "--socket", socket]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watching { child, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("one line an interval").unwrap()).unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The numbers of samples by bucket, of CPU 1.
fn samples(status: &Value) -> u64 {
    let cpus = status["cpus"].as_array().unwrap();
    let cpu = cpus.iter().find(|cpu| cpu["cpu"] == 1).unwrap();
    let buckets = cpu["delay"]["buckets"].as_array();
    buckets.map_or(0, |buckets| buckets.iter().filter_map(Value::as_u64).sum())
}

/// The largest 99th percentile and the smallest median of the delays in some lines, in nanoseconds.
fn delays(lines: &[Value]) -> (u64, u64) {
    let all = |name: &str| {
        let values = lines.iter().filter_map(|line| line["rates"]["totals"][name].as_u64());
        values.collect::<Vec<_>>()
    };
    (
        all("delay_p99_ns").into_iter().max().unwrap_or(0),
        all("delay_p50_ns").into_iter().min().unwrap_or(0),
    )
}

/// Sends frames to CPU 1, guarded or not: delays are sampled, and increase when busy processes take the CPU.
fn delays_of(test: &str, policy: &str) {
    let Some(_alone) = super::ready(test, &["taskset"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments =
        ["in0", "--policy", policy, "--cpus", "1-1", "--threads", "other", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: 16, pace: Duration::from_micros(10), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let (quiet, busy) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 20_000, &stop));
        let stopping = super::Stop(&stop);
        let mut watching = Watching::begin(&socket);
        let mut lines = || (0..5).map(|_| watching.next()).collect::<Vec<Value>>();
        let quiet = lines();
        let processes = BusyProcesses::start(&[1], 8).unwrap();
        let busy = lines();
        drop(processes);
        drop(stopping);
        sending.join().unwrap().unwrap();
        (quiet, busy)
    });
    let report: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
    let totals = steering.totals().unwrap();
    // One of 256 frames is a sample. At the end a sample may be under way, or its frame may be lost.
    let (counted, wanted) = (samples(&report), totals.delivered / 256);
    assert!(
        counted <= wanted + 100 && counted >= wanted / 2,
        "{counted} samples, {wanted} are meant: {totals:?}"
    );
    let ((quiet_most, quiet_least), (busy_most, _)) = (delays(&quiet), delays(&busy));
    assert!(quiet_least > 0 && quiet_most >= quiet_least, "{quiet:?}");
    // The thread now waits for time slices of milliseconds; before, it waited only for a wake-up.
    assert!(busy_most > quiet_least, "{quiet_least} ns, then {busy_most} ns");
}

#[test]
fn busy_cpu_shows_in_the_delays_of_guarded_frames() {
    delays_of("watch::busy_cpu_shows_in_the_delays_of_guarded_frames", "rfs+sparse");
}

#[test]
fn busy_cpu_shows_in_the_delays_of_unguarded_frames() {
    delays_of("watch::busy_cpu_shows_in_the_delays_of_unguarded_frames", "rps");
}

#[test]
fn rates_add_up_to_what_was_sent() {
    let test = "watch::rates_add_up_to_what_was_sent";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let mut watching = Watching::begin(&socket);
    watching.next();
    let traffic = Traffic { flows: 64, pace: Duration::from_micros(5), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    const FRAMES: u64 = 100_000;
    source.send(testbed.sender(), 0, FRAMES).unwrap();
    let sent: u64 = source.sent().unwrap().iter().sum();
    // Sums over the lines: packets and bytes of the interface, packets of both CPUs together, and packets that were
    // delivered and dropped.
    let mut sums = [0.0; 5];
    let started = Instant::now();
    loop {
        let line = watching.next();
        let rates = &line["rates"];
        let seconds = rates["interval_ns"].as_f64().unwrap() / 1e9;
        let per_second = |value: &Value| value.as_f64().unwrap() * seconds;
        let of_cpus = rates["cpus"].as_array().unwrap().iter();
        let values = [
            per_second(&rates["interfaces"][0]["packets"]),
            per_second(&rates["interfaces"][0]["bits"]) / 8.0,
            of_cpus.map(|cpu| per_second(&cpu["packets"])).sum(),
            per_second(&rates["totals"]["delivered"]),
            per_second(&rates["totals"]["dropped"]),
        ];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        let is_over = line["received"].as_u64().unwrap() >= sent && values[0] < 100.0;
        if is_over || started.elapsed() > TIMEOUT {
            break;
        }
    }
    let totals = steering.totals().unwrap();
    let [packets, bytes, by_cpu, delivered, dropped] = sums;
    println!("{sent} frames sent: {sums:?}; {totals:?}");
    let is_about = |value: f64, of: f64| value > of * 0.95 && value < of * 1.05;
    assert!(is_about(packets, sent as f64), "{packets} of {sent}");
    assert!(is_about(by_cpu, sent as f64), "{by_cpu} of {sent}");
    assert!(is_about(bytes, sent as f64 * 90.0), "{bytes} bytes");
    assert!(is_about(delivered + dropped, sent as f64), "{delivered} and {dropped}");
}

/// Waits until one of the events in `file` is as wanted, and returns it.
pub(super) fn event(file: &std::path::Path, is_it: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(event) = events.find(&is_it) {
            return event;
        }
        assert!(started.elapsed() < TIMEOUT, "no such event: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_happens_is_in_the_file_of_events_and_in_the_status() {
    let test = "watch::what_happens_is_in_the_file_of_events_and_in_the_status";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let file = folder.path().join("events");
    let mut testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    let arguments = [
        "in0",
        "in1",
        "--policy",
        "rps",
        "--cpus",
        "0-1",
        "--socket",
        &socket,
        "--events",
        file.to_str().unwrap(),
    ];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let of_kind = |kind: &'static str| move |event: &Value| event["kind"] == kind;
    assert_eq!(event(&file, of_kind("interface_steered"))["fields"]["interface"], "in0");
    set(&socket, "policy=sparse queue-size=512");
    let done = event(&file, of_kind("change_done"));
    assert_eq!(done["fields"]["changes"], "policy=sparse (was rps), queue-size=512 (was 2048)");
    let mut refused = Command::new(rxsteer().unwrap());
    let refused = refused.args(["set", "--socket", &socket, "policy=bound:7=1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = event(&file, of_kind("change_refused"))["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("policy=bound:7=1 is refused: "), "{text}");
    match std::fs::OpenOptions::new().write(true).open("/sys/devices/system/cpu/cpu1/online") {
        Err(why) => skipped(&format!("live::{test}/offline"), &format!("CPU 1 stays: {why}")),
        Ok(_) => {
            let gone = offline(1).unwrap();
            assert_eq!(event(&file, of_kind("cpu_offline"))["fields"]["cpus"], "1");
            drop(gone);
            event(&file, of_kind("cpu_online"));
        }
    }
    testbed.receiver().ip("link del in1").unwrap();
    assert_eq!(event(&file, of_kind("interface_gone"))["fields"]["interface"], "in1");
    assert!(steering.stderr().contains("in1 is no longer steered"), "messages are as before");
    let report: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
    let read = std::fs::read_to_string(&file).unwrap();
    let in_file: Vec<Value> =
        read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let in_status = report["events"].as_array().unwrap();
    assert!(in_status.len() >= in_file.len().min(5), "{in_status:?}");
    assert_eq!(
        in_file[..in_status.len().min(in_file.len())],
        in_status[..in_status.len().min(in_file.len())]
    );
    let numbers: Vec<u64> = in_file.iter().filter_map(|event| event["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=in_file.len() as u64).collect::<Vec<_>>());
    let mut interfaces = report["interfaces"].as_array().unwrap().iter();
    assert!(
        interfaces.any(|known| known["name"] == "in0" && known["running_ns"].as_u64() > Some(0))
    );
    steering.stop().unwrap();
}
