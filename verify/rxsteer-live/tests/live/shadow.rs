//! In shadow mode no frame is redirected, whatever is set meanwhile, and no change into or out of shadow mode reorders
//! a flow.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_lab::{
    LinkOptions, LiveFrames, OrderCheck, Seen, Steering, Testbed, Totals, Traffic, offline,
    ring_threads, skipped, slice,
};
use serde_json::Value;

use super::{Busy, ask, set};

/// Sends numbered frames from CPU 0, which also has other work, while `changes` happen. The threads of the rings have
/// the lowest priority on their CPU, so redirected frames wait long.
fn under_changes(start: &[&str], changes: impl FnOnce(&str, &Steering)) -> (Seen, Totals) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    let arguments = [&["in0", "--cpus", "0-1", "--socket", &socket], start].concat();
    let steering = Steering::start(receiver, &arguments).unwrap();
    let traffic =
        Traffic { flows: 64, train: 4, pace: Duration::from_micros(4), ..Traffic::default() };
    let check = OrderCheck::new(receiver, &link.far, traffic.flows).unwrap();
    let source = LiveFrames::new(link, &traffic).unwrap();
    let stop = AtomicBool::new(false);
    let _busy = Busy::on(0);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 50_000, &stop));
        let stopping = super::Stop(&stop);
        changes(&socket, &steering);
        drop(stopping);
        sending.join().unwrap().unwrap();
    });
    let seen = check.drained().unwrap();
    (seen, steering.totals().unwrap())
}

fn threads_go_last(steering: &Steering) {
    for thread in ring_threads(steering.id()).unwrap() {
        // The thread may be ending at this moment, which is fine.
        let _ = thread.set_lowest_priority();
    }
}

#[test]
fn no_frame_is_redirected_in_shadow_whatever_is_set() {
    let test = "shadow::no_frame_is_redirected_in_shadow_whatever_is_set";
    let Some(_alone) = super::ready(test, &["taskset"], 2) else { return };
    let changes = [
        "policy=sparse",
        "cpus=1-1",
        "queue-size=512",
        "policy=rps cpus=0-1",
        "policy=none",
        "flow-limit=on",
        "policy=rfs+sparse flow-limit=off queue-size=2048",
        "policy=bound:0=1",
    ];
    let (seen, totals) = under_changes(&["--policy", "rps", "--shadow"], |socket, steering| {
        for round in 0..slice(16, 200) {
            threads_go_last(steering);
            set(socket, changes[round % changes.len()]);
        }
    });
    assert!(seen.frames > 10_000 && seen.late == 0, "{seen:?} {totals:?}");
    assert_eq!((totals.redirected, totals.unaccounted()), (0, 0), "{totals:?}");
    assert_eq!(totals.passed, totals.received, "{totals:?}");
}

#[test]
fn changes_into_shadow_and_out_of_it_keep_order() {
    let test = "shadow::changes_into_shadow_and_out_of_it_keep_order";
    let Some(_alone) = super::ready(test, &["taskset"], 2) else { return };
    let (seen, totals) = under_changes(&["--policy", "rps"], |socket, _| {
        for round in 0..slice(8, 100) {
            set(socket, if round % 2 == 0 { "shadow=on" } else { "shadow=off" });
        }
    });
    assert_eq!((seen.late, totals.unaccounted()), (0, 0), "{seen:?} {totals:?}");
    assert!(totals.redirected > 1000 && totals.passed > 1000, "{totals:?}");
}

#[test]
fn no_frame_is_redirected_in_shadow_when_a_cpu_goes_and_comes_back() {
    let test = "shadow::no_frame_is_redirected_in_shadow_when_a_cpu_goes_and_comes_back";
    let Some(_alone) = super::ready(test, &["taskset"], 2) else { return };
    let switch =
        std::fs::OpenOptions::new().write(true).open("/sys/devices/system/cpu/cpu1/online");
    if let Err(why) = switch {
        skipped(&format!("live::{test}"), &format!("CPU 1 cannot be taken offline here: {why}"));
        return;
    }
    let (seen, totals) = under_changes(&["--policy", "rps", "--shadow"], |_, steering| {
        for _ in 0..slice(2, 20) {
            let gone = offline(1).unwrap();
            steering.wait_for_stderr("CPU 1 went offline", Duration::from_secs(20)).unwrap();
            // The resulting change takes some ticks.
            std::thread::sleep(Duration::from_millis(600));
            drop(gone);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    assert!(seen.frames > 10_000 && seen.late == 0, "{seen:?} {totals:?}");
    assert_eq!((totals.redirected, totals.unaccounted()), (0, 0), "{totals:?}");
}

/// The status counts what each CPU would get, and only in shadow mode.
#[test]
fn status_shows_what_each_cpu_would_carry() {
    let test = "shadow::status_shows_what_each_cpu_would_carry";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", "rps", "--cpus", "1-1", "--shadow", "--socket", &socket];
    let _steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    let traffic = Traffic { flows: 4, pace: Duration::from_micros(20), ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let would = || -> Vec<Option<u64>> {
        let status: Value =
            serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
        let cpus = status["cpus"].as_array().unwrap().iter();
        cpus.map(|cpu| cpu.get("would").and_then(Value::as_u64)).collect()
    };
    source.send(testbed.sender(), 0, 1000).unwrap();
    // The hosts send a few frames of their own.
    let check_near = |found: &[Option<u64>], wanted: [u64; 2]| {
        let near = |(found, wanted): (&Option<u64>, u64)| {
            found.is_some_and(|found| (wanted..wanted + 20).contains(&found))
        };
        assert!(found.len() == 2 && found.iter().zip(wanted).all(near), "{found:?} {wanted:?}");
    };
    check_near(&would(), [0, 1000]);
    set(&socket, "cpus=0-0");
    source.send(testbed.sender(), 0, 500).unwrap();
    check_near(&would(), [500, 1000]);
    let text = ask(&["status", "--socket", &socket]);
    assert!(text.contains("would carry"), "{text}");
    set(&socket, "shadow=off");
    // CPU 1 may still be in the status, or not.
    assert!(would().iter().all(Option::is_none), "frames go there now: {:?}", would());
}
