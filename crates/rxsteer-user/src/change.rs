//! Changes of a running receive path: the settings that can change, and how they reach the RX threads.
//!
//! A change is checked as a whole and published as a whole. Each RX thread takes it between two batches;
//! [`rxsteer_core::transition`] keeps the order of flows. Desired CPUs are also recorded through this module,
//! since a change can replace the table that holds them.

use crate::{memory, sys};
use rxsteer_core::{
    ConfigError, CpuId, CpuSet, Fallback, FlowHash, Move, PacketRule, Plan, Policy, QueueName,
    SockFlowTable, SteerConfig,
};
use rxsteer_ring::{Published, Seen};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The settings to change; a setting that is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerChange {
    /// The policy. A change to a policy without maps removes the maps of single RX queues.
    pub policy: Option<Policy>,
    /// All rules that are applied before the policy. The counts of new rules start at zero.
    pub packet_rules: Option<Vec<PacketRule>>,
    /// The CPU map.
    pub cpus: Option<CpuSet>,
    /// The CPU maps of all RX queues that have their own.
    pub rps_maps: Option<Vec<(QueueName, CpuSet)>>,
    /// How a flow is placed if no other rule places it.
    pub fallback: Option<Fallback>,
    /// CPUs that `rfs` may send a flow to because its application runs there. `Some(None)`: every possible CPU.
    pub rfs_cpus: Option<Option<CpuSet>>,
    /// Entries of the sock flow table.
    pub sock_flow_entries: Option<u32>,
    /// Entries of each RX queue's flow table.
    pub flow_cnt: Option<u32>,
    /// Buckets of the flow limit; `Some(None)` removes the limit.
    pub flow_limit: Option<Option<u32>>,
    /// Packets that may wait per RX thread and CPU.
    pub max_backlog: Option<u32>,
}

impl SteerChange {
    /// Every CPU that the change names.
    pub fn named_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let maps = self.rps_maps.iter().flatten().flat_map(|(_, cpus)| cpus.iter());
        let named = self.policy.iter().flat_map(Policy::named_cpus);
        let desired = self.rfs_cpus.iter().flatten().flat_map(CpuSet::iter);
        let rules = self.packet_rules.iter().flat_map(|rules| PacketRule::cpus_of(rules));
        self.cpus.iter().flat_map(CpuSet::iter).chain(maps).chain(named).chain(desired).chain(rules)
    }
}

/// When a planned change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a receive time: this many nanoseconds after that of the first packet.
    Time(u64),
    /// When an RX thread has received this many packets.
    Packets(u64),
}

impl When {
    /// Whether this is certainly after `other`. A time and a number of packets cannot be compared.
    pub(crate) fn is_after(self, other: When) -> bool {
        match (self, other) {
            (When::Time(this), When::Time(other)) | (When::Packets(this), When::Packets(other)) => {
                this > other
            }
            _ => false,
        }
    }
}

/// Why a change is refused. A refused change alters nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The settings of the policy would contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The backlogs were created for fewer packets; holds the requested limit and the highest possible one.
    #[error("a backlog limit of {0} packets is out of range; here it can be 1 to {1}")]
    Backlog(u32, u32),
    /// The memory for the tables cannot be allocated; holds the number of bytes.
    #[error(
        "the tables need {:.2} GiB of memory, which can't be allocated; lower flow-cnt or sock-flow-entries",
        *.0 as f64 / f64::from(1 << 30)
    )]
    Memory(u64),
}

/// The settings that RX threads use.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) plan: Arc<Plan>,
    pub(crate) max_backlog: u32,
    largest_backlog: u32,
    /// The number of changes so far. Moves of buckets and the end of a worker do not count.
    pub(crate) changes: u64,
}

/// The place where the settings are published.
#[derive(Debug)]
pub(crate) struct Switch(Published<Settings>);

/// The settings that one reader last saw.
pub(crate) type SeenSettings = Seen<Settings>;

impl Switch {
    /// A switch for backlogs that can hold up to `largest_backlog` packets.
    pub(crate) fn new(plan: Plan, max_backlog: u32, largest_backlog: u32) -> Switch {
        Switch(Published::new(Settings {
            plan: Arc::new(plan),
            max_backlog,
            largest_backlog,
            changes: 0,
        }))
    }

    pub(crate) fn see(&self) -> SeenSettings {
        self.0.see()
    }

    #[inline(always)]
    pub(crate) fn has_changed(&self, seen: &SeenSettings) -> bool {
        self.0.has_changed(seen)
    }

    pub(crate) fn change(&self, change: &SteerChange) -> Result<(), ChangeError> {
        self.0.replace(|now| {
            let max_backlog = change.max_backlog.unwrap_or(now.max_backlog);
            if max_backlog == 0 || max_backlog > now.largest_backlog {
                return Err(ChangeError::Backlog(max_backlog, now.largest_backlog));
            }
            let mut config = now.plan.config().clone();
            if let Some(policy) = &change.policy {
                config.policy = policy.clone();
            }
            replace(&mut config.packet_rules, change.packet_rules.as_ref());
            if !config.mechanisms().maps {
                config.rps_maps.clear();
            }
            replace(&mut config.cpus, change.cpus.as_ref());
            replace(&mut config.rps_maps, change.rps_maps.as_ref());
            replace(&mut config.fallback, change.fallback.as_ref());
            replace(&mut config.rfs_cpus, change.rfs_cpus.as_ref());
            replace(&mut config.sock_flow_entries, change.sock_flow_entries.as_ref());
            replace(&mut config.flow_cnt, change.flow_cnt.map(Some).as_ref());
            replace(&mut config.flow_limit, change.flow_limit.as_ref());
            config.check()?;
            let bytes_of = |config: &SteerConfig| config.table_memory(now.plan.producers());
            let bytes = bytes_of(&config);
            // Tables that stay as they are take no memory.
            if bytes != bytes_of(now.plan.config())
                && !memory::is_available(bytes + memory::RESERVE)
            {
                return Err(ChangeError::Memory(bytes));
            }
            let plan = Arc::new(now.plan.next(&config)?);
            let changes = now.changes + 1;
            Ok(Settings { plan, max_backlog, largest_backlog: now.largest_backlog, changes })
        })
    }

