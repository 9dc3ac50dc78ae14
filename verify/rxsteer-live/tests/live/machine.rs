//! The result of `check` for this machine is right: either each policy steers in order and every frame is accounted
//! for, or `run` refuses before a frame is affected.
//!
//! The tests run on a veth pair, or on two NICs of the machine (`RXSTEER_CARDS`), with datagrams that any driver can
//! send. They are most of the tests in the virtual machines of `cargo xtask vm`. If `run` must refuse,
//! `RXSTEER_REFUSED` has words of the expected reason. Measurements are written to the file `RXSTEER_MEASURED`, as a
//! JSON object for each test. `RXSTEER_FRAMES` is the number of numbered frames for each test.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rxsteer_lab::{
    Datagrams, LinkOptions, Loaded, MovingApplication, Namespace, OrderCheck, RingThread, Steering,
    Testbed, Totals, clients, is_loaded, loaded, missing, online_cpus, ring_threads, rxsteer,
    slice,
};
use serde_json::{Map, Value, json};

const FLOWS: u16 = 8;
/// The datagrams that the application reads before it moves.
const DATAGRAMS_PER_MOVE: u64 = 256;
/// Anything that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two changes of settings.
const BETWEEN_CHANGES: Duration = Duration::from_millis(200);

/// The measurements; they are written when this is dropped, however far the test came.
struct Record(Map<String, Value>);

impl Record {
    fn of(test: &str, policy: &str) -> Self {
        let mut record = Self(Map::new());
        record.note("test", format!("machine::{test}"));
        record.note("policy", policy);
        record
    }

    fn note(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(path) = std::env::var_os("RXSTEER_MEASURED") else { return };
        let line = format!("{}\n", Value::Object(std::mem::take(&mut self.0)));
        let file = OpenOptions::new().create(true).append(true).open(path);
        // An error cannot be returned during a panic; a missing row is noticed.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Runs `rxsteer check INTERFACE --json` in a namespace; returns whether rxsteer can run, and the findings that prevent
/// it.
fn check(namespace: &Namespace, interface: &str) -> (bool, Vec<Value>) {
    let mut command = namespace.command(rxsteer().unwrap());
    let output = command.args(["check", interface, "--json"]).output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"));
    let can_run = report["can_run"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!can_run)), "{report}");
    let findings = [&report["host"]["findings"], &report["interfaces"][0]["findings"]];
    let findings = findings.iter().flat_map(|findings| findings.as_array().unwrap());
    (can_run, findings.filter(|finding| finding["blocks"] == true).cloned().collect())
}

/// Applies the ethtool commands that `check` suggests, and returns the result of another `check`.
fn prepared(namespace: &Namespace, interface: &str, record: &mut Record) -> (bool, Vec<Value>) {
    let (can_run, obstacles) = check(namespace, interface);
    let fixes: Vec<&str> = obstacles.iter().filter_map(|finding| finding["fix"].as_str()).collect();
    let fixes: Vec<&str> = fixes.into_iter().filter(|fix| fix.starts_with("ethtool -K ")).collect();
    if can_run || fixes.is_empty() {
        return (can_run, obstacles);
    }
    for fix in &fixes {
        namespace.run(fix).unwrap();
    }
    record.note("after", fixes);
    check(namespace, interface)
}

/// Words of the reason for which `run` must refuse here, if it must.
fn must_refuse(policy: &str) -> Option<String> {
    let everywhere = std::env::var("RXSTEER_REFUSED").ok();
    let lacks_rfs = || policy.contains("rfs") && !super::has_rfs();
    everywhere.or_else(|| lacks_rfs().then(|| "rfs".to_owned()))
}

