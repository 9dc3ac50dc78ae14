//! The whole receive path: configuration, start, end.
//!
//! ```text
//!  RX thread 0 ── Receiver ══ backlogs ══► worker CPU a ── handler
//!  RX thread 1 ── Receiver ══ backlogs ══► worker CPU b ── handler
//!                 (one backlog per RX thread and CPU)
//! ```

use crate::backlog::{BacklogReceiver, BacklogSender, backlog};
use crate::backlogs::{BacklogSet, MIN_PAUSE};
use crate::block::{Block, BlockPool};
use crate::change::{ChangeError, FlowRecorder, Schedule, SteerChange, Switch};
use crate::clock::Clock;
use crate::config::{PipelineConfig, PipelineError};
use crate::handler::Handler;
use crate::order_tracker::{OrderCheck, OrderTracker, progress_tables};
use crate::pace::{Pace, Speed};
use crate::packet_clock::PacketClock;
use crate::rebalance::Rebalancing;
use crate::receiver::{Batch, Receiver};
use crate::report::Report;
use crate::rx_report::{RxProgress, RxReports};
use crate::source::Source;
use crate::ticks::Ticks;
use crate::worker::{Worker, WorkerReport};
use crate::worker_group::{WorkerGroup, WorkerProgress};
use rxsteer_core::{CpuId, CpuSet, DropReason, PacketRule, SteerConfig, Steering};
use rxsteer_packet::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A receive path with running workers, until [`Pipeline::finish`].
///
/// If it is dropped instead, the handlers and the report are lost. The workers end when all receivers are finished or
/// dropped and every packet is processed.
pub struct Pipeline<H> {
    /// The CPUs that packets are steered to, unlike those that only receive.
    steered_to: CpuSet,
    group: Arc<WorkerGroup>,
    switch: Arc<Switch>,
    workers: Vec<JoinHandle<WorkerReport<H>>>,
    reports: Arc<RxReports>,
}

/// Controls a running receive path from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    group: Arc<WorkerGroup>,
    switch: Arc<Switch>,
}

impl Control {
    /// The rules before the policy, and how many packets each has matched since it was set.
    #[must_use]
    pub fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        self.switch.see().value().plan.rule_hits()
    }

    /// Changes the steering while packets flow: the whole change takes effect, or nothing. Each RX thread adopts the
    /// change before its next batch, or when its source has no frames. A flow moves when its packets in flight are
    /// processed. After the end of the pipeline a change succeeds without effect.
    ///
    /// # Errors
    /// [`ChangeError`] if the resulting settings would be impossible. Then nothing has changed.
    pub fn change(&self, change: &SteerChange) -> Result<(), ChangeError> {
        self.switch.change(change)?;
        // Sleeping workers wake up and release tables that were replaced.
        self.group.wake_all();
        Ok(())
    }

    /// A recorder of where applications run, for `rfs`. Any thread can use it.
    #[must_use]
    pub fn recorder(&self) -> FlowRecorder {
        FlowRecorder::new(self.switch.clone())
    }

    /// The present steering settings, and how many packets may wait per RX thread and CPU.
    #[must_use]
    pub fn settings(&self) -> (SteerConfig, u32) {
        let seen = self.switch.see();
        (seen.value().plan.config().clone(), seen.value().max_backlog)
    }

    /// The number of changes of settings so far, both planned and by [`Control::change`]. An RX thread has adopted the
    /// last change once its [`RxProgress::changes`] is as high.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.switch.see().value().changes
    }

    /// The counts of the workers, by CPU.
    #[must_use]
    pub fn workers(&self) -> Vec<Arc<WorkerProgress>> {
        self.group.slots.iter().map(|slot| slot.progress.clone()).collect()
    }

    /// Stops the worker of `cpu`, like a CPU that goes offline. Another worker processes the waiting packets in order. A
    /// flow is steered to another CPU once it has no packets in flight. The worker does not come back. Returns whether
    /// the pipeline has a worker for this CPU, running or not.
    pub fn stop_worker(&self, cpu: CpuId) -> bool {
        let Some(slot) = self.group.slots.iter().find(|slot| slot.cpu == cpu) else { return false };
        // ORDER: Relaxed; a request without data. The wake-up below makes it noticed.
        slot.stop.store(true, Ordering::Relaxed);
        slot.sleeper.wake();
        true
    }

    /// Reports that the interface of `rx_queue` is gone: its waiting packets are dropped and counted
    /// (`interface_removed`).
    pub fn remove_rx_queue(&self, rx_queue: u16) {
        self.group.remove(rx_queue);
    }
}

