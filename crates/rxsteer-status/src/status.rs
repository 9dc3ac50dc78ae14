//! What an instance shows: its settings, interfaces, CPUs and counters.

use crate::flow::{FlowRecordsShown, FlowShown, FlowStatisticsShown};
use crate::{Delay, Event, SettingsShown};
use rxsteer_core::counters::{LiveCounter, LiveCpuCounter};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The command that an instance runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// `rxsteer run`: the in-kernel path.
    #[default]
    Run,
    /// `rxsteer live`: packets of live interfaces in user space.
    Live,
    /// `rxsteer replay`: packets of captures in user space.
    Replay,
}

/// An instance and its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The command that this instance runs.
    #[serde(default)]
    pub command: Command,
    /// The version of rxsteer.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The path of its socket.
    pub socket: String,
    /// The network namespace it runs in, by its inode number.
    pub network_namespace: Option<u64>,
    /// The id of the XDP program, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_id: Option<u32>,
    /// Nanoseconds since it was started: the time of all counts.
    pub running_ns: u64,
    /// Kernel memory of the BPF maps in bytes; null if the kernel does not report it.
    pub memory_bytes: Option<u64>,
    /// The policy.
    pub policy: String,
    /// The active settings.
    pub settings: SettingsShown,
    /// Whether a change is under way: frames that were sent by the old settings are not yet delivered.
    pub changing: bool,
    /// Whether the order guard applies. It does not apply if the policy never moves a flow, once no frames of former
    /// settings are under way.
    pub guarded: bool,
    /// Why the rings' threads are not in the class of the settings, if they are not.
    #[serde(default)]
    pub threads_problem: Option<String>,
    /// Buckets that moved by load, under policies with `balance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<BalanceShown>,
    /// The longest time within the last 10 to 20 seconds that the event thread worked without checking its events, in
    /// nanoseconds. Requests for the status do not affect it.
    #[serde(default)]
    pub longest_round_ns: u64,
    /// Its interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// Every CPU that it steers to or receives on.
    pub cpus: Vec<CpuStatus>,
    /// The sums over all CPUs.
    #[serde(flatten)]
    pub totals: Counts,
    /// Packets that were processed before or at the same time as an earlier one of their flow, if order is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered: Option<u64>,
    /// The share of the input that was read, 0.0 to 1.0, if the length of the input is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_share: Option<f64>,
    /// Totals of the packets that were counted for flows, if flows are requested and the path counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_statistics: Option<FlowStatisticsShown>,
    /// The largest flows, if they are requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largest_flows: Vec<FlowShown>,
    /// The counts of flow records, if records are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_records: Option<FlowRecordsShown>,
    /// The last events, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// The flows that ended last, if flows are requested: at most as many as are requested, and each for 5 minutes
    /// after its end. At most 1000 are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_flows: Vec<FlowShown>,
}

/// Where buckets are, and which moved by load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceShown {
    /// The number of buckets.
    pub buckets: u32,
    /// How many of them each CPU has.
    pub by_cpu: Vec<BucketsShown>,
    /// Moves of buckets by load since the instance was started.
    pub moved: u64,
    /// The last moves, the latest first.
    pub latest: Vec<MoveShown>,
    /// If the load can't be measured, the reason; no bucket moves then.
    pub problem: Option<String>,
}

/// The buckets of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketsShown {
    /// The CPU.
    pub cpu: u16,
    /// How many buckets it has.
    pub buckets: u32,
}

/// A bucket that moved by load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveShown {
    /// Milliseconds ago.
    pub ago_ms: u64,
    /// The bucket.
    pub bucket: u16,
    /// The CPU that had it.
    pub from: u16,
    /// The CPU that got it.
    pub to: u16,
    /// The hash of the flow that has more than half of its packets, if one has.
    pub large_flow: Option<u32>,
    /// The reason: the loads of both CPUs before the move.
    pub why: String,
}

