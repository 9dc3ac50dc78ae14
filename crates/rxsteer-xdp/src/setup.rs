//! The configuration of the in-kernel path: what is fixed when it is loaded, and what can change while it runs.

use crate::abi::{MAP_ENTRIES, MAX_CPUS, MAX_MAPS, MAX_RULES, Mode, RULE_SETS};
use crate::threads::ThreadsError;
pub use rxsteer_core::limits::{
    MAX_KERNEL_FLOW_LIMIT_BUCKETS as MAX_FLOW_LIMIT_BUCKETS, MAX_QUEUE_SIZE, MIN_QUEUE_SIZE,
};
use rxsteer_core::matching::{Action, PacketRule};
use rxsteer_core::{CpuId, CpuSet, Fallback, Mechanisms, Policy, QueueName, ThreadClass};
use rxsteer_packet::TunnelKinds;
use thiserror::Error;

/// The default size of a CPU's ring in packets, as in the kernel's own samples.
pub const DEFAULT_QUEUE_SIZE: u32 = 2048;
/// The most interfaces that one instance steers.
pub const MAX_INTERFACES: u32 = 64;
/// The most slots in the flow tables of all RX queues together; they take 832 MiB.
pub const MAX_SLOTS: u64 = 1 << 22;

/// What is fixed when the programs are loaded.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the program gets its frames from. It is the same for all interfaces: a CPUMAP must not mix the modes.
    pub mode: Mode,
    /// Every CPU that may receive or process frames: the possible CPUs of this machine.
    pub possible: CpuSet,
    /// Slots of each RX queue's flow table, rounded up to a power of two, at least 4.
    pub flow_cnt: u32,
    /// Flow tables: one for each RX queue of all interfaces that may ever be attached (in generic mode, one for each
    /// possible CPU and interface).
    pub tables: u32,
    /// Interfaces that may ever be attached: 1 to [`MAX_INTERFACES`].
    pub interfaces: u32,
    /// Entries of the sock flow table, rounded up to a power of two.
    pub sock_flow_entries: u32,
    /// For rfs: only sockets of the network namespace with this inode number set desired CPUs; `None`: sockets of all
    /// namespaces. Another namespace may use the same addresses, and move flows of this one.
    pub rfs_namespace: Option<u32>,
    /// The key of the flow hash.
    pub secret: [u8; 16],
    /// Whether the parser enters tunnels.
    pub inner: bool,
    /// The tunnels whose packets are steered by tunnel number instead of ports.
    pub key_tunnels: TunnelKinds,
    /// Whether the programs count packets and bytes for each flow.
    pub flow_stats: bool,
    /// Whether a recorder makes records of all flows ([`Path::recorder`](crate::Path::recorder)). If so, there is room for
    /// more flows that end at once.
    pub flow_records: bool,
    /// Timer ticks a second (CONFIG_HZ), if known; otherwise they are measured.
    pub hz: Option<u32>,
    /// Only for measurements: drop frames on arrival in the ring's thread, before they cause further cost.
    pub drop_on_arrival: bool,
    /// Only for tests: detect delivery as on a kernel with 1000 ticks a second or more.
    pub as_with_short_ticks: bool,
}

/// The settings that can be changed while frames flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The policy, which is the rule that picks the CPU.
    pub policy: Policy,
    /// The general CPU map: the CPUs over which flows are spread, unless their RX queue has its own map.
    pub cpus: CpuSet,
    /// The rules before the policy, in order.
    pub packet_rules: Vec<PacketRule>,
    /// CPU maps of single interfaces and RX queues. If several match a queue, the most specific applies.
    pub rps_maps: Vec<(QueueName, CpuSet)>,
    /// For policies that remember flows: how to place a flow that no other rule places.
    pub fallback: Fallback,
    /// The CPUs to which `rfs` sends a flow whose application runs there; `None`: every online CPU.
    pub rfs_cpus: Option<CpuSet>,
    /// The CPUs that cannot be used now.
    pub offline: Option<CpuSet>,
    /// Packets each CPU's ring holds: [`MIN_QUEUE_SIZE`] to [`MAX_QUEUE_SIZE`].
    pub queue_size: u32,
    /// The number of the flow limit's buckets, if there is a limit: 1 to [`MAX_FLOW_LIMIT_BUCKETS`], rounded up to a
    /// power of two.
    pub flow_limit: Option<u32>,
    /// Scheduling class of the rings' threads.
    pub threads: ThreadClass,
    /// Make and count decisions, but let every frame pass.
    pub shadow: bool,
    /// Only for tests: without the order guard flows are reordered.
    pub without_guard: bool,
}

