//! Tests of `rxsteer run` with live traffic in network namespaces.
//!
//! Each test is short, some seconds. With RXSTEER_LIVE=full (`cargo xtask live --full`) the tests run at full length,
//! with RXSTEER_LIVE=none (`./test --quick`) not at all. With RXSTEER_LIVE=beside they are left to another run, which
//! `./test` starts in parallel with other parts. The tests require root and, with few exceptions, two CPUs; otherwise
//! they print SKIPPED.
#![cfg(feature = "bpf")]

mod advice;
mod balance;
mod bridge;
mod c_library;
mod captures;
mod cards;
mod clients;
mod conservation;
mod containers;
mod cpus;
mod faults;
mod flows;
mod generic;
mod guard;
mod host;
mod killed;
mod lab;
mod live_status;
mod machine;
mod namespaces;
mod order;
mod out;
mod packet;
mod packet_command;
mod packet_links;
mod patterns;
mod peers;
mod queues;
mod records;
mod reload;
mod rules;
mod serve;
mod shadow;
mod slots;
mod suricata;
mod threads;
mod tunnels;
mod under_load;
mod unguarded;
mod watch;
mod withdrawn;
mod without_xdp;
mod xdp;

use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use rxsteer_lab::{alone, missing, online_cpus, rxsteer, skipped};
use serde_json::Value;

/// Returns the lock for `test`; otherwise prints why it is skipped, and returns `None`.
fn ready(test: &str, programs: &[&str], cpus: usize) -> Option<MutexGuard<'static, ()>> {
    let always = ["ip", "ethtool", "sysctl"];
    let programs: Vec<&str> = always.iter().chain(programs).copied().collect();
    let too_few = || {
        let online = online_cpus();
        (online < cpus).then(|| format!("it requires {cpus} CPUs, {online} are online"))
    };
    let left_out = match std::env::var("RXSTEER_LIVE").as_deref() {
        Ok("none") => Some("left out by RXSTEER_LIVE=none".to_owned()),
        Ok("beside") => Some("run beside other tests".to_owned()),
        _ => None,
    };
    let reason =
        left_out.or_else(|| missing(&programs)).or_else(|| rxsteer().err()).or_else(too_few);
    if let Some(reason) = reason {
        skipped(&format!("live::{test}"), &reason);
        return None;
    }
    Some(alone())
}

/// Whether this kernel has the tracepoint by which rfs follows applications (Linux 6.3 and newer).
fn has_rfs() -> bool {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let tracepoint = b"btf_trace_sock_recv_length";
    types.windows(tracepoint.len()).any(|name| name == tracepoint)
}

/// As [`ready`], for a test that requires rfs and two CPUs.
fn ready_for_rfs(test: &str) -> Option<MutexGuard<'static, ()>> {
    let alone = ready(test, &[], 2)?;
    if !has_rfs() {
        skipped(&format!("live::{test}"), "this kernel lacks the tracepoint that rfs requires");
        return None;
    }
    Some(alone)
}

/// The answer of a running rxsteer to a command.
fn ask(command: &[&str]) -> String {
    let output = Command::new(rxsteer().unwrap()).args(command).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command writes to standard error.
fn ask_stderr(command: &[&str]) -> String {
    let output = Command::new(rxsteer().unwrap()).args(command).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}

/// Changes settings of a running rxsteer. On a busy machine a change may be withdrawn; the message then asks to try
/// again.
fn set(socket: &str, settings: &str) {
    let settings: Vec<&str> = settings.split(' ').collect();
    let command = [&["set", "--socket", socket], &*settings].concat();
    let is_withdrawn = || {
        let output = Command::new(rxsteer().unwrap()).args(&command).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || stderr.contains("was withdrawn"), "{stderr}");
        !output.status.success()
    };
    assert!((0..3).any(|_| !is_withdrawn()), "{settings:?}: withdrawn three times");
}

/// Sets a flag when it is dropped. So a thread that runs until then also ends if the test fails; otherwise the scope of
/// the thread would wait for it forever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The id of the XDP program on an interface, as `ip` shows it.
fn program_on(namespace: &rxsteer_lab::Namespace, interface: &str) -> Option<u64> {
    let text = namespace.ip(&format!("-j link show dev {interface}")).unwrap();
    let shown: Value = serde_json::from_str(&text).unwrap();
    shown[0]["xdp"]["prog"]["id"].as_u64()
}

/// A process that keeps a CPU busy; it ends when this is dropped.
struct Busy(Child);

impl Busy {
    /// Starts a busy process on this CPU.
    fn on(cpu: usize) -> Busy {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
        Busy(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
