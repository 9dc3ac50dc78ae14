//! Controls the program while it runs. All waits here have a limit.

use std::fs;
use std::process::{Child, Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// SIGINT in a mask of signals.
pub(crate) const INT: u64 = 1 << 1;

/// A mask of signals in a process's status: `SigBlk`, `SigIgn` or `SigCgt`.
pub(crate) fn mask(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether the process waits for all of these signals.
pub(crate) fn waits_for(child: &Child, signals: u64) -> bool {
    mask(child.id(), "SigBlk") & signals == signals
}

/// Waits until the process does `what`; it must not end before.
pub(crate) fn wait_until(child: &mut Child, what: &str, does: impl Fn(&Child) -> bool) {
    let started = Instant::now();
    while !does(child) {
        let ended = child.try_wait().expect("it can be waited for");
        if ended.is_some() || started.elapsed() > TIMEOUT {
            let _ = child.kill();
            panic!("it does not {what}; it ended: {ended:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends the process a signal, such as `-INT`.
pub(crate) fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
}

/// Waits until the process has ended, and returns its output.
pub(crate) fn ended(child: Child) -> Output {
    let pid = child.id().to_string();
    let (done, output) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match output.recv_timeout(TIMEOUT) {
        Ok(output) => output.expect("it has ended"),
        Err(_) => {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
            panic!("it does not end");
        }
    }
}
