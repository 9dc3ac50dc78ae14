//! Changing a running receive path: what can be changed, and how it reaches the RX threads.
//!
//! A change is checked as a whole and published as a whole. Each RX thread takes it between two
//! batches; order is kept by [`rxsteer_core::transition`]. Desired CPUs go through here
//! too, since a change can replace the table they are kept in.

use crate::sys;
use rxsteer_core::{
    ConfigError, CpuId, CpuSet, Fallback, FlowHash, Plan, Policy, QueueName, SockFlowTable,
};
use rxsteer_ring::{Published, Seen};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What is to be different from now on; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerChange {
    /// The policy. Maps of single RX queues are left behind with one that has none.
    pub policy: Option<Policy>,
    /// The CPU map.
    pub cpus: Option<CpuSet>,
    /// The CPU maps of single RX queues, all of them.
    pub rps_maps: Option<Vec<(QueueName, CpuSet)>>,
    /// What places a flow that nothing else places.
    pub fallback: Option<Fallback>,
    /// CPUs that `rfs` sends a flow to where its application runs; `Some(None)`: every possible one.
    pub rfs_cpus: Option<Option<CpuSet>>,
    /// Entries of the sock flow table.
    pub sock_flow_entries: Option<u32>,
    /// Entries of each RX queue's flow table.
    pub flow_cnt: Option<u32>,
    /// Buckets of the flow limit; `Some(None)` takes it away.
    pub flow_limit: Option<Option<u32>>,
    /// Packets that may wait per RX thread and CPU.
    pub max_backlog: Option<u32>,
}

impl SteerChange {
    /// Every CPU it names.
    pub fn named_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let maps = self.rps_maps.iter().flatten().flat_map(|(_, cpus)| cpus.iter());
        let named = self.policy.iter().flat_map(Policy::named_cpus);
        let desired = self.rfs_cpus.iter().flatten().flat_map(CpuSet::iter);
        self.cpus.iter().flat_map(CpuSet::iter).chain(maps).chain(named).chain(desired)
    }
}

/// When a change is made that was planned beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a receive time: this many nanoseconds after the first packet's.
    Time(u64),
    /// When an RX thread has received this many packets.
    Packets(u64),
}

impl When {
    /// Whether it comes after `other` for certain. A time and a number of packets don't compare.
    pub(crate) fn is_after(self, other: When) -> bool {
        match (self, other) {
            (When::Time(this), When::Time(other)) | (When::Packets(this), When::Packets(other)) => {
                this > other
            }
            _ => false,
        }
    }
}

/// Why a change is refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The policy would contradict itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The backlogs were not made for so many; holds the limit asked for and the highest possible.
    #[error("a backlog limit of {0} packets is out of range; here it can be 1 to {1}")]
    Backlog(u32, u32),
}

/// What RX threads go by.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) plan: Arc<Plan>,
    pub(crate) max_backlog: u32,
    largest_backlog: u32,
}

/// Where the settings are published.
#[derive(Debug)]
pub(crate) struct Switch(Published<Settings>);

/// What one reader last saw of them.
pub(crate) type SeenSettings = Seen<Settings>;

impl Switch {
    /// Backlogs can hold up to `largest_backlog` packets.
    pub(crate) fn new(plan: Plan, max_backlog: u32, largest_backlog: u32) -> Switch {
        Switch(Published::new(Settings { plan: Arc::new(plan), max_backlog, largest_backlog }))
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
                if !policy.has_maps() {
                    config.rps_maps.clear();
                }
            }
            replace(&mut config.cpus, change.cpus.as_ref());
            replace(&mut config.rps_maps, change.rps_maps.as_ref());
            replace(&mut config.fallback, change.fallback.as_ref());
            replace(&mut config.rfs_cpus, change.rfs_cpus.as_ref());
            replace(&mut config.sock_flow_entries, change.sock_flow_entries.as_ref());
            replace(&mut config.flow_cnt, change.flow_cnt.map(Some).as_ref());
            replace(&mut config.flow_limit, change.flow_limit.as_ref());
            let plan = Arc::new(now.plan.next(&config)?);
            Ok(Settings { plan, max_backlog, largest_backlog: now.largest_backlog })
        })
    }

    /// `cpu` processes nothing any more: it is taken out of all decisions. What waits there is
    /// processed by others.
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
            })
        });
        debug_assert!(taken_out.is_ok(), "a CPU less makes no configuration impossible");
    }
}

/// Changes planned beforehand, made by the RX threads as they come to the time.
#[derive(Debug)]
pub(crate) struct Schedule {
    changes: Vec<(When, SteerChange)>,
    /// Index of the next one. Written under `making`, so that they are made in their order.
    next: AtomicUsize,
    making: Mutex<()>,
    made: AtomicUsize,
    /// The receive time of the first packet.
    begin_ns: OnceLock<u64>,
}

impl Schedule {
    pub(crate) fn new(changes: &[(When, SteerChange)]) -> Schedule {
        Schedule {
            changes: changes.to_vec(),
            next: AtomicUsize::new(0),
            making: Mutex::new(()),
            made: AtomicUsize::new(0),
            begin_ns: OnceLock::new(),
        }
    }

    /// An RX thread that has received `packets` comes to a batch whose first packet was received at
    /// `time_ns`: makes every change that is due.
    #[cold]
    pub(crate) fn come_to(&self, time_ns: u64, packets: u64, switch: &Switch) {
        let elapsed = time_ns.saturating_sub(*self.begin_ns.get_or_init(|| time_ns));
        // ORDER: Relaxed, here and below; a thread that is late finds out under the lock.
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
            // Tried before the start, it can only be impossible beside changes that were not planned.
            if switch.change(&self.changes[next].1).is_ok() {
                self.made.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many changes were made.
    pub(crate) fn made(&self) -> usize {
        // ORDER: Relaxed; a figure to look at.
        self.made.load(Ordering::Relaxed)
    }
}

fn replace<T: Clone>(setting: &mut T, by: Option<&T>) {
    if let Some(by) = by {
        setting.clone_from(by);
    }
}

/// Records for `rfs` where applications run: one call where a flow's data is consumed, as the
/// kernel's `recvmsg` and `sendmsg` do it. A CPU without a worker, and any call under a policy
/// without `rfs`, changes no decision.
///
/// It holds the table it last used, so after a change of size one that is never used again should be
/// dropped.
#[derive(Debug)]
pub struct FlowRecorder {
    switch: Arc<Switch>,
    seen: SeenSettings,
}

impl FlowRecorder {
    pub(crate) fn new(switch: Arc<Switch>) -> FlowRecorder {
        FlowRecorder { seen: switch.see(), switch }
    }

    /// The flow's application runs on `cpu` from now on. Writes only when that is new; costs a load
    /// of a shared line when it is not.
    #[inline]
    pub fn record(&mut self, hash: FlowHash, cpu: CpuId) {
        self.table().record(hash, cpu);
    }

    /// The flow's application runs on the CPU this thread is on.
    pub fn record_here(&mut self, hash: FlowHash) {
        if let Some(cpu) = sys::current_cpu() {
            self.record(hash, cpu);
        }
    }

    /// The flow has ended.
    pub fn forget(&mut self, hash: FlowHash) {
        self.table().forget(hash);
    }

    /// Whether the table was replaced and this holds the old one still.
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
