//! The whole receive path: configuration, start, end.
//!
//! ```text
//!  RX thread 0 ── Receiver ══ lanes ══► worker CPU a ── handler
//!  RX thread 1 ── Receiver ══ lanes ══► worker CPU b ── handler
//!                 (one lane per RX thread and CPU)
//! ```

use crate::block::{Block, BlockPool};
use crate::change::{ChangeError, FlowRecorder, Schedule, SteerChange, Switch, When};
use crate::clock::Clock;
use crate::handler::Handler;
use crate::lane::{LaneReceiver, lane};
use crate::lanes::Lanes;
use crate::ledger::{Ledger, OrderCheck, books};
use crate::pace::{Pace, Speed};
use crate::packet_clock::PacketClock;
use crate::receiver::{Batch, MAX_BATCH, OnFull, Receiver, RxReport};
use crate::report::Report;
use crate::source::Source;
use crate::sys;
use crate::team::Team;
use crate::worker::{Worker, WorkerReport};
use rxsteer_core::rfs::DEFAULT_SOCK_FLOW_ENTRIES;
use rxsteer_core::{
    ConfigError, CpuId, CpuSet, DropReason, MAX_RX_QUEUES, Plan, Policy, SteerConfig, Steering,
};
use rxsteer_packet::{DissectOptions, Hasher, SymmetricHash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Largest `max_backlog`: 16 MiB of descriptors per RX thread and CPU, beside the frames.
pub const MAX_BACKLOG: u32 = 1 << 20;

/// The kernel's `net.core.netdev_max_backlog` by default.
pub const DEFAULT_BACKLOG: u32 = 1000;

/// Packets decided on at once by default: as many as the kernel takes from a queue in one poll
/// (`dev_weight`).
pub const DEFAULT_BATCH: usize = 64;

/// Everything the receive path is told before it starts.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// Which rule picks the CPU.
    pub policy: Policy,
    /// The CPU map. Each of its CPUs gets a worker, and so does every other CPU a packet can go
    /// to.
    pub cpus: CpuSet,
    /// CPU maps of single RX queues, for policies that go by maps.
    pub rps_maps: Vec<(u16, CpuSet)>,
    /// How many RX queues there are.
    pub rx_queues: u16,
    /// For each RX queue its device, for `sparse`; queues beyond the end belong to device 0.
    pub rx_devices: Vec<u16>,
    /// CPUs that get a worker though nothing goes there yet: a [`Control::change`] may name them, and
    /// applications may run there. Those that `changes` name get one in any case.
    pub standby: Option<CpuSet>,
    /// Entries of the sock flow table, for `rfs`.
    pub sock_flow_entries: u32,
    /// Entries of each RX queue's flow table, for policies that remember flows; `None` for a number
    /// by how many queues there are ([`SteerConfig::flow_cnt`]).
    pub flow_cnt: Option<u32>,
    /// Buckets of the flow limit, where there is one.
    pub flow_limit: Option<u32>,
    /// The CPU each RX thread runs on; its length is the number of RX threads. RX queue `q` is
    /// received by thread `q % length`, whose CPU is the queue's default CPU.
    pub rx_cpus: Vec<CpuId>,
    /// The flow hash.
    pub hasher: Hasher,
    /// How far to look into frames.
    pub dissect: DissectOptions,
    /// Packets that may wait per RX thread and CPU, 1 to [`MAX_BACKLOG`].
    pub max_backlog: u32,
    /// Changes to make on the way, in this order; each at the first batch that begins when it is due.
    pub changes: Vec<(When, SteerChange)>,
    /// What a [`SteerChange`] may raise `max_backlog` to; memory is taken for so many. No more than
    /// `max_backlog` where this is less.
    pub largest_backlog: u32,
    /// Packets decided on at once, 1 to [`MAX_BATCH`]: the longest list that is handed over.
    pub batch: usize,
    /// What happens to a packet whose backlog is full.
    pub on_full: OnFull,
    /// Pin RX threads and workers to their CPUs, when this host has them all.
    pub pin: bool,
    /// Number every packet in its flow and check the order on the workers; also counts flows and
    /// moves. Costs a table lookup per packet.
    pub check_order: bool,
}

