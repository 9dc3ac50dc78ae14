//! The configuration of the receive path, and the reasons for refusing it.

use crate::block::BlockPool;
use crate::change::{ChangeError, SteerChange, Switch, When};
use crate::memory;
use crate::source::live::LiveInterface;
use crate::sys;
pub use rxsteer_core::limits::{DEFAULT_BACKLOG, MAX_BACKLOG};
use rxsteer_core::matching::InterfaceName;
use rxsteer_core::rfs::DEFAULT_SOCK_FLOW_ENTRIES;
use rxsteer_core::{
    ConfigError, CpuId, CpuSet, Fallback, MAX_RX_QUEUES, PacketRule, Plan, Policy, QueueName,
    SteerConfig,
};
use rxsteer_packet::{DissectOptions, Hasher, SymmetricHash};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The smallest default batch: the number of packets that the kernel takes from a queue in one poll (`dev_weight`).
pub const DEFAULT_BATCH: usize = 64;

/// The longest batch that is decided on at once, in packets.
pub const MAX_BATCH: usize = 256;

/// Packets of a default batch for each CPU. A list costs the RX thread time at any length, so lists must not get shorter
/// with more CPUs (`rxsteer lab run workers` compares batches).
const BATCH_PER_CPU: usize = 16;

/// The accepted intervals of ticks.
const TICKS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// What happens to a packet whose backlog is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// The RX thread waits for room. No packet is lost, and a slow CPU slows the source. (A flow limit still drops the
    /// packets above it.)
    Wait,
    /// The packet is dropped and counted, as a live system does.
    Drop,
}

/// All settings of the receive path at its start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PipelineConfig {
    /// The policy that picks the CPU.
    pub policy: Policy,
    /// The CPU map. Each of its CPUs gets a worker, and so does every other CPU that a packet can be sent to.
    pub cpus: CpuSet,
    /// Rules that are applied before the policy, in order.
    pub packet_rules: Vec<PacketRule>,
    /// CPU maps of single RX queues, for policies that use maps; names with an interface are refused.
    pub rps_maps: Vec<(QueueName, CpuSet)>,
    /// How a flow is placed if no other rule places it, for policies that remember flows.
    pub fallback: Fallback,
    /// CPUs that `rfs` may send a flow to because its application runs there. `None`: every CPU with a worker.
    pub rfs_cpus: Option<CpuSet>,
    /// The number of RX queues.
    pub rx_queues: u16,
    /// For each RX queue, its device, for `sparse`; queues beyond the end belong to device 0.
    pub rx_devices: Vec<u16>,
    /// The name of each device, for rules with `interface`.
    pub device_names: Vec<InterfaceName>,
    /// CPUs that get a worker although no packet is sent there yet. A [`crate::Control::change`] may name them,
    /// and applications may run there. CPUs that `changes` name get a worker in any case.
    pub standby: Option<CpuSet>,
    /// Entries of the sock flow table, for `rfs`.
    pub sock_flow_entries: u32,
    /// Entries of each RX queue's flow table, for policies that remember flows. `None`: a number that depends on
    /// the number of queues ([`SteerConfig::flow_cnt`]).
    pub flow_cnt: Option<u32>,
    /// Buckets of the flow limit; `None`: no flow limit.
    pub flow_limit: Option<u32>,
    /// The CPU of each RX thread; the length is the number of RX threads. Thread `q % length` receives RX queue
    /// `q`, and its CPU is the queue's default CPU.
    pub rx_cpus: Vec<CpuId>,
    /// The flow hash.
    pub hasher: Hasher,
    /// How far the dissector looks into frames.
    pub dissect: DissectOptions,
    /// Packets that may wait per RX thread and CPU, 1 to [`MAX_BACKLOG`].
    pub max_backlog: u32,
    /// Changes to make during the run, in this order. Each takes effect at the first batch that begins when the
    /// change is due.
    pub changes: Vec<(When, SteerChange)>,
    /// The largest value that a [`SteerChange`] may set `max_backlog` to; memory is allocated for this many
    /// packets. A value below `max_backlog` means `max_backlog`.
    pub largest_backlog: u32,
    /// Packets decided on at once, 1 to [`MAX_BATCH`]. This is also the length of the longest list that is handed
    /// over. The default is 16 for each CPU of `cpus`, but at least [`DEFAULT_BATCH`] and at most [`MAX_BATCH`]. At
    /// [`Speed::Drained`](crate::Speed::Drained) a batch has at most [`DEFAULT_BATCH`].
    pub batch: usize,
    /// What happens to a packet whose backlog is full.
    pub on_full: OnFull,
    /// Pin RX threads and workers to their CPUs, if this process may use all of these CPUs.
    pub pin: bool,
    /// Number every packet in its flow and check the order on the workers. This also counts flows and moves. It
    /// costs a table lookup per packet.
    pub check_order: bool,
    /// Whether `balance` uses the time that handlers take on each CPU instead of the number of packets. A CPU with slow
    /// handlers, or with other work (`/proc/stat`), then gets fewer buckets. Moves differ from run to run. A worker reads
    /// the clock once per list. The default is false.
    pub measure_load: bool,
    /// How often each worker calls [`Handler::tick`](crate::Handler::tick): from every 1 ms to every 1 h, by the clock of
    /// the host. The default is `None`: never. A sleeping worker wakes up for it.
    pub tick: Option<Duration>,
}

