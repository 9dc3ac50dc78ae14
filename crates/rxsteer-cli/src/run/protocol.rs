//! The protocol of the control socket: one JSON object per line, a request or its answer.
//!
//! ```text
//! {"do":"status","flows":10,"reset":false}        {"status":{…}}
//! {"do":"set","settings":["policy=rps"]}          {"set":{…}}
//! {"do":"explain","flow":"10.0.0.1:1-10.0.0.2:2/tcp"}   {"explain":{…}}
//! anything else                                   {"error":"what is wrong"}
//! ```

use super::flows_shown::{FlowShown, FlowStatisticsShown, FlowWhere};
use rxsteer_user::core::counters::{LiveCounter, LiveCpuCounter};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The longest request, in bytes.
pub(crate) const MAX_REQUEST: usize = 64 << 10;
/// The longest answer, in bytes.
pub(crate) const MAX_ANSWER: usize = 1 << 20;

/// A client's request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The status of the instance.
    Status {
        /// Flows to list, the largest first.
        #[serde(default)]
        flows: u32,
        /// Whether flow statistics are cleared afterwards.
        #[serde(default)]
        reset: bool,
    },
    /// Changes settings; the answer comes when the change is done.
    Set {
        /// `SETTING=VALUE`.
        settings: Vec<String>,
    },
    /// Where a flow is, and why.
    Explain {
        /// The flow in the syntax of `rxsteer explain`.
        flow: String,
    },
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Status(Box<Status>),
    Set(Changed),
    Explain(Box<FlowWhere>),
    Error(String),
}

/// An instance and its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// The path of its socket.
    pub(crate) socket: String,
    /// The network namespace it runs in, by its inode number.
    pub(crate) network_namespace: Option<u64>,
    /// The id of the XDP program.
    pub(crate) program_id: u32,
    pub(crate) running_ns: u64,
    /// Kernel memory of the BPF maps in bytes; null if the kernel does not report it.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) policy: String,
    pub(crate) settings: SettingsShown,
    /// Whether a change is under way: frames that were sent by the old settings are not yet delivered.
    pub(crate) changing: bool,
    /// Whether the order guard applies. It does not apply if the policy never moves a flow, once no frames of former
    /// settings are under way.
    pub(crate) guarded: bool,
    /// Why the rings' threads are not in the class of the settings, if they are not.
    #[serde(default)]
    pub(crate) threads_problem: Option<String>,
    /// The longest time since the last status that the event thread worked without a look at its events, in
    /// nanoseconds.
    #[serde(default)]
    pub(crate) longest_round_ns: u64,
    pub(crate) interfaces: Vec<InterfaceStatus>,
    pub(crate) cpus: Vec<CpuStatus>,
    #[serde(flatten)]
    pub(crate) totals: Counts,
    /// Totals of the packets that were counted for flows, if flows are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flow_statistics: Option<FlowStatisticsShown>,
    /// The largest flows, if they are requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) largest_flows: Vec<FlowShown>,
    /// Flows that ended since flows were last requested, if flows are requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended_flows: Vec<FlowShown>,
}

/// The active settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingsShown {
    pub(crate) policy: String,
    pub(crate) mode: String,
    pub(crate) cpus: String,
    /// CPU maps of single interfaces and RX queues: "eth0:0=0-3".
    pub(crate) rps_maps: Vec<String>,
    /// How a flow is placed that no other rule places: hash or local.
    #[serde(rename = "else")]
    pub(crate) fallback: String,
    /// CPUs to which rfs sends a flow if its application runs there; `None`: every online CPU.
    pub(crate) rfs_cpus: Option<String>,
    /// The offline CPUs of all CPUs.
    pub(crate) offline: Option<String>,
    pub(crate) queue_size: u32,
    pub(crate) flow_limit: Option<u32>,
    /// Scheduling class of the rings' threads.
    pub(crate) threads: String,
    pub(crate) shadow: bool,
    pub(crate) flow_cnt: u32,
    pub(crate) sock_flow_entries: u32,
    /// The network namespaces whose sockets set desired CPUs: `own` or `all`.
    pub(crate) rfs_namespaces: String,
    pub(crate) inner: bool,
    pub(crate) flow_stats: bool,
    pub(crate) order_guard: bool,
}