    /// Moves the buckets that `decide` returns for the present plan. Without moves it publishes nothing.
    pub(crate) fn rebalance(&self, decide: impl FnOnce(&Plan) -> Vec<Move>) {
        let _ = self.0.replace(|now| {
            let moves = decide(&now.plan);
            if moves.is_empty() {
                return Err(());
            }
            Ok(Settings {
                plan: Arc::new(now.plan.moved(&moves)),
                max_backlog: now.max_backlog,
                largest_backlog: now.largest_backlog,
                changes: now.changes,
            })
        });
    }

    /// Removes `cpu` from all decisions, since its worker no longer processes packets. Other workers process the
    /// packets that wait there.
    pub(crate) fn goes_offline(&self, cpu: CpuId) {
        let taken_out = self.0.replace(|now| {
            let mut config = now.plan.config().clone();
            let offline = config.offline.iter().flat_map(CpuSet::iter).chain([cpu]);
            config.offline = CpuSet::new(offline);
            let plan = Arc::new(now.plan.next(&config)?);
            Ok::<_, ConfigError>(Settings {
                plan,
                max_backlog: now.max_backlog,
                largest_backlog: now.largest_backlog,
                changes: now.changes,
            })
        });
        debug_assert!(taken_out.is_ok(), "a CPU less makes no configuration impossible");
    }
}

/// Planned changes. The RX threads make each one when it is due.
#[derive(Debug)]
pub(crate) struct Schedule {
    changes: Vec<(When, SteerChange)>,
    /// The index of the next change. It is written under `making`, so that changes are made in their order.
    next: AtomicUsize,
    making: Mutex<()>,
    /// The receive time of the first packet.
    begin_ns: OnceLock<u64>,
}

impl Schedule {
    pub(crate) fn new(changes: &[(When, SteerChange)]) -> Schedule {
        Schedule {
            changes: changes.to_vec(),
            next: AtomicUsize::new(0),
            making: Mutex::new(()),
            begin_ns: OnceLock::new(),
        }
    }

    /// Makes every change that is due when an RX thread that has received `packets` reaches a batch whose first
    /// packet was received at `time_ns`.
    #[cold]
    pub(crate) fn advance_to(&self, time_ns: u64, packets: u64, switch: &Switch) {
        let elapsed = time_ns.saturating_sub(*self.begin_ns.get_or_init(|| time_ns));
        // ORDER: Relaxed, here and below; a thread with an old value reads the new one under the lock.
        let is_due = || match self.changes.get(self.next.load(Ordering::Relaxed)) {
            None => false,
            Some((When::Time(after), _)) => elapsed >= *after,
            Some((When::Packets(after), _)) => packets >= *after,
        };
        if !is_due() {
            return;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        while is_due() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            // The change was checked before the start, so it can fail only in combination with unplanned changes.
            let _ = switch.change(&self.changes[next].1);
        }
    }
}

fn replace<T: Clone>(setting: &mut T, by: Option<&T>) {
    if let Some(by) = by {
        setting.clone_from(by);
    }
}

/// Records for `rfs` where applications run. Call it where a flow's data is consumed, as the kernel does in
/// `recvmsg` and `sendmsg`. Records of a CPU without a worker, and records under a policy without `rfs`, change no
/// decision.
///
/// A recorder keeps the table that it last used alive. After a change of the table's size, drop a recorder that
/// will not be used again.
#[derive(Debug)]
pub struct FlowRecorder {
    switch: Arc<Switch>,
    seen: SeenSettings,
}

impl FlowRecorder {
    pub(crate) fn new(switch: Arc<Switch>) -> FlowRecorder {
        FlowRecorder { seen: switch.see(), switch }
    }

    /// Records that the flow's application runs on `cpu` from now on. It writes only if that is new; otherwise it
    /// costs one load of a shared line.
    #[inline]
    pub fn record(&mut self, hash: FlowHash, cpu: CpuId) {
        self.table().record(hash, cpu);
    }

    /// Records that the flow's application runs on the CPU of this thread.
    pub fn record_here(&mut self, hash: FlowHash) {
        if let Some(cpu) = sys::current_cpu() {
            self.record(hash, cpu);
        }
    }

    /// Forgets the desired CPU of a flow that has ended.
    pub fn forget(&mut self, hash: FlowHash) {
        self.table().forget(hash);
    }

    /// Whether the table was replaced and this recorder still holds the old one.
    pub(crate) fn is_stale(&self) -> bool {
        self.switch.has_changed(&self.seen)
    }

    #[inline(always)]
    pub(crate) fn table(&mut self) -> &SockFlowTable {
        self.seen.refresh(&self.switch.0).plan.sock_flows()
    }
}

impl Clone for FlowRecorder {
    fn clone(&self) -> FlowRecorder {
        FlowRecorder::new(self.switch.clone())
    }
}