impl PipelineConfig {
    /// One RX queue received on the lowest CPU of `cpus`, the symmetric hash under a fresh random
    /// key, the kernel's backlog limit and poll weight, full backlogs drop, pinned, order unchecked.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet) -> PipelineConfig {
        PipelineConfig {
            policy,
            rx_cpus: vec![cpus.lowest()],
            cpus,
            rps_maps: Vec::new(),
            rx_queues: 1,
            rx_devices: Vec::new(),
            standby: None,
            sock_flow_entries: DEFAULT_SOCK_FLOW_ENTRIES,
            flow_cnt: None,
            flow_limit: None,
            hasher: Hasher::Symmetric(SymmetricHash::new(rand::random())),
            dissect: DissectOptions::default(),
            max_backlog: DEFAULT_BACKLOG,
            changes: Vec::new(),
            largest_backlog: 0,
            batch: DEFAULT_BATCH,
            on_full: OnFull::Drop,
            pin: true,
            check_order: false,
        }
    }

    /// Every CPU that gets a worker.
    #[must_use]
    pub fn workers(&self) -> CpuSet {
        // RX threads' CPUs too, even of those that receive no queue: their backlog is the local
        // one of a hand-off.
        let destinations = self.steer_config_without_standby().destinations();
        let planned = self.changes.iter().flat_map(|(_, change)| change.named_cpus());
        let standby = self.standby.iter().flat_map(CpuSet::iter).chain(planned);
        let all = destinations.iter().chain(self.rx_cpus.iter().copied()).chain(standby);
        CpuSet::new(all).unwrap_or(destinations)
    }

    /// The CPUs that packets are meant to be spread over: those of `cpus`, of maps and bindings.
    fn steered_to(&self) -> CpuSet {
        let maps = self.rps_maps.iter().flat_map(|(_, cpus)| cpus.iter());
        let named = self.cpus.iter().chain(maps).chain(self.policy.named_cpus());
        CpuSet::new(named).unwrap_or_else(|| self.cpus.clone())
    }

    /// Whether every CPU involved is there and may be used, so that threads can be pinned.
    #[must_use]
    pub fn fits_host(&self) -> bool {
        sys::allowed_cpus().is_some_and(|host| self.workers().iter().all(|cpu| host.contains(cpu)))
    }

    /// Memory that full backlogs take, in bytes: descriptors, and frames of 1536 bytes.
    #[must_use]
    pub fn backlog_memory(&self) -> u64 {
        let lanes = self.workers().len() as u64;
        let largest = self.largest_backlog();
        let descriptors = u64::from(largest.next_power_of_two()) * 16 * lanes;
        // Beside each ring a queue of blocks, 8 bytes an entry.
        let blocks = u64::from(largest) * 8 * lanes;
        // Full backlogs of full-sized Ethernet frames, within what frames may take at all.
        let frames = (u64::from(self.max_backlog) * 1536 * lanes)
            .min(BlockPool::most_memory(lanes as usize) as u64);
        (descriptors + blocks + frames) * self.rx_cpus.len() as u64
    }

    /// The limit that the backlogs are made for.
    fn largest_backlog(&self) -> u32 {
        let planned = self.changes.iter().filter_map(|(_, change)| change.max_backlog);
        planned.chain([self.largest_backlog, self.max_backlog]).max().unwrap_or(0)
    }

    fn steer_config(&self) -> SteerConfig {
        let possible = Some(self.workers());
        SteerConfig { possible, ..self.steer_config_without_standby() }
    }

    fn steer_config_without_standby(&self) -> SteerConfig {
        let receiving = |queue: u16| self.rx_cpus[usize::from(queue) % self.rx_cpus.len()];
        let receiving = match self.rx_cpus.len() {
            0 => Vec::new(),
            _ => (0..self.rx_queues).map(receiving).collect(),
        };
        SteerConfig {
            rps_maps: self.rps_maps.clone(),
            devices: self.rx_devices.clone(),
            sock_flow_entries: self.sock_flow_entries,
            flow_cnt: self.flow_cnt,
            flow_limit: self.flow_limit,
            ..SteerConfig::new(self.policy.clone(), self.cpus.clone(), receiving)
        }
    }

    /// Where a running receive path's settings are published.
    fn switch(&self) -> Result<Switch, ConfigError> {
        let plan = Plan::new(&self.steer_config(), self.rx_cpus.len() as u16)?;
        Ok(Switch::new(plan, self.max_backlog, self.largest_backlog()))
    }

    /// Whether a receive path can be started so; everything that can be told beforehand.
    ///
    /// # Errors
    /// [`PipelineError`], when the configuration contradicts itself or is out of range.
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
        self.steer_config().check()?;
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
pub enum PipelineError {
    /// The policy contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A planned change is impossible; holds which, from 1.
    #[error("planned change {0} is impossible")]
    Change(usize, #[source] ChangeError),
    /// A planned change is due before the one ahead of it; holds which, from 1.
    #[error(
        "planned change {0} is due before the one ahead of it; put them in the order of their times"
    )]
    ChangeOrder(usize),
    /// No RX thread, or too many.
    #[error("{0} RX threads are configured; there can be 1 to {MAX_RX_QUEUES}")]
    RxThreads(usize),
    /// The backlog limit is out of range.
    #[error("a backlog limit of {0} packets is out of range; it can be 1 to {MAX_BACKLOG}")]
    Backlog(u32),
    /// The batch length is out of range.
    #[error("a batch of {0} packets is out of range; it can be 1 to {MAX_BATCH}")]
    Batch(usize),
    /// There are more or fewer sources than RX threads.
    #[error("{0} sources are given for {1} RX threads; each thread needs one")]
    Sources(usize, usize),
    /// A worker thread could not be started.
    #[error("can't start a worker thread: {0}; use fewer CPUs or raise the limit of threads")]
    Thread(#[from] std::io::Error),
}