impl<H: Handler> Pipeline<H> {
    /// Starts one worker per CPU, each with the handler that `handler` makes for it. Returns the receivers, one per RX
    /// thread, for the caller to feed.
    ///
    /// # Errors
    /// [`PipelineError`] if the configuration is impossible or a thread can't be started.
    pub fn start(
        config: &PipelineConfig,
        mut handler: impl FnMut(CpuId) -> H,
    ) -> Result<(Pipeline<H>, Vec<Receiver>), PipelineError> {
        config.check()?;
        let cpus = config.workers();
        let rx_threads = config.rx_cpus.len();
        let switch = Arc::new(config.switch()?);
        let group = Arc::new(WorkerGroup::new(&cpus, cpus.len() * rx_threads, config.rx_queues));
        let clock = Clock::start();
        let reports = Arc::new(RxReports::new(rx_threads));
        let shared = Shared { switch: &switch, group: &group, reports: &reports, clock };
        let (receivers, backlogs_by_cpu) = receivers(config, &cpus, &shared);
        let progress_tables = config.check_order.then(|| progress_tables(rx_threads));
        let pin = config.pins();
        let steered_to = config.steered_to();
        let mut pipeline = Pipeline {
            steered_to,
            group: group.clone(),
            switch: switch.clone(),
            workers: Vec::new(),
            reports,
        };
        // All handlers are made before the first thread starts: if `handler` panics, no thread waits for the others.
        let handlers: Vec<H> = group.slots.iter().map(|slot| handler(slot.cpu)).collect();
        for ((slot, backlogs), handler) in group.slots.iter().zip(backlogs_by_cpu).zip(handlers) {
            let worker = Worker {
                idle_polls: idle_polls(config, slot.cpu, pin),
                measures: config.measure_load,
                ticks: config.tick.map(Ticks::new),
                slot: slot.clone(),
                group: group.clone(),
                backlogs,
                handler,
                clock,
                check: progress_tables.clone().map(OrderCheck::new),
                pin,
                recorder: FlowRecorder::new(switch.clone()),
                switch: switch.clone(),
                options: config.dissect,
            };
            let thread = std::thread::Builder::new()
                .name(format!("rxsteer/{}", slot.cpu))
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

    /// Ends the threads that were started, if a worker could not be. Without receivers all backlogs are closed, and those
    /// of the missing workers are marked as finished.
    fn abandon(
        self,
        receivers: Vec<Receiver>,
        missing_backlogs: usize,
        error: std::io::Error,
    ) -> PipelineError {
        drop(receivers);
        for _ in 0..missing_backlogs {
            self.group.backlog_finished();
        }
        for worker in self.workers {
            // A worker that processed nothing has nothing to report.
            let _ = worker.join();
        }
        PipelineError::Thread(error)
    }

    /// A handle to control the running receive path.
    #[must_use]
    pub fn control(&self) -> Control {
        Control { group: self.group.clone(), switch: self.switch.clone() }
    }

    /// Waits until everything received is processed, and returns the report. Every receiver must have ended before, by
    /// [`Receiver::finish`] or by being dropped: until then the workers wait for its packets.
    ///
    /// # Errors
    /// [`StillReceiving`], immediately, if a receiver is left. It holds the pipeline.
    pub fn finish(self) -> Result<Report<H>, StillReceiving<H>> {
        let receivers = self.reports.receiving();
        if receivers > 0 {
            return Err(StillReceiving { pipeline: self, receivers });
        }
        Ok(self.join())
    }

    fn join(self) -> Report<H> {
        let mut workers = Vec::new();
        for worker in self.workers {
            match worker.join() {
                Ok(report) => workers.push(report),
                // A worker catches its handler's panics, so this panic is a bug of rxsteer.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // No worker was left to take these backlogs over: the waiting packets are lost, and counted.
        for mut backlog in
            self.group.take_over().into_iter().flat_map(|abandoned| abandoned.backlogs)
        {
            let mut lost = 0;
            while !backlog.is_finished() {
                lost += backlog.discard();
                std::thread::yield_now();
            }
            if let Some(slot) = self.group.slots.iter().find(|slot| slot.cpu == backlog.cpu) {
                slot.progress.drops.add(DropReason::WorkerLost, lost);
            }
        }
        let mut report = Report::new(self.reports.take(), workers, &self.steered_to);
        let last = self.switch.see();
        report.rules = last.value().plan.rule_hits();
        report.changes_made = last.value().changes as usize;
        report
    }
}

/// The pipeline can't be finished yet, since a receiver is left.
pub struct StillReceiving<H> {
    /// The pipeline, unchanged.
    pub pipeline: Pipeline<H>,
    /// Receivers that have neither been finished nor dropped.
    pub receivers: usize,
}

impl<H> std::fmt::Debug for StillReceiving<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StillReceiving").field("receivers", &self.receivers).finish_non_exhaustive()
    }
}

impl<H> std::fmt::Display for StillReceiving<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "receivers still in use: {}; the workers wait for their packets, so finish or drop them first",
            self.receivers
        )
    }
}

