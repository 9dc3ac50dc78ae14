//! The JSON that the page reads.

use crate::looks::{Look, Silent};
use rxsteer_host::Load;
use rxsteer_status::{Rates, Status};
use serde::Serialize;

/// What a CPU of the host did between two looks, as shares of its time from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct HostCpu {
    cpu: u32,
    /// In softirqs: receiving and sending.
    softirq: f64,
    /// In applications, and in the kernel for them.
    other: f64,
    /// Idle, also while it waits for disks.
    idle: f64,
}

/// What the host's CPUs did between two looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    cpus: Vec<HostCpu>,
}

impl Host {
    /// What they did between two looks.
    pub(crate) fn between(then: &Load, now: &Load) -> Host {
        let cpus = now.since(then).cpus;
        let shares = cpus.iter().filter(|cpu| cpu.ticks.all > 0).map(|cpu| {
            let ticks = &cpu.ticks;
            let share = |of: u64| (of as f64 / ticks.all as f64).min(1.0);
            let other = ticks.all.saturating_sub(ticks.softirq + ticks.idle);
            HostCpu {
                cpu: cpu.cpu,
                softirq: share(ticks.softirq),
                other: share(other),
                idle: share(ticks.idle),
            }
        });
        Host { cpus: shares.collect() }
    }
}

/// The answer at `/api/status`.
#[derive(Serialize)]
struct Shown<'a> {
    /// The version of the server.
    version: &'static str,
    /// When the instances were asked, in milliseconds of Unix time.
    time_ms: u64,
    instances: Vec<Instance<'a>>,
    /// Instances that did not answer.
    silent: &'a [Silent],
    host: Option<&'a Host>,
}

/// What `rxsteer status --json` shows, and the rates.
#[derive(Serialize)]
struct Instance<'a> {
    #[serde(flatten)]
    status: &'a Status,
    rates: Option<&'a Rates>,
}

/// The answer at `/api/status`.
pub(crate) fn status(look: &Look) -> String {
    let instances = look.seen.iter();
    let shown = Shown {
        version: env!("CARGO_PKG_VERSION"),
        time_ms: look.time_ms,
        instances: instances
            .map(|seen| Instance { status: &seen.status, rates: seen.rates.as_ref() })
            .collect(),
        silent: &look.silent,
        host: look.host.as_ref(),
    };
    // It has no map with keys that are not text.
    serde_json::to_string(&shown).unwrap_or_default()
}
