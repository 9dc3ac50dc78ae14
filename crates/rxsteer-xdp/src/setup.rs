//! What the in-kernel path is given: once, and while it runs.

use crate::abi::{MAP_ENTRIES, MAX_CPUS, MAX_MAPS, Mode};
use crate::compile::Rows;
use crate::threads::ThreadsError;
pub use rxsteer_core::limits::{
    MAX_KERNEL_FLOW_LIMIT_BUCKETS as MAX_FLOW_LIMIT_BUCKETS, MAX_QUEUE_SIZE, MIN_QUEUE_SIZE,
};
use rxsteer_core::{CpuId, CpuSet, Fallback, Policy, QueueName, ThreadClass};
use thiserror::Error;

/// Packets a CPU's ring holds by default: what the kernel's own samples use.
pub const DEFAULT_QUEUE_SIZE: u32 = 2048;
/// Most interfaces one instance steers.
pub const MAX_INTERFACES: u32 = 64;
/// Most slots of all RX queues' flow tables: 832 MiB of them.
pub const MAX_SLOTS: u64 = 1 << 22;

/// What is fixed when the programs are loaded.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How frames come to the program, the same for all interfaces: a CPUMAP must not mix them.
    pub mode: Mode,
    /// Every CPU that may receive or process: those that are possible on this machine.
    pub possible: CpuSet,
    /// Slots of each RX queue's flow table, rounded up to a power of two, at least 4.
    pub flow_cnt: u32,
    /// Flow tables: RX queues of all interfaces that may ever be attached (in generic mode, possible
    /// CPUs for each interface).
    pub tables: u32,
    /// Interfaces that may ever be attached: 1 to [`MAX_INTERFACES`].
    pub interfaces: u32,
    /// Entries of the sock flow table, rounded up to a power of two.
    pub sock_flow_entries: u32,
    /// For rfs: sockets of this network namespace alone (by its inode number) say where flows are desired; `None`: of
    /// all. Another namespace may use the same addresses, and move flows that are not its own.
    pub rfs_namespace: Option<u32>,
    /// What the flow hash is keyed with.
    pub secret: [u8; 16],
    /// Look into tunnels.
    pub inner: bool,
    /// Count each flow's packets and bytes.
    pub flow_stats: bool,
    /// Timer ticks a second (CONFIG_HZ), where that is known; else they are measured.
    pub hz: Option<u32>,
    /// For measurements alone: frames end where they arrive, before they cost anything more.
    pub drop_on_arrival: bool,
    /// For tests alone: what is delivered is found as where a second has 1000 ticks or more.
    pub as_with_short_ticks: bool,
}

/// What can be changed while frames flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which rule picks the CPU.
    pub policy: Policy,
    /// The general CPU map: the CPUs that flows are spread over where no own map is for their RX queue.
    pub cpus: CpuSet,
    /// CPU maps of single interfaces and RX queues; of several for a queue the most specific holds.
    pub rps_maps: Vec<(QueueName, CpuSet)>,
    /// What places a flow that nothing else places, for policies that remember flows.
    pub fallback: Fallback,
    /// CPUs that `rfs` sends a flow to where its application runs; `None`: every one that is online.
    pub rfs_cpus: Option<CpuSet>,
    /// Those of all CPUs that can't be used now.
    pub offline: Option<CpuSet>,
    /// Packets each CPU's ring holds: [`MIN_QUEUE_SIZE`] to [`MAX_QUEUE_SIZE`].
    pub queue_size: u32,
    /// Buckets of the flow limit, where there is one: 1 to [`MAX_FLOW_LIMIT_BUCKETS`], rounded up to a power
    /// of two.
    pub flow_limit: Option<u32>,
    /// Scheduling class of the rings' threads.
    pub threads: ThreadClass,
    /// Decide and count, but let every frame pass.
    pub shadow: bool,
    /// For tests alone: without the order guard flows are reordered.
    pub without_guard: bool,
}

/// Why settings are refused; nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// A CPU that this machine has not.
    #[error("there is no CPU {0} on this machine; it has {1}")]
    NoSuchCpu(CpuId, CpuSet),
    /// A CPU whose id is above what the tables have room for.
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
    /// None of the CPUs can be used.
    #[error("none of the CPUs {0} is online; bring one online or name others")]
    AllOffline(CpuSet),
    /// A ring's size is out of range.
    #[error("a queue size is {MIN_QUEUE_SIZE} to {MAX_QUEUE_SIZE} packets, not {0}")]
    QueueSize(u32),
    /// The flow limit's buckets are out of range.
    #[error("in the kernel a flow limit has 1 to {MAX_FLOW_LIMIT_BUCKETS} buckets, not {0}")]
    FlowLimit(u32),
    /// The kernel does not report where applications run; holds the tracepoint that it has not.
    #[error(
        "{0} follows applications by the tracepoint {1}, which this kernel lacks (Linux 6.3 and newer have it); \
         take another policy, such as sparse, or a newer kernel"
    )]
    NoTracepoint(Policy, &'static str),
    /// The threads of the rings can't be put into the class.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
}

impl Settings {
    /// The policy `policy` over `cpus`, with all else as it is by default.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet) -> Settings {
        Settings {
            policy,
            cpus,
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

    /// Every CPU that is named.
    pub fn named_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let desired = self.rfs_cpus.iter().flat_map(CpuSet::iter);
        self.mapped_cpus().chain(desired).chain(self.policy.named_cpus())
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

    /// Checks the settings against the machine.
    ///
    /// # Errors
    /// [`SettingsError`], the first that is wrong.
    pub fn check(&self, possible: &CpuSet) -> Result<(), SettingsError> {
        for cpu in self.named_cpus() {
            if cpu.get() >= MAX_CPUS {
                return Err(SettingsError::CpuTooHigh(cpu));
            }
            if !possible.contains(cpu) {
                return Err(SettingsError::NoSuchCpu(cpu, possible.clone()));
            }
        }
        for (at, (name, _)) in self.rps_maps.iter().enumerate() {
            if self.rps_maps[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(SettingsError::MappedTwice(name.clone()));
            }
        }
        if !Rows::new(self).fit() {
            return Err(SettingsError::TooManyMaps);
        }
        if !self.cpus.iter().any(|cpu| self.is_online(cpu)) {
            return Err(SettingsError::AllOffline(self.cpus.clone()));
        }
        if !(MIN_QUEUE_SIZE..=MAX_QUEUE_SIZE).contains(&self.queue_size) {
            return Err(SettingsError::QueueSize(self.queue_size));
        }
        match self.flow_limit {
            Some(buckets) if !(1..=MAX_FLOW_LIMIT_BUCKETS).contains(&buckets) => {
                Err(SettingsError::FlowLimit(buckets))
            }
            _ => Ok(()),
        }
    }

    /// Whether frames of some flows pass, through no ring.
    pub(crate) fn has_passed_flows(&self) -> bool {
        matches!(self.policy, Policy::None | Policy::Bound(_)) || self.shadow
    }
}
