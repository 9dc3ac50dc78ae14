#![doc = include_str!("../README.md")]
//!
//! # How a setting is read
//!
//! ```text
//!  command line                       --policy rps  ─────────────────────────┐
//!  --config FILE                      policy = "rps"  ┐                      ▼
//!  [steering] of a scenario, --set    policy = "rps"  ├─► Text ─► read() ─► clap's parser ─► a struct of settings
//!  rxsteer set, --change-at           policy=rps      ┘             │
//!                                                                   └─► Refused, with the nearest word
//! ```
//!
//! A struct that derives [`clap::Args`] is the definition: its fields give the names, their parsers the values and
//! limits, their comments the help text. [`read`] turns a [`Text`] into the option of the same name, so a text has
//! the same meaning on every path. No second description (serde's, or a list of keys) can differ from it. The
//! limits are those of `rxsteer_core::config`.
#![forbid(unsafe_code)]

mod completion;
mod nearest;
mod texts;
mod values;

pub use completion::{Words, assignments, words};
pub use nearest::{nearest, suggestion};
pub use texts::{Options, Refused, Text, mistakes, names, read};
pub use values::{
    CpuChoice, FlowLimit, MapSetting, RfsCpus, RuleSetting, backlog, cpu_list, cpus, cpus_listed,
    policy, switch, whole,
};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rxsteer_core::limits::{MAX_FLOW_CNT, MAX_FLOW_LIMIT_BUCKETS, MAX_SOCK_FLOW_ENTRIES};
use rxsteer_core::{CpuSet, Fallback, PacketRule, Policy, QueueName};

/// What every datapath is steered by: the userspace path, the in-kernel path (whose flow limit has fewer
/// `BUCKETS`) and the simulator. `None`: not given.
#[derive(Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct Steering<const BUCKETS: u32 = MAX_FLOW_LIMIT_BUCKETS> {
    /// none, rps, bound, sparse, rfs, rfs+sparse, balance
    ///
    /// The rule that picks the CPU. none: the receiving CPU. rps: the flow hash picks from the CPU map.
    /// bound:QUEUE=CPU,… or bound:IFACE:QUEUE=CPU,…: the CPU of the RX queue. sparse[:loops=N,after=N]: the first
    /// flows get CPUs in turn, each flow its own slot; a CPU has loops slots (1 to 5, default 4), and a flow gets one
    /// with its Nth packet within a second (after=N, 1 to 255, default 1); the hash steers other flows. rfs: the CPU
    /// where the flow's application runs; if that is unknown, the hash picks. rfs+sparse[:loops=N,after=N]: both.
    /// rps+balance[:buckets=N,interval=T,threshold=P%,moves=N], or balance: the hash picks a bucket, and measured
    /// load picks the bucket's CPU (default 1024 buckets, 100ms, 5%, 64 moves), e.g. rps+balance:interval=1s;
    /// +balance also works with sparse, rfs and rfs+sparse. The default is rps; in rxsteer run it is rfs+sparse, or
    /// sparse if the kernel has no tracepoints for rfs.
    #[arg(long, value_parser = words(Policy::NAMES, policy))]
    pub policy: Option<Policy>,

    /// CPUs to steer to: 0-3,8 or a count; by default all
    ///
    /// 4 is a count; CPU 4 alone is 4-4. The default is all CPUs that this process may use; in rxsteer run all CPUs
    /// that are online, not isolated, and on the NUMA node of the interfaces.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus, allow_hyphen_values = true)]
    pub cpus: Option<CpuChoice>,

    /// A separate CPU map for an RX queue: QUEUE=CPUS, e.g. 1=4-7; in rxsteer run also IFACE:QUEUE=CPUS or
    /// IFACE=CPUS, e.g. eth0:0=0-3. Repeat the option for several queues; the most specific map applies. Other queues
    /// use --cpus. none removes the maps of the settings file
    #[arg(long, value_name = "[IFACE:]QUEUE=CPUS|none", value_parser = |text: &str| text.parse::<MapSetting>())]
    pub rps_map: Option<Vec<MapSetting>>,

    /// How rfs and sparse steer a flow that has neither a desired CPU nor a sparse slot: hash (its hash picks from
    /// the CPU map; the default) or local (it stays on the receiving CPU)
    #[arg(long = "else", value_name = "hash|local", hide_possible_values = true, value_parser =
          PossibleValuesParser::new(Fallback::NAMES).map(|word| values::fallback(&word)))]
    pub fallback: Option<Fallback>,

    /// CPUs to which flows may follow their applications under rfs: a list like 0-3,8, or all that packets can be
    /// sent to (the default)
    #[arg(long, value_name = "LIST|all", value_parser = |text: &str| text.parse::<RfsCpus>())]
    pub rfs_cpus: Option<RfsCpus>,

    /// When a backlog is half full, drop packets of a flow that has more than half of the last 128:
    /// on, off (the default), or a number of buckets to count flows in: --flow-limit=N (on is 4096)
    #[arg(long, value_name = "on|off|BUCKETS", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", value_parser = FlowLimit::up_to::<BUCKETS>)]
    pub flow_limit: Option<FlowLimit>,
}