/// Why settings are refused; nothing has changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// A CPU that this machine does not have.
    #[error("there is no CPU {0} on this machine; it has {1}")]
    NoSuchCpu(CpuId, CpuSet),
    /// A CPU whose id is too high for the tables.
    #[error("CPU {0} can't be steered to: the in-kernel path has room for CPUs 0 to {most}", most = MAX_CPUS - 1)]
    CpuTooHigh(CpuId),
    /// The same RX queue has two CPU maps.
    #[error("RX queue {0} has two CPU maps; leave one out")]
    MappedTwice(QueueName),
    /// More CPU maps than there is room for.
    #[error(
        "the in-kernel path has room for {MAX_MAPS} different CPU maps, the general one among them, with {MAP_ENTRIES} \
         CPUs in all; name fewer maps or CPUs"
    )]
    TooManyMaps,
    /// There are more rules than can be before the policy; holds their number.
    #[error("{0} rules are too many; the limit is {MAX_RULES}")]
    TooManyRules(usize),
    /// The rules need more sets than there is room for; holds their number.
    #[error(
        "the rules need {0} different sets in their tables, and the in-kernel path has room for {RULE_SETS}; name fewer \
         ranges of ports or networks"
    )]
    RuleSets(usize),
    /// The policy has one table of buckets for all RX queues; holds a queue with a CPU map.
    #[error(
        "RX queue {0} has a CPU map, but with 'balance' all RX queues share one table of buckets; leave the map out \
         (rps-map=none), or use a policy without balance"
    )]
    MapsAndBuckets(QueueName),
    /// None of the CPUs is online.
    #[error("none of the CPUs {0} is online; bring one online or name others")]
    AllOffline(CpuSet),
    /// A ring's size is out of range.
    #[error("a queue size is {MIN_QUEUE_SIZE} to {MAX_QUEUE_SIZE} packets, not {0}")]
    QueueSize(u32),
    /// The flow limit's buckets are out of range.
    #[error("in the kernel a flow limit has 1 to {MAX_FLOW_LIMIT_BUCKETS} buckets, not {0}")]
    FlowLimit(u32),
    /// The kernel does not report where applications run; holds the policy or the rule, and the missing tracepoint.
    #[error(
        "{0} follows applications by the tracepoint {1}, which this kernel lacks (Linux 6.3 and newer have it); \
         use another policy, such as sparse, or a newer kernel"
    )]
    NoTracepoint(String, &'static str),
    /// The threads of the rings cannot be put into the scheduling class.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
}

impl Settings {
    /// The policy `policy` over `cpus`, with defaults for everything else.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet) -> Settings {
        Settings {
            policy,
            cpus,
            packet_rules: Vec::new(),
            rps_maps: Vec::new(),
            fallback: Fallback::default(),
            rfs_cpus: None,
            offline: None,
            queue_size: DEFAULT_QUEUE_SIZE,
            flow_limit: None,
            threads: ThreadClass::DEFAULT,
            shadow: false,
            without_guard: false,
        }
    }

    /// Whether `rfs` sends a flow to `cpu` if its application runs there.
    #[must_use]
    pub fn is_desired(&self, cpu: CpuId) -> bool {
        self.is_online(cpu) && self.rfs_cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }

    /// Whether frames can be sent to `cpu` now.
    #[must_use]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        !self.offline.as_ref().is_some_and(|offline| offline.contains(cpu))
    }

    /// Every CPU that the settings name.
    pub fn named_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let desired = self.rfs_cpus.iter().flat_map(CpuSet::iter);
        let of_rules = PacketRule::cpus_of(&self.packet_rules);
        self.mapped_cpus().chain(desired).chain(self.policy.named_cpus()).chain(of_rules)
    }

    /// The CPUs of all maps.
    pub(crate) fn mapped_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.iter().chain(self.rps_maps.iter().flat_map(|(_, map)| map.iter()))
    }

    /// The CPU map of an interface's RX queue.
    #[must_use]
    pub fn map_of(&self, interface: &str, queue: u16) -> &CpuSet {
        QueueName::most_specific(&self.rps_maps, Some(interface), queue).unwrap_or(&self.cpus)
    }

    /// Whether frames of some flows pass instead of going through a ring.
    pub(crate) fn has_passed_flows(&self) -> bool {
        let stays = matches!(self.policy, Policy::None | Policy::Bound(_));
        let passes = |rule: &PacketRule| rule.action == Action::Pass;
        // With rules, a frame that stays on its CPU goes through that CPU's ring.
        (stays && self.packet_rules.is_empty())
            || self.packet_rules.iter().any(passes)
            || self.shadow
    }

    /// The mechanisms that the policy and the rules before it use.
    pub(crate) fn mechanisms(&self) -> Mechanisms {
        Mechanisms::of(&self.policy, &self.packet_rules)
    }

    /// Whether the CPU of a flow may change although the settings stay the same: the policy moves flows, a bucket moves, or
    /// packets of the flow match different rules.
    pub(crate) fn remember_flows(&self) -> bool {
        self.policy.moves_flows() || !self.packet_rules.is_empty()
    }

    /// The same settings without policy and rules: each frame stays where it is received.
    pub(crate) fn without_steering(&self) -> Settings {
        Settings { policy: Policy::None, packet_rules: Vec::new(), ..self.clone() }
    }
}
