//! What is said over the control socket: one JSON object a line, a request and its answer.
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

/// What a client asks for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// How things are.
    Status {
        /// Flows to list, the largest first.
        #[serde(default)]
        flows: u32,
        /// Flow statistics are cleared after that.
        #[serde(default)]
        reset: bool,
    },
    /// Changes settings; answered when that is done.
    Set {
        /// `SETTING=VALUE`.
        settings: Vec<String>,
    },
    /// Where a flow is and why.
    Explain {
        /// As `rxsteer explain` takes it.
        flow: String,
    },
}

/// What it gets.
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
    /// Where it listens.
    pub(crate) socket: String,
    /// The network namespace it runs in, by its inode.
    pub(crate) network_namespace: Option<u64>,
    /// The XDP program's id.
    pub(crate) program_id: u32,
    pub(crate) running_ns: u64,
    /// Bytes of kernel memory that the BPF maps take; null where the kernel does not say.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) policy: String,
    pub(crate) settings: SettingsShown,
    /// A change is under way: what was sent by the old settings is not yet delivered.
    pub(crate) changing: bool,
    /// The order guard is asked. It is not where the policy never moves a flow, once nothing of
    /// former settings is under way.
    pub(crate) guarded: bool,
    /// Why the rings' threads are not in the class that the settings name, where they are not.
    #[serde(default)]
    pub(crate) threads_problem: Option<String>,
    /// The longest time since the last status, in nanoseconds, that the event thread was at work without looking up.
    #[serde(default)]
    pub(crate) longest_round_ns: u64,
    pub(crate) interfaces: Vec<InterfaceStatus>,
    pub(crate) cpus: Vec<CpuStatus>,
    #[serde(flatten)]
    pub(crate) totals: Counts,
    /// Where the packets are that were counted for flows, where flows are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flow_statistics: Option<FlowStatisticsShown>,
    /// The largest flows, where they are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) largest_flows: Vec<FlowShown>,
    /// Likewise, flows that ended since flows were asked for last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended_flows: Vec<FlowShown>,
}

/// The settings that hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingsShown {
    pub(crate) policy: String,
    pub(crate) mode: String,
    pub(crate) cpus: String,
    /// CPU maps of single interfaces and RX queues: "eth0:0=0-3".
    pub(crate) rps_maps: Vec<String>,
    /// What places a flow that nothing else places: hash or local.
    #[serde(rename = "else")]
    pub(crate) fallback: String,
    /// CPUs that rfs sends flows to where their applications run; `None`: every one that is online.
    pub(crate) rfs_cpus: Option<String>,
    /// Those of all CPUs that are offline.
    pub(crate) offline: Option<String>,
    pub(crate) queue_size: u32,
    pub(crate) flow_limit: Option<u32>,
    /// Scheduling class of the rings' threads.
    pub(crate) threads: String,
    pub(crate) shadow: bool,
    pub(crate) flow_cnt: u32,
    pub(crate) sock_flow_entries: u32,
    /// Whose sockets say where flows are desired: `own` or `all`.
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
    /// Why it is not steered, where it isn't; else what it is steered in spite of.
    pub(crate) why: Option<String>,
    /// RX queues that have one; in generic mode receiving CPUs.
    pub(crate) flow_tables: u16,
    #[serde(flatten)]
    pub(crate) counts: RxShown,
}

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Frames are steered.
    Steered,
    /// They would be, but it is down.
    Down,
    /// Another process detached the program.
    Detached,
    /// There is no such interface any more.
    Deleted,
    /// It is in another network namespace.
    Moved,
    /// It fits a pattern, but can't be steered.
    Refused,
}

impl State {
    /// The word for it.
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

/// What is counted where frames are received, by the names in the list of counters; but for drops, which stand
/// together elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RxShown(Map<String, Value>);

impl Default for RxShown {
    /// All counters are there, also while they are 0.
    fn default() -> RxShown {
        let mut zeroes = RxShown(Map::new());
        zeroes.add(|_| 0);
        zeroes
    }
}

impl RxShown {
    /// The counters that are not here.
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
    /// Of a single CPU: all that were sent to it and never came. In totals without `redirect_errors`.
    pub(crate) ring_full: u64,
    pub(crate) alloc: u64,
    /// Only in totals.
    pub(crate) redirect_errors: u64,
    /// By the CPU that received.
    pub(crate) flow_limit: u64,
}

impl Drops {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.ring_full + self.alloc + self.redirect_errors + self.flow_limit
    }
}

/// Everything that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) delivered: u64,
    pub(crate) drops: Drops,
    /// Frames in a ring now, or on their way into it.
    pub(crate) waiting: u64,
    #[serde(flatten)]
    pub(crate) rx: RxShown,
}

/// One CPU: what it received, and what was delivered on it.
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
    /// Its scheduling class, whoever set it; null where it can't be seen.
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

/// What came of a change.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// Everything sent by the old settings is delivered; `false`: that is still under way.
    pub(crate) done: bool,
    /// The new settings decide; `false`: not yet, and what holds are the former ones.
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
