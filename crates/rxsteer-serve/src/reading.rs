//! A reading: the state of all instances and of the host's CPUs at one time.

use bytes::Bytes;
use rxsteer_host::Load;
use rxsteer_status::{Rates, Status, client, registry};
use rxsteer_user::shown;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// The number of flows to request, the largest first.
const FLOWS: u32 = 50;
/// How long an instance may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The instances to show.
#[derive(Clone, Debug)]
pub enum Source {
    /// The instance with this control socket.
    Instance(PathBuf),
    /// All running instances, including those that start later.
    All,
}

impl Source {
    fn sockets(&self) -> Vec<PathBuf> {
        match self {
            Self::Instance(socket) => vec![socket.clone()],
            Self::All => registry::instances(),
        }
    }
}

/// An instance that answered during a reading.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Its answer.
    pub(crate) status: Status,
    /// The rates since an earlier reading, if there was a recent one.
    pub(crate) rates: Option<Rates>,
}

/// An instance that did not answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Silent {
    /// Its control socket.
    socket: String,
    /// Why there is no answer.
    why: String,
}

/// The state of all instances at one time.
#[derive(Debug)]
pub(crate) struct Reading {
    /// When it was taken.
    pub(crate) at: Instant,
    /// The same, in milliseconds of Unix time.
    pub(crate) time_ms: u64,
    pub(crate) has_flows: bool,
    pub(crate) seen: Vec<Seen>,
    pub(crate) silent: Vec<Silent>,
    pub(crate) load: Option<Load>,
    /// The activity of the host's CPUs since an earlier reading, if there was a recent one.
    pub(crate) host: Option<Host>,
    /// The JSON for the page, once a viewer has requested it.
    pub(crate) json: OnceLock<Bytes>,
}

impl Reading {
    /// Queries all instances.
    pub(crate) fn now(source: &Source, has_flows: bool) -> Reading {
        let flows = if has_flows { FLOWS } else { 0 };
        let (mut seen, mut silent) = (Vec::new(), Vec::new());
        for socket in source.sockets() {
            match client::status_within(&socket, flows, TIMEOUT) {
                Ok(status) => seen.push(Seen { status, rates: None }),
                Err(why) => {
                    silent.push(Silent { socket: shown(&socket), why: format!("{why:#}") });
                }
            }
        }
        let load = Load::read();
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Reading {
            at: Instant::now(),
            time_ms: time.as_millis() as u64,
            has_flows,
            seen,
            silent,
            load,
            host: None,
            json: OnceLock::new(),
        }
    }

    /// Computes the rates since `earlier`.
    pub(crate) fn compare(&mut self, earlier: &Reading) {
        for seen in &mut self.seen {
            let same = |before: &&Seen| before.status.socket == seen.status.socket;
            let before = earlier.seen.iter().find(same);
            seen.rates = before.and_then(|before| Rates::between(&before.status, &seen.status));
        }
        self.host = self
            .load
            .as_ref()
            .zip(earlier.load.as_ref())
            .map(|(now, then)| Host::between(then, now));
    }
}

/// The activity of a CPU of the host between two readings, as shares of its time from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct HostCpu {
    cpu: u32,
    /// In softirqs: receiving and sending.
    softirq: f64,
    /// In applications, in the kernel on their behalf, and in all other work.
    other: f64,
    /// Idle, including waits for disks.
    idle: f64,
}

/// The activity of the host's CPUs between two readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    cpus: Vec<HostCpu>,
}

impl Host {
    /// Computes the activity between two readings.
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