/// A receive path whose workers run.
pub struct Pipeline<H> {
    /// CPUs that packets are steered to, as against those that only receive.
    steered_to: CpuSet,
    team: Arc<Team>,
    switch: Arc<Switch>,
    workers: Vec<JoinHandle<WorkerReport<H>>>,
}

/// Controls a running receive path from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    team: Arc<Team>,
    switch: Arc<Switch>,
}

impl Control {
    /// Changes what packets are steered by while they flow: all of it, or nothing. Each RX thread
    /// takes the change before its next batch; a flow moves when its packets under way are
    /// processed.
    ///
    /// # Errors
    /// [`ChangeError`], when the result would be impossible. Nothing has changed then.
    pub fn change(&self, change: &SteerChange) -> Result<(), ChangeError> {
        self.switch.change(change)?;
        // Those that sleep let go of tables that were replaced.
        self.team.wake_all();
        Ok(())
    }

    /// Tells `rfs` where applications run, from any thread.
    #[must_use]
    pub fn recorder(&self) -> FlowRecorder {
        FlowRecorder::new(self.switch.clone())
    }

    /// Stops the worker of `cpu`, as a CPU that goes offline: another processes what waits there, in
    /// order, and as flows have nothing under way there any more they are steered to others. It does
    /// not come back. Says whether there was one.
    pub fn stop_worker(&self, cpu: CpuId) -> bool {
        let Some(seat) = self.team.seats.iter().find(|seat| seat.cpu == cpu) else { return false };
        // ORDER: Relaxed; a request without data. The wake-up below makes it noticed.
        seat.stop.store(true, Ordering::Relaxed);
        seat.sleeper.wake();
        true
    }

    /// The interface behind `rx_queue` is gone: packets of it that still wait are dropped and
    /// counted (`interface_removed`).
    pub fn remove_rx_queue(&self, rx_queue: u16) {
        self.team.remove(rx_queue);
    }
}