/// One interface, or what a replay reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its index; 0 if it is no interface.
    pub ifindex: u32,
    /// Its state.
    pub state: State,
    /// Why the interface is not steered; if it is steered, its warnings.
    pub why: Option<String>,
    /// Nanoseconds since it was attached; 0 if it is not attached.
    #[serde(default)]
    pub running_ns: u64,
    /// RX queues with a flow table; in generic mode receiving CPUs with one.
    pub flow_tables: u16,
    /// Packets that the kernel dropped before rxsteer received them. They are not among the received ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_drops: Option<u64>,
    /// What was received on it.
    #[serde(flatten)]
    pub counts: RxShown,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Frames are steered.
    Steered,
    /// Frames would be steered, but the interface is down.
    Down,
    /// Another process detached the program.
    Detached,
    /// The interface no longer exists.
    Deleted,
    /// It is in another network namespace.
    Moved,
    /// The interface matches a pattern, but cannot be steered.
    Refused,
}

impl Command {
    /// The name of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Live => "live",
            Self::Replay => "replay",
        }
    }
}

impl State {
    /// The name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steered => "steered",
            Self::Down => "down",
            Self::Detached => "detached",
            Self::Deleted => "deleted",
            Self::Moved => "moved",
            Self::Refused => "refused",
        }
    }
}

/// The counters of the receiving side, by their names in the list of counters. The drop counters are in `Drops`
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RxShown(Map<String, Value>);

impl Default for RxShown {
    /// Contains all counters, including those that are 0.
    fn default() -> RxShown {
        let mut zeroes = RxShown(Map::new());
        zeroes.add(|_| 0);
        zeroes
    }
}

impl RxShown {
    /// The counters that are left out.
    const DROPS: [LiveCounter; 2] = [LiveCounter::RedirectErrors, LiveCounter::FlowLimitDrops];

    /// The count with this name in the list of counters.
    #[must_use]
    pub fn get(&self, counter: LiveCounter) -> u64 {
        self.0.get(counter.name()).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Adds to every counter.
    pub fn add(&mut self, count: impl Fn(LiveCounter) -> u64) {
        for counter in LiveCounter::ALL.iter().filter(|counter| !Self::DROPS.contains(counter)) {
            let sum = self.get(*counter) + count(*counter);
            self.0.insert(counter.name().to_owned(), sum.into());
        }
    }

    /// Adds all counters of `other`.
    pub fn merge(&mut self, other: &RxShown) {
        self.add(|counter| other.get(counter));
    }
}

/// Frames that were lost, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// For a single CPU: all frames that were sent to it and never arrived. In totals: without `redirect_errors`.
    pub ring_full: u64,
    /// The kernel had no memory for them.
    pub alloc: u64,
    /// Only in totals.
    pub redirect_errors: u64,
    /// Dropped by the flow limit, for the CPU that received.
    pub flow_limit: u64,
    /// Lost with a worker whose handler panicked, or because no worker remained. Only in the userspace path, as are the
    /// following.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub worker_lost: u64,
    /// Their interface was removed while they waited.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interface_removed: u64,
    /// They should have been sent on, but there was no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tx_full: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Drops {
    /// The sum of all drops.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Drops { ring_full, alloc, redirect_errors, flow_limit, .. } = self;
        let in_kernel = ring_full + alloc + redirect_errors + flow_limit;
        in_kernel + self.worker_lost + self.interface_removed + self.tx_full
    }

    /// What was dropped after `before`.
    #[must_use]
    pub fn since(&self, before: &Drops) -> Drops {
        Drops {
            ring_full: self.ring_full.saturating_sub(before.ring_full),
            alloc: self.alloc.saturating_sub(before.alloc),
            redirect_errors: self.redirect_errors.saturating_sub(before.redirect_errors),
            flow_limit: self.flow_limit.saturating_sub(before.flow_limit),
            worker_lost: self.worker_lost.saturating_sub(before.worker_lost),
            interface_removed: self.interface_removed.saturating_sub(before.interface_removed),
            tx_full: self.tx_full.saturating_sub(before.tx_full),
        }
    }

    /// Adds all drops of `other`.
    pub fn add(&mut self, other: &Drops) {
        self.ring_full += other.ring_full;
        self.alloc += other.alloc;
        self.redirect_errors += other.redirect_errors;
        self.flow_limit += other.flow_limit;
        self.worker_lost += other.worker_lost;
        self.interface_removed += other.interface_removed;
        self.tx_full += other.tx_full;
    }
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets that were delivered on the CPU.
    pub delivered: u64,
    /// Packets that were dropped.
    pub drops: Drops,
    /// Frames that are in a ring now, or on their way into it.
    pub waiting: u64,
    /// What was received.
    #[serde(flatten)]
    pub rx: RxShown,
}