/// One interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InterfaceStatus {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) state: State,
    /// Why the interface is not steered, if it is not; otherwise its warnings.
    pub(crate) why: Option<String>,
    /// RX queues with a flow table; in generic mode receiving CPUs with one.
    pub(crate) flow_tables: u16,
    #[serde(flatten)]
    pub(crate) counts: RxShown,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
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

impl State {
    /// The name of the state.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct RxShown(Map<String, Value>);

impl Default for RxShown {
    /// Contains all counters, also while they are 0.
    fn default() -> RxShown {
        let mut zeroes = RxShown(Map::new());
        zeroes.add(|_| 0);
        zeroes
    }
}

impl RxShown {
    /// The counters that are left out.
    const DROPS: [LiveCounter; 2] = [LiveCounter::RedirectErrors, LiveCounter::FlowLimitDrops];

    pub(crate) fn get(&self, counter: LiveCounter) -> u64 {
        self.0.get(counter.name()).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Adds to every counter.
    pub(crate) fn add(&mut self, count: impl Fn(LiveCounter) -> u64) {
        for counter in LiveCounter::ALL.iter().filter(|counter| !Self::DROPS.contains(counter)) {
            let sum = self.get(*counter) + count(*counter);
            self.0.insert(counter.name().to_owned(), sum.into());
        }
    }
}

/// Frames that were lost, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drops {
    /// For a single CPU: all frames that were sent to it and never arrived. In totals: without `redirect_errors`.
    pub(crate) ring_full: u64,
    pub(crate) alloc: u64,
    /// Only in totals.
    pub(crate) redirect_errors: u64,
    /// Dropped by the flow limit, for the CPU that received.
    pub(crate) flow_limit: u64,
}

impl Drops {
    /// The sum of all drops.
    pub(crate) fn total(&self) -> u64 {
        self.ring_full + self.alloc + self.redirect_errors + self.flow_limit
    }
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) delivered: u64,
    pub(crate) drops: Drops,
    /// Frames that are in a ring now, or on their way into it.
    pub(crate) waiting: u64,
    #[serde(flatten)]
    pub(crate) rx: RxShown,
}

/// The counters of one CPU: what it received, and what was delivered on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CpuStatus {
    pub(crate) cpu: u16,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    /// The thread of its ring.
    #[serde(default)]
    pub(crate) thread: ThreadShown,
}

/// The kernel thread that empties a CPU's ring: what it did, and what the ring lost meanwhile, by the names in the list
/// of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadShown {
    /// The thread's scheduling class, whichever process set it; null if it cannot be read.
    pub(crate) class: Option<String>,
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

    pub(crate) fn new(class: Option<String>, count: impl Fn(LiveCpuCounter) -> u64) -> ThreadShown {
        let counts = Self::COUNTERS.map(|counter| (counter.name().to_owned(), count(counter)));
        ThreadShown { class, counts: counts.into() }
    }

    pub(crate) fn get(&self, counter: LiveCpuCounter) -> u64 {
        self.counts.get(counter.name()).copied().unwrap_or(0)
    }
}

/// The result of a change.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// Whether everything sent by the old settings is delivered; `false`: frames are still under way.
    pub(crate) done: bool,
    /// Whether the new settings are active; `false`: the former settings are still active.
    #[serde(default)]
    pub(crate) holds: bool,
    pub(crate) settings: Box<SettingsShown>,
}

/// Reads a request.
pub(crate) fn request(line: &str) -> Result<Request, String> {
    serde_json::from_str(line).map_err(|error| format!("invalid request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_mistakes_named() {
        assert_eq!(request(r#"{"do":"status"}"#), Ok(Request::Status { flows: 0, reset: false }));
        let set = Request::Set { settings: vec!["policy=rps".to_owned()] };
        assert_eq!(request(&serde_json::to_string(&set).unwrap()), Ok(set));
        for bad in ["", "x", "{}", r#"{"do":"stop"}"#, r#"{"do":"status","flws":1}"#] {
            assert!(request(bad).unwrap_err().starts_with("invalid request: "), "{bad}");
        }
    }

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
        let cpu = CpuStatus { cpu: 3, counts, thread };
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
