//! Changes that `rxsteer run` does not begin or complete in time are withdrawn: it does not make them later.

use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, Steering, Testbed, Traffic, ring_threads, rxsteer};
use serde_json::Value;

use super::{Busy, ask};

fn try_to_set(socket: &str, settings: &str) -> Output {
    let mut command = Command::new(rxsteer().unwrap());
    command.args(["set", "--socket", socket, settings]).output().unwrap()
}

fn status(socket: &str) -> Value {
    serde_json::from_str(&ask(&["status", "--json", "--socket", socket])).unwrap()
}

/// Sends a signal to a process, as its user would.
fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(sent.success(), "{name} {process}");
}

#[test]
fn change_that_got_no_answer_is_not_made_later() {
    let test = "withdrawn::change_that_got_no_answer_is_not_made_later";
    let Some(_alone) = super::ready(test, &["kill"], 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-0", "--socket", &socket];
    let steering = Steering::start(testbed.receiver(), &arguments).unwrap();
    signal(steering.id(), "-STOP");
    let output = try_to_set(&socket, "policy=sparse");
    signal(steering.id(), "-CONT");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("rxsteer run does not make the change"), "{stderr}");
    std::thread::sleep(Duration::from_secs(1));
    let status = status(&socket);
    assert_eq!((&status["policy"], &status["changing"]), (&"rps".into(), &false.into()));
    steering.stop().unwrap();
}

#[test]
fn change_that_can_not_be_made_in_time_is_withdrawn() {
    let test = "withdrawn::change_that_can_not_be_made_in_time_is_withdrawn";
    let Some(_alone) = super::ready(test, &["chrt", "taskset"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket").display().to_string();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let start = ["in0", "--policy", "sparse", "--cpus", "1-1", "--queue-size", "16384"];
    let steering =
        Steering::start(testbed.receiver(), &[&start[..], &["--socket", &socket]].concat())
            .unwrap();
    // Beside a busy process, its thread gets so little CPU time that the ring is never empty: there is no moment at
    // which every frame may pass.
    for thread in ring_threads(steering.id()).unwrap() {
        let idle = ["-i", "-p", "0", &thread.process.to_string()];
        assert!(Command::new("chrt").args(idle).status().unwrap().success());
    }
    let source = LiveFrames::new(testbed.link(), &Traffic::default()).unwrap();
    let stop = AtomicBool::new(false);
    let (output, now) = std::thread::scope(|scope| {
        let _busy = Busy::on(1);
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 50_000, &stop));
        let stopping = super::Stop(&stop);
        std::thread::sleep(Duration::from_millis(500));
        let output = try_to_set(&socket, "shadow=on");
        let now = status(&socket);
        drop(stopping);
        sending.join().unwrap().unwrap();
        (output, now)
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr} {now}");
    assert!(stderr.contains("was withdrawn"), "{stderr}");
    assert_eq!(now["settings"]["shadow"], false, "{now}");
    // The begun change is undone once the ring has drained, for which the thread needs CPU time.
    let later = (0..300).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        let now = status(&socket);
        (now["changing"] == false).then_some(now)
    });
    let later = later.expect("nothing is left of the change");
    assert_eq!(later["settings"]["shadow"], false, "{later}");
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}
