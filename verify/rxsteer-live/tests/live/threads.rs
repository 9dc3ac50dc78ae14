//! The scheduling class of the rings' threads: each thread has it from its first frame on, until the thread ends.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    BusyProcesses, DelayCheck, LinkOptions, LiveFrames, Namespace, RingThread, SocketLoad,
    Steering, Testbed, Totals, Traffic, offline, ring_threads, skipped, slice,
};
use serde_json::Value;

use super::{ask, set};

/// The timeout for creating rings, on a machine with other load.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until each of CPUs 0 and 1 has one thread that is not in `former`, and returns their classes.
fn classes_after(steering: &Steering, former: &[RingThread]) -> Vec<String> {
    let asked = Instant::now();
    loop {
        let threads = ring_threads(steering.id()).unwrap();
        let is_former =
            |thread: &RingThread| former.iter().any(|old| old.process == thread.process);
        if threads.len() == 2 && !threads.iter().any(is_former) {
            return threads.iter().map(|thread| thread.class().unwrap()).collect();
        }
        assert!(asked.elapsed() < TIMEOUT, "no new threads: {threads:?}, before {former:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Process, scheduling class, real-time priority and nice value of all processes.
fn classes_of_all() -> BTreeMap<String, String> {
    let output = std::process::Command::new("ps").args(["-eo", "pid=,cls=,rtprio=,ni="]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let line = |line: &str| {
        let (process, class) = line.trim().split_once(' ').unwrap();
        (process.to_owned(), class.trim().to_owned())
    };
    text.lines().map(line).collect()
}

/// The JSON of `rxsteer status`.
fn status(socket: &str) -> Value {
    let report: Value =
        serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap();
    report.get(0).unwrap_or(&report).clone()
}

const FIRST: [&str; 2] = ["SCHED_FIFO 1"; 2];

#[test]
fn threads_made_at_any_time_have_the_class_and_take_it_with_them() {
    let test = "threads::threads_made_at_any_time_have_the_class_and_take_it_with_them";
    let Some(_alone) = super::ready(test, &["chrt", "ps"], 2) else { return };
    let before = classes_of_all();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let threads = || ring_threads(steering.id()).unwrap();
    assert_eq!(classes_after(&steering, &[]), FIRST, "by default");

    let former = threads();
    set(&socket, "queue-size=512");
    assert_eq!(classes_after(&steering, &former), FIRST, "of rings of another size");

    let switch =
        std::fs::OpenOptions::new().write(true).open("/sys/devices/system/cpu/cpu1/online");
    match switch {
        Err(why) => skipped(&format!("live::{test}/offline"), &format!("CPU 1 stays: {why}")),
        Ok(_) => {
            let former: Vec<RingThread> =
                threads().into_iter().filter(|thread| thread.cpu == 1).collect();
            let gone = offline(1).unwrap();
            steering.wait_for_stderr("CPU 1 went offline", TIMEOUT).unwrap();
            drop(gone);
            steering.wait_for_stderr("CPU 1 is online again", TIMEOUT).unwrap();
            assert_eq!(classes_after(&steering, &former), FIRST, "of a CPU that came back");
        }
    }

    set(&socket, "threads=nice:-5");
    assert_eq!(classes_after(&steering, &[]), ["SCHED_OTHER -5"; 2]);
    let former = threads();
    set(&socket, "queue-size=256");
    assert_eq!(classes_after(&steering, &former), ["SCHED_OTHER -5"; 2]);
    set(&socket, "threads=other");
    assert_eq!(classes_after(&steering, &[]), ["SCHED_OTHER 0"; 2]);
    set(&socket, "threads=fifo:3");
    assert_eq!(classes_after(&steering, &[]), ["SCHED_FIFO 3"; 2]);
    assert_eq!(status(&socket)["settings"]["threads"], "fifo:3");

    let last = threads();
    steering.kill().unwrap();
    let asked = Instant::now();
    while last.iter().any(RingThread::is_there) {
        assert!(asked.elapsed() < TIMEOUT, "threads are left: {last:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = classes_of_all();
    let changed: Vec<_> = before
        .iter()
        .filter_map(|(process, class)| Some((process, class, after.get(process)?)))
        .filter(|(_, before, after)| before != after)
        .collect();
    assert_eq!(changed, [], "other threads are as they were");
}

#[test]
fn without_cap_sys_nice_it_steers_and_says_what_to_do() {
    let test = "threads::without_cap_sys_nice_it_steers_and_says_what_to_do";
    let Some(_alone) = super::ready(test, &["chrt", "ps", "setpriv"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let bare = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"];
    let steering = Steering::start_by(testbed.receiver(), &bare, &arguments).unwrap();
    steering.wait_for_stderr("CAP_SYS_NICE", Duration::from_secs(20)).unwrap();
    assert_eq!(classes_after(&steering, &[]), ["SCHED_OTHER 0"; 2]);
    let status = status(&socket);
    assert!(status["threads_problem"].as_str().unwrap().contains("CAP_SYS_NICE"), "{status}");
    // A change that needs the capability is refused as a whole; other changes work.
    let refused = std::process::Command::new(rxsteer_lab::rxsteer().unwrap())
        .args(["set", "--socket", &socket, "threads=fifo:2"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("CAP_SYS_NICE"), "{refused:?}");
    set(&socket, "queue-size=512");
    steering.totals().unwrap();
}

/// Sends to CPUs that are busy with other work; returns what happened to the frames.
fn with_busy_processes(namespace: &Namespace, testbed: &Testbed, class: &str) -> (Totals, Value) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    // Without its thread, such a short queue is full after some milliseconds.
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--queue-size", "128"];
    let arguments = [&arguments, &["--threads", class, "--socket", &socket][..]].concat();
    let steering = Steering::start(namespace, &arguments).unwrap();
    let traffic = Traffic { flows: 200, pace: Duration::from_micros(20), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let busy = BusyProcesses::start(&[0, 1], 2).unwrap();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 20_000, &stop));
        let stopping = super::Stop(&stop);
        std::thread::sleep(slice(Duration::from_secs(2), Duration::from_secs(20)));
        // The sender is an ordinary process as well, and may not have had any CPU time yet.
        let asked = Instant::now();
        while source.sent().unwrap().iter().sum::<u64>() < 20_000 && asked.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
    });
    drop(busy);
    // Waits for a tick, in which the last losses are detected.
    std::thread::sleep(Duration::from_millis(300));
    let report = status(&socket);
    (steering.totals().unwrap(), report)
}

#[test]
fn busy_processes_cost_frames_only_in_their_own_class_and_the_cause_is_reported() {
    let test =
        "threads::busy_processes_cost_frames_only_in_their_own_class_and_the_cause_is_reported";
    let Some(_alone) = super::ready(test, &["chrt", "setsid", "taskset"], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let receiver = testbed.receiver();
    // Whether a thread waits long enough to lose frames depends on the scheduler, so there are several turns.
    let of_cpus = |report: &Value, name: &str| {
        let cpus = report["cpus"].as_array().unwrap();
        cpus.iter().filter_map(|cpu| cpu["thread"][name].as_u64()).sum::<u64>()
    };
    let mut turns = (0..5).map(|_| with_busy_processes(receiver, &testbed, "other"));
    let found = turns.find(|(totals, report)| {
        assert_eq!(totals.unaccounted(), 0, "{totals:?}");
        totals.dropped() > 0 && of_cpus(report, "lost_while_waiting") > 0
    });
    let Some((ordinary, report)) = found else {
        let why =
            "in none of five turns did a ring lose frames while its thread waited for the CPU";
        return skipped(&format!("live::{test}"), why);
    };
    assert!(of_cpus(&report, "waited_ns") > 0, "{report}");
    let cpus = report["cpus"].as_array().unwrap();
    let mut used = cpus.iter().filter(|cpu| cpu["delivered"] != 0);
    assert!(used.all(|cpu| cpu["thread"]["class"] == "other"), "{report}");

    let (first, report) = with_busy_processes(receiver, &testbed, "fifo:1");
    assert_eq!(first.unaccounted(), 0, "{first:?}");
    // The limit is far above zero, since other tests may use the machine.
    let share = |totals: &Totals| totals.dropped() as f64 / totals.received as f64;
    assert!(share(&first) < share(&ordinary).max(0.05), "{first:?} {report}");
}

/// The measurement of `cargo xtask busy`: each packet that was sent has a delay, and the delay is not the time since
/// the boot.
#[test]
fn delay_check_sees_each_packet() {
    let Some(_alone) = super::ready("threads::delay_check_sees_each_packet", &["chrt"], 1) else {
        return;
    };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let load = SocketLoad::start(&testbed, 8, &[0]).unwrap();
    let check = DelayCheck::new(testbed.receiver(), &testbed.link().far).unwrap();
    let (sent, _) = load.send(0, 5000, Duration::from_millis(200)).unwrap();
    let started = Instant::now();
    while load.received() < sent {
        assert!(started.elapsed() < TIMEOUT, "{} of {sent} are read", load.received());
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = check.delays().unwrap();
    assert_eq!(seen.count(), sent);
    let median = seen.quantile(0.5).unwrap();
    assert!(median < TIMEOUT.as_nanos() as u64, "{median} ns");
    load.finish().unwrap();
}