impl<H> std::error::Error for StillReceiving<H> {}

/// What all threads of a receive path share.
struct Shared<'a> {
    switch: &'a Arc<Switch>,
    group: &'a Arc<WorkerGroup>,
    reports: &'a Arc<RxReports>,
    clock: Clock,
}

/// The receivers, and for each CPU the worker's ends of its backlogs, own backlogs first.
fn receivers(
    config: &PipelineConfig,
    cpus: &CpuSet,
    shared: &Shared<'_>,
) -> (Vec<Receiver>, Vec<Vec<BacklogReceiver>>) {
    let mut backlog_of = vec![u16::MAX; cpus.highest().index() + 1].into_boxed_slice();
    for (index, cpu) in (0..).zip(cpus.iter()) {
        backlog_of[cpu.index()] = index;
    }
    let mut backlogs_by_cpu: Vec<Vec<BacklogReceiver>> = cpus.iter().map(|_| Vec::new()).collect();
    let threads = config.rx_cpus.len();
    let schedule = Arc::new(Schedule::new(&config.changes));
    let measured = if config.measure_load { &*shared.group.slots } else { &[] };
    let workers = measured.iter().map(|slot| slot.progress.clone()).collect();
    let rebalancing = Rebalancing::new(workers);
    let receivers = config.rx_cpus.iter().enumerate().map(|(thread, &queue_cpu)| {
        let mut backlogs: Vec<BacklogSender> = Vec::new();
        for (cpu, receiving_ends) in cpus.iter().zip(&mut backlogs_by_cpu) {
            let largest = config.largest_backlog();
            let own = cpu == queue_cpu;
            let (sender, receiver) = backlog(cpu, own, config.max_backlog, largest);
            backlogs.push(sender);
            receiving_ends.push(receiver);
        }
        let mut progress = RxProgress::default();
        progress.backlogs = backlogs.iter().map(|backlog| backlog.progress.clone()).collect();
        let symmetric = matches!(config.hasher, Hasher::Symmetric(_));
        let settings = shared.switch.see();
        let queues = (0..config.rx_queues).filter(|q| usize::from(*q) % threads == thread);
        Receiver {
            queue_cpu,
            steering: Steering::of_plan(settings.value().plan.clone(), queues),
            settings,
            switch: shared.switch.clone(),
            schedule: (!config.changes.is_empty()).then(|| schedule.clone()),
            rebalancing: rebalancing.clone(),
            balanced_ns: 0,
            hasher: config.hasher.clone(),
            dissect: config.dissect,
            order_tracker: config
                .check_order
                .then(|| OrderTracker::new(thread, config.dissect, symmetric)),
            batch: config.batch,
            pin: config.pins(),
            drains: false,
            clock: shared.clock,
            backlogs: BacklogSet {
                producer: thread as u16,
                batch: 1,
                touched: Vec::with_capacity(backlogs.len()),
                backlogs,
                backlog_of: backlog_of.clone(),
                own: backlog_of[queue_cpu.index()],
                own_unkicked: false,
                pause: MIN_PAUSE,
                full: 0,
                on_full: config.on_full,
                group: shared.group.clone(),
            },
            rx_queues: config.rx_queues,
            pool: BlockPool::new(cpus.len()),
            refused: Block::default(),
            scratch: Batch::new(),
            open: None,
            blocks_sealed: 0,
            block_number: 0,
            blocks_at_check: 0,
            packet_clock: PacketClock::default(),
            progress: Arc::new(progress),
            kernel_drops: 0,
            out_of_memory: false,
            reports: shared.reports.clone(),
        }
    });
    let receivers = receivers.collect();
    for backlogs in &mut backlogs_by_cpu {
        backlogs.sort_by_key(|backlog| !backlog.own);
    }
    (receivers, backlogs_by_cpu)
}