impl<H: Handler> Pipeline<H> {
    /// Starts one worker per CPU, each with the handler that `handler` makes for it, and returns
    /// the receivers, one per RX thread, for the caller to feed.
    ///
    /// # Errors
    /// [`PipelineError`], when the configuration is impossible or a thread can't be started.
    pub fn start(
        config: &PipelineConfig,
        mut handler: impl FnMut(CpuId) -> H,
    ) -> Result<(Pipeline<H>, Vec<Receiver>), PipelineError> {
        config.check()?;
        let cpus = config.workers();
        let rx_threads = config.rx_cpus.len();
        let switch = Arc::new(config.switch()?);
        let team = Arc::new(Team::new(&cpus, cpus.len() * rx_threads, config.rx_queues));
        let clock = Clock::start();
        let (receivers, lanes_by_cpu) = receivers(config, &switch, &cpus, &team, clock);
        let books = config.check_order.then(|| books(rx_threads));
        let pin = config.pin && config.fits_host();
        let steered_to = config.steered_to();
        let mut pipeline = Pipeline {
            steered_to,
            team: team.clone(),
            switch: switch.clone(),
            workers: Vec::new(),
        };
        // All of them before the first thread: should one panic, nobody waits for the others.
        let handlers: Vec<H> = team.seats.iter().map(|seat| handler(seat.cpu)).collect();
        for ((seat, lanes), handler) in team.seats.iter().zip(lanes_by_cpu).zip(handlers) {
            let worker = Worker {
                idle_looks: idle_looks(config, seat.cpu, pin),
                seat: seat.clone(),
                team: team.clone(),
                lanes,
                handler,
                clock,
                check: books.clone().map(OrderCheck::new),
                pin,
                recorder: FlowRecorder::new(switch.clone()),
                switch: switch.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("rxsteer/{}", seat.cpu))
                .spawn(move || worker.run());
            match thread {
                Ok(thread) => pipeline.workers.push(thread),
                Err(error) => {
                    let missing = cpus.len() - pipeline.workers.len();
                    return Err(pipeline.abandon(receivers, missing * rx_threads, error));
                }
            }
        }
        Ok((pipeline, receivers))
    }

    /// Ends what was started when a worker could not be: without receivers all lanes are closed,
    /// and those of workers that never came are done.
    fn abandon(
        self,
        receivers: Vec<Receiver>,
        missing_lanes: usize,
        error: std::io::Error,
    ) -> PipelineError {
        drop(receivers);
        for _ in 0..missing_lanes {
            self.team.lane_finished();
        }
        for worker in self.workers {
            // A worker that had nothing to do has nothing to say.
            let _ = worker.join();
        }
        PipelineError::Thread(error)
    }

    /// A handle to control the running receive path.
    #[must_use]
    pub fn control(&self) -> Control {
        Control { team: self.team.clone(), switch: self.switch.clone() }
    }