/// The counters of one CPU: what it received, and what was delivered on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CpuStatus {
    /// The CPU.
    pub cpu: u16,
    /// What it received, and what was delivered on it.
    #[serde(flatten)]
    pub counts: Counts,
    /// The thread of its ring.
    #[serde(default)]
    pub thread: ThreadShown,
    /// The delay of sampled packets that were delivered on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// In shadow mode: the packets with a flow that would have been sent to it, since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would: Option<u64>,
}

/// The kernel thread that empties a CPU's ring: its run and wait times, and what the ring lost meanwhile, by the names
/// in the list of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadShown {
    /// The thread's scheduling class, whichever process set it; null if it cannot be read.
    pub class: Option<String>,
    /// By name.
    #[serde(flatten)]
    counts: BTreeMap<String, u64>,
}

impl ThreadShown {
    /// The counters of a thread.
    const COUNTERS: [LiveCpuCounter; 7] = [
        LiveCpuCounter::LostWaiting,
        LiveCpuCounter::LostBusy,
        LiveCpuCounter::LostBurst,
        LiveCpuCounter::ThreadRan,
        LiveCpuCounter::ThreadWaited,
        LiveCpuCounter::LongestWait,
        LiveCpuCounter::Rate,
    ];

    /// The thread's counters.
    #[must_use]
    pub fn new(class: Option<String>, count: impl Fn(LiveCpuCounter) -> u64) -> ThreadShown {
        let counts = Self::COUNTERS.map(|counter| (counter.name().to_owned(), count(counter)));
        ThreadShown { class, counts: counts.into() }
    }

    /// The count with this name in the list of counters.
    #[must_use]
    pub fn get(&self, counter: LiveCpuCounter) -> u64 {
        self.counts.get(counter.name()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_stand_beside_the_rest() {
        assert_eq!(serde_json::to_value(Counts::default()).unwrap()["received"], 0);
        let mut rx = RxShown::default();
        let count = |counter| if counter == LiveCounter::Received { 7 } else { 1 };
        rx.add(count);
        rx.add(count);
        let drops = Drops { alloc: 2, ..Drops::default() };
        let thread = ThreadShown::new(Some("fifo:1".to_owned()), |_| 4);
        let counts = Counts { rx, drops, delivered: 5, waiting: 0 };
        let cpu = CpuStatus { cpu: 3, counts, thread, delay: None, would: None };
        let value = serde_json::to_value(&cpu).unwrap();
        assert_eq!((&value["received"], &value["drops"]["alloc"]), (&14.into(), &2.into()));
        assert_eq!((&value["flow_limit_drops"], &value["moves"]), (&Value::Null, &2.into()));
        assert_eq!(
            (&value["thread"]["class"], &value["thread"]["waited_ns"]),
            (&"fifo:1".into(), &4.into())
        );
        let back: CpuStatus = serde_json::from_value(value).unwrap();
        assert_eq!((back.cpu, back.counts, back.thread), (3, cpu.counts, cpu.thread));
    }
}