/// How often an idle worker polls for packets before it sleeps. To wake it costs the RX thread a system call, and 20 µs
/// until it runs. On a separate CPU it therefore polls for about that long. If it shares the CPU with a receiver,
/// polling would only keep the receiver from running.
fn idle_polls(config: &PipelineConfig, cpu: CpuId, pinned: bool) -> u32 {
    if pinned && !config.rx_cpus.contains(&cpu) { 2000 } else { 0 }
}

/// Runs `sources`, one per RX thread, through the receive path and returns the report: start, receive, finish.
///
/// `handler` makes each CPU's handler, on the calling thread and before any worker starts. `started` is called once
/// before the first frame, with the receivers (whose [`Receiver::progress`] any thread can read) and a [`Control`]; pass
/// `|_, _| {}` if neither is needed.
///
/// Setting `stop` ends receiving before the next block of frames. Packets that were received are still processed. Packets
/// of a live interface that the kernel still holds are not received. (The flag of a live source, such as
/// [`PacketOptions::stop`](crate::source::packet::PacketOptions::stop), ends it after these.) `run` also sets `stop` when
/// memory runs out. Nothing clears it: a run whose flag is set at the start receives nothing.
///
/// A handler that panics ends its worker, and is not an error of the run: its CPU's packets are dropped and counted, and
/// [`CpuReport::failure`](crate::CpuReport::failure) has the message.
///
/// # Errors
/// [`PipelineError`] if the configuration is impossible, a thread can't be started or memory runs out.
pub fn run<S: Source, H: Handler>(
    config: &PipelineConfig,
    sources: &mut [S],
    speed: Speed,
    stop: &AtomicBool,
    handler: impl FnMut(CpuId) -> H,
    started: impl FnOnce(&[Receiver], Control),
) -> Result<Report<H>, PipelineError> {
    speed.check()?;
    if sources.len() != config.rx_cpus.len() {
        return Err(PipelineError::Sources(sources.len(), config.rx_cpus.len()));
    }
    let (pipeline, receivers) = Pipeline::start(config, handler)?;
    started(&receivers, pipeline.control());
    let pace = &Pace::new(speed);
    std::thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .into_iter()
            .zip(sources)
            .map(|(mut receiver, source)| scope.spawn(move || receiver.run(source, pace, stop)))
            .collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    // Each thread has dropped its receiver.
    let report = pipeline.join();
    if report.out_of_memory {
        return Err(PipelineError::OutOfMemory(report.packets));
    }
    Ok(report)
}