    /// Waits until everything received is processed, and reports. Every receiver must be finished
    /// (or be finished by another thread): the workers end when all lanes are closed and empty.
    #[must_use]
    pub fn finish(self, rx: &[RxReport]) -> Report<H> {
        let mut workers = Vec::new();
        for worker in self.workers {
            match worker.join() {
                Ok(report) => workers.push(report),
                // A worker catches its handler's panics; this one is our bug.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // Nobody was left to take these over: whatever waits is lost, and counted.
        for mut lane in self.team.adopt().into_iter().flat_map(|orphans| orphans.lanes) {
            let mut lost = 0;
            while !lane.is_finished() {
                lost += lane.discard();
                std::thread::yield_now();
            }
            if let Some(worker) = workers.iter_mut().find(|worker| worker.cpu == lane.cpu) {
                worker.drops.add(DropReason::WorkerLost, lost);
            }
        }
        Report::new(rx, workers, &self.steered_to)
    }
}

/// The receivers, and for each CPU the worker's ends of its lanes, own lanes first.
fn receivers(
    config: &PipelineConfig,
    switch: &Arc<Switch>,
    cpus: &CpuSet,
    team: &Arc<Team>,
    clock: Clock,
) -> (Vec<Receiver>, Vec<Vec<LaneReceiver>>) {
    let mut lane_of = vec![u16::MAX; cpus.highest().index() + 1].into_boxed_slice();
    for (index, cpu) in (0..).zip(cpus.iter()) {
        lane_of[cpu.index()] = index;
    }
    let mut lanes_by_cpu: Vec<Vec<LaneReceiver>> = cpus.iter().map(|_| Vec::new()).collect();
    let threads = config.rx_cpus.len();
    let schedule = Arc::new(Schedule::new(&config.changes));
    let receivers = config.rx_cpus.iter().enumerate().map(|(thread, &queue_cpu)| {
        let mut lanes = Vec::new();
        for (cpu, receiving_ends) in cpus.iter().zip(&mut lanes_by_cpu) {
            let largest = config.largest_backlog();
            let own = cpu == queue_cpu;
            let (sender, receiver) = lane(cpu, own, config.max_backlog, largest);
            lanes.push(sender);
            receiving_ends.push(receiver);
        }
        let symmetric = matches!(config.hasher, Hasher::Symmetric(_));
        let settings = switch.see();
        let queues = (0..config.rx_queues).filter(|q| usize::from(*q) % threads == thread);
        Receiver {
            queue_cpu,
            steering: Steering::of_plan(settings.value().plan.clone(), queues),
            settings,
            switch: switch.clone(),
            schedule: (!config.changes.is_empty()).then(|| schedule.clone()),
            hasher: config.hasher.clone(),
            dissect: config.dissect,
            ledger: config.check_order.then(|| Ledger::new(thread, config.dissect, symmetric)),
            batch: config.batch,
            pin: config.pin && config.fits_host(),
            clock,
            lanes: Lanes {
                producer: thread as u16,
                batch: 1,
                touched: Vec::with_capacity(lanes.len()),
                lanes,
                lane_of: lane_of.clone(),
                own: lane_of[queue_cpu.index()],
                own_unkicked: false,
                full: 0,
                on_full: config.on_full,
                team: team.clone(),
            },
            pool: BlockPool::new(cpus.len()),
            refused: Block::default(),
            scratch: Batch::new(),
            open: None,
            blocks_sealed: 0,
            packet_clock: PacketClock::default(),
            report: RxReport::default(),
            progress: Arc::default(),
        }
    });
    let receivers = receivers.collect();
    for lanes in &mut lanes_by_cpu {
        lanes.sort_by_key(|lane| !lane.own);
    }
    (receivers, lanes_by_cpu)
}

/// How often an idle worker looks before it sleeps. Waking it costs the RX thread a system call and
/// 20 µs until it runs, so on a CPU of its own it looks for about that long; where it shares the
/// CPU with a receiver, looking only keeps that from receiving.
fn idle_looks(config: &PipelineConfig, cpu: CpuId, pinned: bool) -> u32 {
    if pinned && !config.rx_cpus.contains(&cpu) { 2000 } else { 0 }
}

/// Runs `sources` (one per RX thread) through the receive path and reports: start, receive, finish.
///
/// `handler` makes each CPU's handler. Setting `stop` ends receiving early; what has been received
/// is still processed. `started` is called once before the first frame, with the receivers (whose
/// [`Receiver::progress`] can be watched) and a [`Control`]; `|_, _| {}` where neither is wanted.
///
/// # Errors
/// [`PipelineError`], when the configuration is impossible or a thread can't be started.
pub fn run<H: Handler>(
    config: &PipelineConfig,
    sources: &mut [Box<dyn Source>],
    speed: Speed,
    stop: &AtomicBool,
    handler: impl FnMut(CpuId) -> H,
    started: impl FnOnce(&[Receiver], Control),
) -> Result<Report<H>, PipelineError> {
    if sources.len() != config.rx_cpus.len() {
        return Err(PipelineError::Sources(sources.len(), config.rx_cpus.len()));
    }
    let (pipeline, receivers) = Pipeline::start(config, handler)?;
    started(&receivers, pipeline.control());
    let pace = &Pace::new(speed);
    let rx: Vec<RxReport> = std::thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .into_iter()
            .zip(sources)
            .map(|(mut receiver, source)| {
                scope.spawn(move || {
                    receiver.run(source.as_mut(), pace, stop);
                    receiver.finish()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    Ok(pipeline.finish(&rx))
}