impl PipelineConfig {
    /// One RX queue received on the lowest CPU of `cpus`; the symmetric hash with a new random key; the kernel's
    /// backlog limit and poll weight. Packets for full backlogs are dropped, threads are pinned, and order is not
    /// checked.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet) -> PipelineConfig {
        PipelineConfig {
            policy,
            rx_cpus: vec![cpus.lowest()],
            batch: (BATCH_PER_CPU * cpus.len()).clamp(DEFAULT_BATCH, MAX_BATCH),
            cpus,
            packet_rules: Vec::new(),
            rps_maps: Vec::new(),
            fallback: Fallback::default(),
            rfs_cpus: None,
            rx_queues: 1,
            rx_devices: Vec::new(),
            device_names: Vec::new(),
            standby: None,
            sock_flow_entries: DEFAULT_SOCK_FLOW_ENTRIES,
            flow_cnt: None,
            flow_limit: None,
            hasher: Hasher::Symmetric(SymmetricHash::new(rand::random())),
            dissect: DissectOptions::default(),
            max_backlog: DEFAULT_BACKLOG,
            changes: Vec::new(),
            largest_backlog: 0,
            on_full: OnFull::Drop,
            pin: true,
            check_order: false,
            measure_load: false,
            tick: None,
        }
    }

    /// Every CPU that gets a worker.
    #[must_use]
    pub fn workers(&self) -> CpuSet {
        // This includes the CPUs of RX threads that receive no queue: their backlog is the local one of a
        // hand-off.
        let destinations = self.steer_config_without_standby().destinations();
        let planned = self.changes.iter().flat_map(|(_, change)| change.named_cpus());
        let standby = self.standby.iter().flat_map(CpuSet::iter).chain(planned);
        let all = destinations.iter().chain(self.rx_cpus.iter().copied()).chain(standby);
        CpuSet::new(all).unwrap_or(destinations)
    }

    /// The CPUs that packets are spread over: those of `cpus`, of maps and of bindings.
    pub(crate) fn steered_to(&self) -> CpuSet {
        let maps = self.rps_maps.iter().flat_map(|(_, cpus)| cpus.iter());
        let named = self.cpus.iter().chain(maps).chain(self.policy.named_cpus());
        let named = named.chain(PacketRule::cpus_of(&self.packet_rules));
        CpuSet::new(named).unwrap_or_else(|| self.cpus.clone())
    }

    /// Whether this process may use every CPU of the configuration, so that threads can be pinned.
    #[must_use]
    pub fn fits_host(&self) -> bool {
        sys::allowed_cpus().is_some_and(|host| self.workers().iter().all(|cpu| host.contains(cpu)))
    }

    /// Whether threads are pinned to their CPUs: if the configuration asks for it and this process may use all of them.
    #[must_use]
    pub fn pins(&self) -> bool {
        self.pin && self.fits_host()
    }

    /// Sets the RX queues, devices and RX threads for live interfaces: each RX queue has a thread, and the threads use
    /// `rx_cpus` in turn. Without `rx_cpus` they stay on the present ones.
    pub fn receive_on(&mut self, interfaces: &[LiveInterface], rx_cpus: Vec<CpuId>) {
        let queues = interfaces.last().map_or(1, |last| last.rx_queues.end);
        let rx_cpus = if rx_cpus.is_empty() { std::mem::take(&mut self.rx_cpus) } else { rx_cpus };
        self.rx_cpus = rx_cpus.into_iter().cycle().take(usize::from(queues)).collect();
        self.rx_queues = queues;
        let devices = (0..).zip(interfaces);
        self.rx_devices =
            devices.flat_map(|(device, of)| of.rx_queues.clone().map(move |_| device)).collect();
        self.device_names =
            interfaces.iter().filter_map(|of| InterfaceName::new(&of.name)).collect();
    }

    /// Whether flows can move to other CPUs although the settings stay the same.
    #[must_use]
    pub fn flows_can_move(&self) -> bool {
        self.policy.moves_flows() || !self.packet_rules.is_empty() || !self.pins()
    }

    /// Memory that is allocated before the first frame, in bytes: empty backlogs and all tables, including those
    /// of planned changes.
    fn memory_at_start(&self) -> u64 {
        let producers = self.rx_cpus.len() as u16;
        let mut config = self.steer_config();
        let mut tables = config.table_memory(producers);
        for (_, change) in &self.changes {
            if let Some(policy) = &change.policy {
                config.policy = policy.clone();
            }
            config.sock_flow_entries = change.sock_flow_entries.unwrap_or(config.sock_flow_entries);
            config.flow_cnt = change.flow_cnt.or(config.flow_cnt);
            config.flow_limit = change.flow_limit.unwrap_or(config.flow_limit);
            if let Some(rules) = &change.packet_rules {
                config.packet_rules.clone_from(rules);
            }
            tables = tables.saturating_add(config.table_memory(producers));
        }
        let backlogs = self.workers().len() as u64 * u64::from(producers);
        tables.saturating_add(self.empty_backlog_memory() * backlogs)
    }

    /// Memory of an empty backlog in bytes: the descriptors, and a queue of blocks beside each ring.
    fn empty_backlog_memory(&self) -> u64 {
        let largest = self.largest_backlog();
        u64::from(largest.next_power_of_two()) * 16 + u64::from(largest) * 8
    }

    /// Memory of full backlogs in bytes: the descriptors, and frames of 1536 bytes.
    #[must_use]
    pub fn backlog_memory(&self) -> u64 {
        let backlogs = self.workers().len() as u64;
        // Full backlogs of full-sized Ethernet frames, limited to the most memory that frames may take.
        let frames = (u64::from(self.max_backlog) * 1536 * backlogs)
            .min(BlockPool::most_memory(backlogs as usize) as u64);
        (self.empty_backlog_memory() * backlogs + frames) * self.rx_cpus.len() as u64
    }

    /// The limit that the backlogs are created for.
    pub(crate) fn largest_backlog(&self) -> u32 {
        let planned = self.changes.iter().filter_map(|(_, change)| change.max_backlog);
        planned.chain([self.largest_backlog, self.max_backlog]).max().unwrap_or(0)
    }

    /// The configuration that decisions depend on, with every CPU that gets a worker.
    #[must_use]
    pub fn steer_config(&self) -> SteerConfig {
        let possible = Some(self.workers());
        SteerConfig { possible, ..self.steer_config_without_standby() }
    }

    /// Replaces the settings by those of a running receive path, as they are after changes.
    pub fn steer_by(&mut self, now: SteerConfig) {
        self.policy = now.policy;
        self.cpus = now.cpus;
        self.packet_rules = now.packet_rules;
        self.rps_maps = now.rps_maps;
        self.fallback = now.fallback;
        self.rfs_cpus = now.rfs_cpus;
        self.sock_flow_entries = now.sock_flow_entries;
        self.flow_cnt = now.flow_cnt;
        self.flow_limit = now.flow_limit;
    }

    fn steer_config_without_standby(&self) -> SteerConfig {
        let receiving = |queue: u16| self.rx_cpus[usize::from(queue) % self.rx_cpus.len()];
        let receiving = match self.rx_cpus.len() {
            0 => Vec::new(),
            _ => (0..self.rx_queues).map(receiving).collect(),
        };
        SteerConfig {
            packet_rules: self.packet_rules.clone(),
            inner: self.dissect.inner,
            rps_maps: self.rps_maps.clone(),
            fallback: self.fallback,
            rfs_cpus: self.rfs_cpus.clone(),
            devices: self.rx_devices.clone(),
            device_names: self.device_names.clone(),
            sock_flow_entries: self.sock_flow_entries,
            flow_cnt: self.flow_cnt,
            flow_limit: self.flow_limit,
            ..SteerConfig::new(self.policy.clone(), self.cpus.clone(), receiving)
        }
    }

    /// The place where the settings of a running receive path are published.
    pub(crate) fn switch(&self) -> Result<Switch, ConfigError> {
        let plan = Plan::new(&self.steer_config(), self.rx_cpus.len() as u16)?;
        Ok(Switch::new(plan, self.max_backlog, self.largest_backlog()))
    }

    /// Checks everything that can be checked before a receive path is started.
    ///
    /// # Errors
    /// [`PipelineError`] when settings contradict each other or are out of range.
    pub fn check(&self) -> Result<(), PipelineError> {
        if self.rx_cpus.is_empty() || self.rx_cpus.len() > usize::from(MAX_RX_QUEUES) {
            return Err(PipelineError::RxThreads(self.rx_cpus.len()));
        }
        if self.max_backlog == 0 || self.max_backlog > MAX_BACKLOG {
            return Err(PipelineError::Backlog(self.max_backlog));
        }
        if self.largest_backlog() > MAX_BACKLOG {
            return Err(PipelineError::Backlog(self.largest_backlog()));
        }
        if self.batch == 0 || self.batch > MAX_BATCH {
            return Err(PipelineError::Batch(self.batch));
        }
        if let Some(tick) = self.tick.filter(|tick| !TICKS.contains(tick)) {
            return Err(PipelineError::Tick(tick));
        }
        self.steer_config().check()?;
        let bytes = self.memory_at_start();
        if !memory::is_available(bytes + memory::RESERVE) {
            return Err(PipelineError::Memory(bytes));
        }
        if !self.changes.is_empty() {
            let trial = self.switch()?;
            for (number, (when, change)) in (1..).zip(&self.changes) {
                let is_late =
                    self.changes[..number - 1].iter().any(|(other, _)| other.is_after(*when));
                if is_late {
                    return Err(PipelineError::ChangeOrder(number));
                }
                trial.change(change).map_err(|why| PipelineError::Change(number, why))?;
            }
        }
        Ok(())
    }
}