/// Asserts that `run` refuses, as `check` reports, and that nothing is attached.
fn refused(testbed: &Testbed, policy: &str, words: &str, record: &mut Record) {
    let (receiver, far) = (testbed.receiver(), &testbed.link().far.name);
    let (can_run, obstacles) = prepared(receiver, far, record);
    let mut steering = Steering::begin(receiver, &arguments(far, policy)).unwrap();
    let started = Instant::now();
    while steering.ended().unwrap().is_none() && started.elapsed() < TIMEOUT {
        assert!(!steering.stderr().starts_with("steering"), "it steers: {}", steering.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its last message may still be on its way through the pipe.
    std::thread::sleep(Duration::from_millis(200));
    let stderr = steering.stderr();
    record.note("refused", stderr.trim());
    let status = steering.ended().unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(2), "{stderr}");
    assert!(stderr.contains(words), "{words:?} is not the reason: {stderr}");
    assert_eq!(super::program_on(receiver, far), None, "it left a program");
    // A policy may be refused on a machine where other policies work.
    let others_work = std::env::var_os("RXSTEER_REFUSED").is_none();
    assert_eq!(can_run, others_work, "check says otherwise: {obstacles:?}; run said: {stderr}");
}

/// The online CPUs, in the syntax of `--cpus`.
fn online() -> String {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus = text.trim();
    if cpus.contains(['-', ',']) { cpus.to_owned() } else { format!("{cpus}-{cpus}") }
}

/// Arguments of `run`; with `default`, it chooses its policy itself.
fn arguments<'a>(interface: &'a str, policy: &'a str) -> Vec<&'a str> {
    match policy {
        "default" => vec![interface],
        _ => vec![interface, "--policy", policy],
    }
}

/// A `bound` policy that assigns the RX queues of an interface to the online CPUs in turn.
fn bound(namespace: &Namespace, interface: &str) -> String {
    let listed = namespace.run(&format!("ls /sys/class/net/{interface}/queues")).unwrap();
    let queues = listed.split_whitespace().filter(|name| name.starts_with("rx-")).count();
    let cpus = online_cpus();
    let pairs: Vec<String> =
        (0..queues).map(|queue| format!("{queue}={}", (queue + 1) % cpus)).collect();
    format!("bound:{}", pairs.join(","))
}

/// Runs `set`, which may report that the change is still pending.
fn try_set(socket: &str, settings: &str) -> Output {
    let mut set = Command::new(rxsteer().unwrap());
    set.args(["set", "--socket", socket]).args(settings.split(' ')).output().unwrap()
}

fn status(socket: &str) -> Value {
    let report: Value =
        serde_json::from_str(&super::ask(&["status", "--json", "--socket", socket])).unwrap();
    // The report is one instance, or a list of instances.
    report.get(0).unwrap_or(&report).clone()
}

/// Waits for a condition, and fails if it takes too long.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "{what}: not within {} s", TIMEOUT.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for `more` frames.
fn wait_for_frames(what: &str, check: &OrderCheck, more: u64) {
    let before = check.total().unwrap().frames;
    wait_until(what, || check.total().unwrap().frames >= before + more);
}

/// Starts `rxsteer run` while frames flow. Returns it with the longest time without a frame, until a thousand frames
/// had arrived through it.
fn attach(receiver: &Namespace, run: &[&str], order: &OrderCheck) -> (Steering, Duration) {
    let mut steering = Steering::begin(receiver, run).unwrap();
    let started = Instant::now();
    let (mut longest, mut seen, mut since) =
        (Duration::ZERO, order.total().unwrap().frames, started);
    let mut attached_at = None;
    while attached_at.is_none_or(|attached_at| seen < attached_at + 1000) {
        assert_eq!(steering.ended().unwrap(), None, "{}", steering.stderr());
        assert!(
            started.elapsed() < TIMEOUT,
            "not within {} s: {}",
            TIMEOUT.as_secs(),
            steering.stderr()
        );
        let now = order.total().unwrap().frames;
        if now > seen {
            longest = longest.max(since.elapsed());
            (seen, since) = (now, Instant::now());
        }
        if attached_at.is_none()
            && steering.stderr().lines().any(|line| line.starts_with("steering"))
        {
            attached_at = Some(seen);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (steering, longest)
}

/// The enabled features of an interface.
fn features_on(namespace: &Namespace, interface: &str) -> Vec<String> {
    let listed = namespace.run(&format!("ethtool -k {interface}")).unwrap();
    let on = listed.lines().filter_map(|line| line.trim().split_once(": on"));
    on.map(|(name, _)| name.to_owned()).collect()
}

/// Records the bytes that a TCP stream transfers, and in how many frames they arrive, if iperf3 is installed. Segments
/// that the host or the driver has merged count as one frame.
fn tcp(testbed: &Testbed, datagrams: &Datagrams, when: &str, record: &mut Record) {
    if missing(&["iperf3", "ss"]).is_some() {
        return;
    }
    let (receiver, far) = (testbed.receiver(), &testbed.link().far);
    let frames = || -> u64 {
        let file = format!("cat /sys/class/net/{}/statistics/rx_packets", far.name);
        receiver.run(&file).unwrap().trim().parse().unwrap()
    };
    // Only the stream's frames are to be counted.
    datagrams.pause();
    let _server = clients::iperf3_server(receiver, None).unwrap();
    let before = frames();
    let length = ["-t", slice("1", "3")];
    let report = clients::iperf3(testbed.sender(), far.ipv4.into(), &length).unwrap();
    let came = frames() - before;
    datagrams.resume();
    assert!(report.received > 0 && came > 0, "{came} frames: {report:?}");
    record.note(&format!("tcp_bytes{when}"), report.received);
    record.note(&format!("tcp_frames{when}"), came);
}

/// Datagrams, and an application that reads them on one CPU after the other.
fn traffic(testbed: &Testbed) -> (MovingApplication, Datagrams) {
    let link = testbed.link();
    let pairs: Vec<(SocketAddr, SocketAddr)> = (0..FLOWS)
        .map(|flow| ((link.near.ipv4, 10_000 + flow).into(), (link.far.ipv4, 20_000 + flow).into()))
        .collect();
    let turned: Vec<_> = pairs.iter().map(|(near, far)| (*far, *near)).collect();
    let cpus: Vec<usize> = (0..online_cpus().min(4)).collect();
    let application =
        MovingApplication::start(testbed.receiver(), &turned, &cpus, DATAGRAMS_PER_MOVE).unwrap();
    (application, Datagrams::start(testbed.sender(), &pairs, 0).unwrap())
}

/// The numbered frames that must arrive while settings change.
fn frames() -> u64 {
    let given = std::env::var("RXSTEER_FRAMES").ok();
    given.map_or(slice(10_000, 100_000), |text| text.parse().unwrap())
}

/// Changes settings while numbered frames flow; returns the number of changes.
fn change(socket: &str, policy: &str, check: &OrderCheck, frames: u64) -> u64 {
    let cpus = online();
    let away = if policy == "rps" { "sparse" } else { "rps" };
    let mut steps = vec![
        "cpus=0-0".to_owned(),
        format!("cpus={cpus}"),
        "queue-size=512".to_owned(),
        "queue-size=2048".to_owned(),
    ];
    if policy != "default" {
        steps.extend([format!("policy={away}"), format!("policy={policy}")]);
    }
    let started = check.total().unwrap().frames;
    let (mut last, mut arrived) = (started, Instant::now());
    let mut changes = 0;
    while last < started + frames || changes < steps.len() {
        let step = &steps[changes % steps.len()];
        let output = try_set(socket, step);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        // A slow machine may need more than five seconds; the command then reports that.
        assert!(output.status.success() || stderr.contains("under way"), "set {step}: {stderr}");
        changes += usize::from(output.status.success());
        std::thread::sleep(BETWEEN_CHANGES);
        let now = check.total().unwrap().frames;
        if now > last {
            (last, arrived) = (now, Instant::now());
        }
        assert!(arrived.elapsed() < TIMEOUT, "no frame arrives any more: {}", status(socket));
    }
    changes as u64
}

/// Returns what a killed instance has left, or `None`.
fn left(
    namespace: &Namespace,
    interface: &str,
    rings: &[RingThread],
    programs: &[Loaded],
) -> Option<String> {
    let rings = rings.iter().find(|ring| {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", ring.process));
        name.is_ok_and(|name| name.starts_with("cpumap"))
    });
    if let Some(program) = super::program_on(namespace, interface) {
        return Some(format!("the program {program} on {interface}"));
    }
    if let Some(ring) = rings {
        return Some(format!("the thread {} of CPU {}'s ring", ring.process, ring.cpu));
    }
    let program = programs.iter().find(|program| is_loaded(program.id));
    program.map(|program| format!("the program {} {}", program.id, program.name))
}

/// The whole test for one policy.
fn steers(test: &str, policy: &str) {
    let Some(_alone) = super::ready(&format!("machine::{test}"), &[], 1) else { return };
    let mut record = Record::of(test, policy);
    let testbed = Testbed::cards_or_pair(LinkOptions::default()).unwrap();
    if let Some(words) = must_refuse(policy) {
        return refused(&testbed, policy, &words, &mut record);
    }
    let (receiver, far) = (testbed.receiver(), &testbed.link().far);
    let (can_run, obstacles) = prepared(receiver, &far.name, &mut record);
    assert!(can_run, "check stands against it: {obstacles:?}");
    let bound = bound(receiver, &far.name);
    let policy = if policy == "bound" { &bound } else { policy };

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let cpus = online();
    let mut run = arguments(&far.name, policy);
    run.extend(["--cpus", &cpus, "--socket", &socket]);

    // Attaches, changes settings and detaches while frames flow.
    let order = OrderCheck::new(receiver, far, u32::from(FLOWS)).unwrap();
    let (application, datagrams) = traffic(&testbed);
    wait_for_frames("frames before it is attached", &order, 100);
    tcp(&testbed, &datagrams, "_before", &mut record);
    let on_before = features_on(receiver, &far.name);
    let (steering, longest) = attach(receiver, &run, &order);
    record.note("attach_pause_ms", longest.as_secs_f64() * 1000.0);
    let on = features_on(receiver, &far.name);
    let lost: Vec<String> = on_before.into_iter().filter(|name| !on.contains(name)).collect();
    record.note("features_off", lost);
    let settings = status(&socket)["settings"].clone();
    record.note("took", settings["policy"].clone());
    let mode = settings["mode"].as_str().unwrap().to_owned();
    record.note("mode", mode.clone());
    let verified = loaded(steering.id()).unwrap().into_iter();
    let verified = verified.map(|program| (program.name, json!(program.verified_instructions)));
    record.note("verified", verified.collect::<Map<_, _>>());
    record.note("changes", change(&socket, policy, &order, frames()));

    datagrams.pause();
    wait_until("every frame is accounted for", || {
        let totals = Totals::of(&status(&socket)).unwrap();
        record.note("received", totals.received);
        record.note("dropped", totals.dropped());
        record.note("unaccounted", i64::try_from(totals.unaccounted()).unwrap());
        totals.received > 0 && totals.unaccounted() == 0
    });

    datagrams.resume();
    wait_for_frames("frames before it is detached", &order, 1000);
    steering.stop().unwrap();
    wait_for_frames("frames after it was detached", &order, 1000);
    tcp(&testbed, &datagrams, "_after", &mut record);
    record.note("attached_under_traffic", true);
    datagrams.pause();
    let seen = order.drained().unwrap();
    let heard = application.finish().unwrap();
    // In generic mode the check sees each frame twice: before it is steered, and after.
    let (frames, late) = match &*mode {
        "native" => (seen.frames, seen.late.max(heard.late)),
        _ => (heard.datagrams, heard.late),
    };
    record.note("frames", frames);
    record.note("late", late);
    record.note("moves", seen.moves);
    assert_eq!((late, heard.repeated), (0, 0), "{seen:?} {heard:?}");
    datagrams.resume();

    // Kills the instance while frames flow.
    let steering = Steering::start(receiver, &run).unwrap();
    tcp(&testbed, &datagrams, "", &mut record);
    wait_for_frames("frames before it is killed", &order, 1000);
    let rings = ring_threads(steering.id()).unwrap();
    let name = format!("/run/rxsteer/{}.sock", steering.id());
    let programs = loaded(steering.id()).unwrap();
    assert!(!programs.is_empty() && !rings.is_empty(), "{programs:?} {rings:?}");
    steering.kill().unwrap();
    wait_for_frames("frames after it was killed", &order, 1000);
    record.note("clean_after_kill", false);
    let started = Instant::now();
    while let Some(what) = left(receiver, &far.name, &rings, &programs) {
        assert!(started.elapsed() < TIMEOUT, "of one that was killed there is left: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The next rxsteer process that searches for instances removes the socket of the killed one.
    let _ = Command::new(rxsteer().unwrap()).arg("status").output().unwrap();
    assert!(std::fs::symlink_metadata(&name).is_err(), "{name} is left");
    record.note("clean_after_kill", true);
}

/// Measures late frames without rxsteer, which are not caused by it.
#[test]
fn not_steered() {
    let Some(_alone) = super::ready("machine::not_steered", &[], 1) else { return };
    let testbed = Testbed::cards_or_pair(LinkOptions::default()).unwrap();
    let far = &testbed.link().far;
    let order = OrderCheck::new(testbed.receiver(), far, u32::from(FLOWS)).unwrap();
    let (application, datagrams) = traffic(&testbed);
    wait_for_frames("frames", &order, frames());
    datagrams.pause();
    let seen = order.drained().unwrap();
    let heard = application.finish().unwrap();
    assert_eq!((seen.late, heard.late, heard.repeated), (0, 0, 0), "{seen:?} {heard:?}");
}

#[test]
fn default_policy() {
    steers("default_policy", "default");
}

#[test]
fn none() {
    steers("none", "none");
}

#[test]
fn rps() {
    steers("rps", "rps");
}

#[test]
fn sparse() {
    steers("sparse", "sparse");
}

#[test]
fn rfs_sparse() {
    steers("rfs_sparse", "rfs+sparse");
}

#[test]
fn bound_queues() {
    steers("bound_queues", "bound");
}
