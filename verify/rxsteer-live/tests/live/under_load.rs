//! Faults while frames flow: traffic continues, counts add up, and messages are true.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, Namespace, OrderCheck, Pass, Seen, Steering, Testbed, Totals, Traffic,
    skipped, slice,
};

use super::{ask, set};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A run with traffic, during which a fault occurs.
struct Run<'a> {
    testbed: &'a Testbed,
    steering: &'a mut Steering,
    socket: &'a str,
    check: &'a OrderCheck,
}

impl Run<'_> {
    fn frames(&self) -> u64 {
        self.check.total().unwrap().frames
    }

    /// Waits until frames arrive that are sent after this call.
    fn wait_for_new_frames(&self) {
        let (started, before) = (Instant::now(), self.frames());
        while self.frames() < before + 1000 {
            assert!(
                started.elapsed() < TIMEOUT,
                "no frame arrives; it said: {}",
                self.steering.stderr()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Steers `in0` and `in1`, and sends numbered frames to `in0` while `fault` happens.
fn with_load(options: LinkOptions, fault: impl FnOnce(&mut Run<'_>)) -> (Seen, Totals) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let mut testbed = Testbed::hosts(options).unwrap();
    testbed.another_link(LinkOptions::default()).unwrap();
    if options.queues > 1 {
        for (namespace, name) in [(testbed.sender(), "out0"), (testbed.receiver(), "in0")] {
            namespace.run(&format!("ethtool -L {name} rx 1 tx 1")).unwrap();
        }
    }
    let start = ["in0", "in1", "--policy", "rps", "--cpus", "0-1", "--socket", &socket];
    let mut steering = Steering::start(testbed.receiver(), &start).unwrap();
    let traffic =
        Traffic { flows: 64, train: 4, pace: Duration::from_micros(10), ..Traffic::default() };
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, traffic.flows).unwrap();
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 10_000, &stop));
        let stopping = super::Stop(&stop);
        let mut run =
            Run { testbed: &testbed, steering: &mut steering, socket: &socket, check: &check };
        run.wait_for_new_frames();
        // Ends the sender, even if a check fails.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fault(&mut run)));
        drop(stopping);
        sending.join().unwrap().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let seen = check.drained().unwrap();
    (seen, steering.totals().unwrap())
}

/// Asserts that no frame is late or unaccounted for.
fn is_sound((seen, totals): (Seen, Totals)) {
    assert!(seen.frames > 1000 && seen.late == 0, "{seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

#[test]
fn interface_that_goes_down_and_up_is_steered_again() {
    let test = "under_load::interface_that_goes_down_and_up_is_steered_again";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    is_sound(with_load(LinkOptions::default(), |run| {
        for round in 1..=slice(2, 20) {
            for (state, words) in [("down", "in0 is down"), ("up", "in0 is up again")] {
                run.testbed.receiver().ip(&format!("link set in0 {state}")).unwrap();
                let started = Instant::now();
                while run.steering.stderr().matches(words).count() < round {
                    assert!(started.elapsed() < TIMEOUT, "{}", run.steering.stderr());
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            run.wait_for_new_frames();
        }
    }));
}

#[test]
fn another_mtu_stops_nothing() {
    let test = "under_load::another_mtu_stops_nothing";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    is_sound(with_load(LinkOptions::default(), |run| {
        for mtu in [1400, 1500, 1300] {
            run.testbed.receiver().ip(&format!("link set in0 mtu {mtu}")).unwrap();
            run.wait_for_new_frames();
        }
    }));
}

#[test]
fn another_number_of_queues_stops_nothing_and_has_its_tables() {
    let test = "under_load::another_number_of_queues_stops_nothing_and_has_its_tables";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let options = LinkOptions { queues: 2, ..LinkOptions::default() };
    is_sound(with_load(options, |run| {
        run.testbed.receiver().run("ethtool -L in0 rx 2").unwrap();
        run.testbed.sender().run("ethtool -L out0 tx 2").unwrap();
        run.wait_for_new_frames();
        // A named interface has flow tables for as many queues as there are CPUs.
        std::thread::sleep(Duration::from_secs(2));
        assert!(!run.steering.stderr().contains("flow tables for"), "{}", run.steering.stderr());
    }));
}

#[test]
fn others_go_on_when_an_interface_moves_to_another_namespace() {
    let test = "under_load::others_go_on_when_an_interface_moves_to_another_namespace";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    is_sound(with_load(LinkOptions::default(), |run| {
        let other = Namespace::new().unwrap();
        let moves = format!("link set in1 netns {}", other.name());
        run.testbed.receiver().ip(&moves).unwrap();
        run.steering.wait_for_stderr("in1 is no longer steered", TIMEOUT).unwrap();
        run.wait_for_new_frames();
    }));
}

#[test]
fn kernel_rps_that_is_switched_on_afterwards_is_reported() {
    let test = "under_load::kernel_rps_that_is_switched_on_afterwards_is_reported";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let (_, totals) = with_load(LinkOptions::default(), |run| {
        let receiver = run.testbed.receiver();
        receiver.write_sys("/sys/class/net/in0/queues/rx-0/rps_cpus", "1").unwrap();
        run.steering
            .wait_for_stderr("in0: the kernel's RPS is on for RX queue 0", TIMEOUT)
            .unwrap();
        run.wait_for_new_frames();
        let status = ask(&["status", "--socket", run.socket]);
        assert!(status.contains("the kernel's RPS is on"), "{status}");
        receiver.write_sys("/sys/class/net/in0/queues/rx-0/rps_cpus", "0").unwrap();
        run.steering
            .wait_for_stderr("in0: its RX queues are steered by rxsteer alone again", TIMEOUT)
            .unwrap();
    });
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

#[test]
fn another_program_can_not_take_its_place() {
    let test = "under_load::another_program_can_not_take_its_place";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    is_sound(with_load(LinkOptions::default(), |run| {
        let receiver = run.testbed.receiver();
        let program = super::program_on(receiver, "in0");
        assert!(Pass::attach(receiver, &run.testbed.link().far).is_err());
        assert_eq!(super::program_on(receiver, "in0"), program);
        run.wait_for_new_frames();
    }));
}

/// The ids of the BPF links by which a process is attached to interfaces.
pub(crate) fn links_of(process: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let xdp_link = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path()).ok()?;
        let is_xdp =
            text.lines().any(|line| line.starts_with("link_type:") && line.ends_with("xdp"));
        let id = text.lines().find_map(|line| line.strip_prefix("link_id:"))?.trim().to_owned();
        is_xdp.then_some(id)
    };
    entries.flatten().filter_map(xdp_link).collect()
}

#[test]
fn it_ends_when_its_program_was_detached_from_all_interfaces() {
    let test = "under_load::it_ends_when_its_program_was_detached_from_all_interfaces";
    let Some(_alone) = super::ready(test, &["bpftool"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let mut steering = Steering::start(testbed.receiver(), &["in0", "--cpus", "0-0"]).unwrap();
    let links = links_of(steering.id());
    assert_eq!(links.len(), 1);
    let detached =
        Command::new("bpftool").args(["link", "detach", "id", &links[0]]).status().unwrap();
    assert!(detached.success());
    let status = steering.wait(TIMEOUT).unwrap();
    let stderr = steering.stderr();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("another process detached its XDP program"), "{stderr}");
    assert!(stderr.contains("no interface is left"), "{stderr}");
}

#[test]
fn frames_flow_while_it_is_stopped_and_all_are_counted() {
    let test = "under_load::frames_flow_while_it_is_stopped_and_all_are_counted";
    let Some(_alone) = super::ready(test, &["kill"], 2) else { return };
    is_sound(with_load(LinkOptions::default(), |run| {
        let signal = |name: &str| {
            let process = run.steering.id().to_string();
            assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
        };
        signal("-STOP");
        let stopped = Instant::now();
        while stopped.elapsed() < slice(Duration::from_secs(5), Duration::from_secs(10)) {
            run.wait_for_new_frames();
        }
        signal("-CONT");
        set(run.socket, "policy=sparse");
        run.wait_for_new_frames();
    }));
}

#[test]
fn starts_and_stops_under_load_lose_and_leave_nothing() {
    let test = "under_load::starts_and_stops_under_load_lose_and_leave_nothing";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    // Between two runs frames are received natively as well.
    let traffic =
        Traffic { flows: 64, train: 4, pace: Duration::from_micros(10), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 10_000, &stop));
        let stopping = super::Stop(&stop);
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..slice(4, 200) {
                let arguments = ["in0", "--policy", "rps", "--cpus", "0-1"];
                let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                let totals = steering.totals().unwrap();
                assert_eq!(totals.unaccounted(), 0, "round {round}: {totals:?}");
                assert_eq!(super::program_on(testbed.receiver(), "in0"), None, "round {round}");
            }
        }));
        drop(stopping);
        sending.join().unwrap().unwrap();
        rounds.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The kernel's switch for the BPF JIT compiler; it is restored when this is dropped.
struct Jit(String);

const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

impl Drop for Jit {
    fn drop(&mut self) {
        let _ = std::fs::write(JIT, &self.0);
    }
}

#[test]
fn programs_run_or_are_refused_without_the_jit() {
    let test = "under_load::programs_run_or_are_refused_without_the_jit";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let before = std::fs::read_to_string(JIT).unwrap_or_default();
    let off = Jit(before.trim().to_owned());
    if let Err(why) = std::fs::write(JIT, "0") {
        let why = format!("bpf_jit_enable cannot be switched off here: {why}");
        skipped(&format!("live::{test}"), &why);
        return;
    }
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    match Steering::start(testbed.receiver(), &["in0", "--policy", "rps", "--cpus", "0-1"]) {
        Ok(steering) => {
            steering.totals().unwrap();
            drop(testbed);
            is_sound(with_load(LinkOptions::default(), |run| run.wait_for_new_frames()));
        }
        // Linux 6.1 loads no callback without the JIT.
        Err(why) => {
            let why = why.to_string();
            let is_reason = why.contains("non-JITed") && why.contains("nothing is attached");
            assert!(is_reason, "{why}");
            assert_eq!(super::program_on(testbed.receiver(), "in0"), None);
        }
    }
    drop(off);
}