/// Sizes of tables; the in-kernel path can't change them while it runs.
#[derive(Args, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tables {
    /// Entries of the sock flow table, which has the applications' CPUs for rfs (32768 by default); rounded up to a
    /// power of two
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, { MAX_SOCK_FLOW_ENTRIES as u64 }>)]
    pub sock_flow_entries: Option<u32>,

    /// Slots of each RX queue's flow table, for sparse and rfs (32768 by default, divided by the
    /// queues, but at least 1024); rounded up to a power of two
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, { MAX_FLOW_CNT as u64 }>)]
    pub flow_cnt: Option<u32>,
}

/// Rules before the policy.
#[derive(Args, Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// A rule to check before the policy, e.g. 'tcp dst-port 22 -> local'; of several rules, the first that matches
    /// applies
    ///
    /// MATCH is one or several of: tcp, udp, sctp, dccp, icmp, icmp6, esp, gre, protocol N; ip, ip6; src, dst or net
    /// (either) NETWORK; src-port, dst-port or port (either) PORTS, e.g. 80,8000-8080; vlan N; interface NAME; dscp
    /// N; spi N, teid N, vni N; or any alone. ACTION is CPUs (2 or 0-1,4: the hash picks one), local or pass (the
    /// receiving CPU), or policy rps, sparse, rfs or rfs+sparse (that policy picks the CPU). At most 256 rules. none
    /// removes the rules of the settings file.
    #[arg(long, value_name = "MATCH -> ACTION|none", value_parser = |text: &str| text.parse::<RuleSetting>())]
    pub rule: Option<Vec<RuleSetting>>,
}

impl Rules {
    /// The rules, in order; `None`: not given.
    #[must_use]
    pub fn rules(&self) -> Option<Vec<PacketRule>> {
        let rules = self.rule.as_ref()?.iter();
        Some(rules.filter_map(|RuleSetting(rule)| rule.clone()).collect())
    }
}

impl<const BUCKETS: u32> Steering<BUCKETS> {
    /// The CPU maps of all RX queues that have one; `None`: not given.
    #[must_use]
    pub fn rps_maps(&self) -> Option<Vec<(QueueName, CpuSet)>> {
        let maps = self.rps_map.as_ref()?.iter();
        Some(maps.filter_map(|MapSetting(map)| map.clone()).collect())
    }

    /// The CPUs that rfs may send a flow to; `Some(None)`: all.
    #[must_use]
    pub fn rfs_cpus(&self) -> Option<Option<CpuSet>> {
        self.rfs_cpus.as_ref().map(|RfsCpus(cpus)| cpus.clone())
    }

    /// The buckets of the flow limit; `Some(None)`: no flow limit.
    #[must_use]
    pub fn flow_limit(&self) -> Option<Option<u32>> {
        self.flow_limit.map(|FlowLimit(buckets)| buckets)
    }
}
