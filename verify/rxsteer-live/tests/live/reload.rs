//! SIGHUP makes an instance read its configuration file again; without a file, SIGHUP ends it. If SIGHUP was ignored at
//! the start, it stays ignored.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_lab::{LinkOptions, LiveFrames, OrderCheck, Steering, Testbed, Traffic};
use serde_json::Value;

use super::ask;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a program with the default action of SIGHUP: a shell's nohup would make all programs below it ignore the signal.
const NOT_IGNORED: [&str; 2] = ["env", "--default-signal=HUP"];

/// Sends SIGHUP.
fn hang_up(steering: &Steering) {
    let sent = Command::new("kill").args(["-HUP", &steering.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn reload_changes_settings_and_keeps_order() {
    let test = "reload::reload_changes_settings_and_keeps_order";
    let Some(_alone) = super::ready(test, &["kill"], 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (socket, file) = (path("socket"), path("rxsteer.toml"));
    std::fs::write(&file, "policy = 'rps'\ncpus = '0-1'\nqueue-size = 16384\n").unwrap();
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--config", &file, "--socket", &socket];
    let steering = Steering::start_by(testbed.receiver(), &NOT_IGNORED, &arguments).unwrap();
    let traffic = Traffic { flows: 8, pace: Duration::from_micros(10), ..Traffic::default() };
    let check = OrderCheck::new(testbed.receiver(), &testbed.link().far, traffic.flows).unwrap();
    let source = LiveFrames::new(testbed.link(), &traffic).unwrap();
    let settings = || {
        let report: Value =
            serde_json::from_str(&ask(&["status", "--json", "--socket", &socket])).unwrap();
        report["settings"].clone()
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 5_000, &stop));
        let stopping = super::Stop(&stop);
        for (text, stderr) in [
            ("policy = 'sparse'\ncpus = '0-1'\nqueue-size = 16384", "policy=sparse (was rps)"),
            ("policy = 'rps'\ncpus = '1'\nqueue-size = 16384", "cpus=0 (was 0-1)"),
            ("policy = 'rps'\ncpus = '1-1'\nqueue-size = 8192", "cpus=1 (was 0), queue-size=8192"),
            ("policy = 'rps'\ncpus = '9999'", "is not reloaded, and all settings stay: "),
            ("mode = 'generic'", "mode can't change while rxsteer runs"),
        ] {
            std::fs::write(&file, text).unwrap();
            hang_up(&steering);
            steering.wait_for_stderr(stderr, TIMEOUT).unwrap();
        }
        drop(stopping);
        sending.join().unwrap().unwrap();
    });
    let settings = settings();
    assert_eq!((&settings["policy"], &settings["cpus"]), (&"rps".into(), &"1".into()));
    assert_eq!(settings["queue_size"], 8192);
    let seen = check.drained().unwrap();
    assert_eq!(seen.late, 0, "{seen:?}");
    let totals = steering.totals().unwrap();
    assert_eq!(totals.unaccounted(), 0, "{totals:?}");
}

#[test]
fn hangup_ends_a_run_without_a_file_unless_it_was_ignored() {
    let test = "reload::hangup_ends_a_run_without_a_file_unless_it_was_ignored";
    let Some(_alone) = super::ready(test, &["kill", "nohup"], 1) else { return };
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let arguments = ["in0", "--policy", "rps", "--cpus", "0-0"];
    let mut steering = Steering::start_by(testbed.receiver(), &NOT_IGNORED, &arguments).unwrap();
    hang_up(&steering);
    assert!(steering.wait(TIMEOUT).unwrap().success());
    let mut steering = Steering::start_by(testbed.receiver(), &["nohup"], &arguments).unwrap();
    hang_up(&steering);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(steering.ended().unwrap(), None, "it stays, as nohup wants it");
    steering.stop().unwrap();
}
