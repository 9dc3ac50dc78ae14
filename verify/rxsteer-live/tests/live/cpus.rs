//! A CPU goes offline and comes back under traffic.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    LinkOptions, LiveFrames, OrderCheck, Steering, Testbed, Traffic, offline, ring_threads,
    skipped, slice,
};

/// The timeout until a CPU that is back is used as before, on a machine with other load.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Takes CPU 1 offline and online `times` times under traffic, for `rest` each time. Afterwards no frame may be late or
/// unaccounted for, CPU 1 must be used again, and each ring must be emptied on its own CPU.
fn take_cpu_offline_and_online(test: &str, times: u32, rest: Duration) {
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let switch =
        std::fs::OpenOptions::new().write(true).open("/sys/devices/system/cpu/cpu1/online");
    if let Err(why) = switch {
        skipped(&format!("live::{test}"), &format!("CPU 1 cannot be taken offline here: {why}"));
        return;
    }
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-1", "--queue-size", "192"];
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic =
        Traffic { flows: 64, train: 4, pace: Duration::from_micros(4), ..Traffic::default() };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let on_cpu_1 = || check.by_cpu().unwrap()[1];
    // The CPU of each ring, and the CPUs on which its thread may run. Every CPU that receives has a ring.
    let threads = || {
        let threads = ring_threads(steering.id()).unwrap();
        threads
            .into_iter()
            .map(|thread| (thread.cpu.to_string(), thread.may_run_on))
            .collect::<BTreeMap<_, _>>()
    };
    let are_bound = |threads: &BTreeMap<String, String>| {
        threads.contains_key("1") && threads.iter().all(|(cpu, may_run_on)| cpu == may_run_on)
    };
    let (is_used_again, threads) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 50_000, &stop));
        let stopping = super::Stop(&stop);
        for _ in 0..times {
            std::thread::sleep(rest);
            let gone = offline(1).unwrap();
            std::thread::sleep(rest);
            drop(gone);
        }
        // The instance repairs this a few ticks after it detects it.
        let (started, before) = (Instant::now(), on_cpu_1());
        let is_mended = || on_cpu_1() > before && are_bound(&threads());
        while !is_mended() && started.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
        (on_cpu_1() > before, threads())
    });
    let seen = check.drained().unwrap();
    let totals = steering.totals().unwrap();
    assert_eq!(seen.late, 0, "{seen:?} {totals:?}");
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
    assert!(is_used_again, "CPU 1 is not used again: {seen:?} {totals:?}");
    assert!(are_bound(&threads), "{threads:?}");
}

#[test]
fn cpu_that_goes_and_comes_back_loses_nothing_silently() {
    let test = "cpus::cpu_that_goes_and_comes_back_loses_nothing_silently";
    take_cpu_offline_and_online(test, slice(3, 50), Duration::from_millis(300));
}

#[test]
fn cpu_that_is_away_for_a_moment_is_used_again() {
    let test = "cpus::cpu_that_is_away_for_a_moment_is_used_again";
    take_cpu_offline_and_online(test, 20, Duration::from_millis(10));
}