/// Why a receive path can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The settings of the policy contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A planned change is invalid; holds its number, from 1.
    #[error("planned change {0} is impossible")]
    Change(usize, #[source] ChangeError),
    /// A planned change is due before the one ahead of it; holds its number, from 1.
    #[error(
        "planned change {0} is due before the one ahead of it; put them in the order of their times"
    )]
    ChangeOrder(usize),
    /// There is no RX thread, or there are too many.
    #[error("{0} RX threads are configured; there can be 1 to {MAX_RX_QUEUES}")]
    RxThreads(usize),
    /// The backlog limit is out of range.
    #[error("a backlog limit of {0} packets is out of range; it can be 1 to {MAX_BACKLOG}")]
    Backlog(u32),
    /// The batch length is out of range.
    #[error("a batch of {0} packets is out of range; it can be 1 to {MAX_BATCH}")]
    Batch(usize),
    /// The interval of ticks is out of range.
    #[error("a tick every {0:?} is out of range; it can be every millisecond to every hour")]
    Tick(Duration),
    /// The speed of a recording is out of range.
    #[error("a speed of {0} times the recorded one is out of range; it must be finite and above 0")]
    Speed(f64),
    /// The number of sources differs from the number of RX threads.
    #[error("{0} sources are given for {1} RX threads; each thread needs one")]
    Sources(usize, usize),
    /// The memory for the start cannot be allocated; holds the number of bytes.
    #[error(
        "backlogs and tables need {:.2} GiB of memory, which can't be allocated; lower max-backlog, flow-cnt or \
         sock-flow-entries, or use fewer CPUs or RX threads",
        *.0 as f64 / f64::from(1 << 30)
    )]
    Memory(u64),
    /// Memory ran out while frames were received; holds the number of packets received.
    #[error(
        "memory ran out after {0} packets; lower max-backlog or the number of flows distinguished, or raise the limit \
         of memory (ulimit -v)"
    )]
    OutOfMemory(u64),
    /// A worker thread could not be started.
    #[error("can't start a worker thread: {0}; use fewer CPUs or raise the limit of threads")]
    Thread(#[from] std::io::Error),
}
