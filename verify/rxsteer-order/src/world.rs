//! The surroundings of the policy: backlogs, workers, applications, and the backlogs as `decide` sees them.

use crate::Guard;
use crate::backlog::{Backlog, Worker};
use crate::change::Shape;
use crate::flows::{Flows, List};
use crate::rng::SeededRng;
use crate::summary::Summary;
use crate::violation::Fault;
use rxsteer_core::{Backlogs, CpuId, DropReason, Refusal, SockFlowTable};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// The most packets that a worker takes at a time.
const LIST: u32 = 64;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: SeededRng,
    pub(crate) flows: Flows,
    pub(crate) workers: Vec<Worker>,
    /// Indexed by producer and CPU.
    pub(crate) backlogs: Vec<Backlog>,
    /// The desired CPUs of applications.
    pub(crate) socks: Arc<SockFlowTable>,
    pub(crate) summary: Summary,
    pub(crate) trace: Trace,
    /// A violation that a worker found.
    fault: Option<Fault>,
    cpus: Vec<CpuId>,
    /// By CPU id: the index in `cpus`.
    index_of: Vec<u8>,
    /// The most packets that wait in a backlog.
    limit: u32,
    /// The answer of a full backlog.
    full: Refusal,
    guard: Guard,
    /// How often workers and applications continue while a producer decides, in 256 queries.
    pub(crate) interference: u32,
    lists: u64,
}

/// The last events of one flow.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) flow: Option<u32>,
    pub(crate) keep: usize,
    pub(crate) lines: VecDeque<String>,
}

impl Trace {
    /// Notes an event of `flow`, or of all flows.
    pub(crate) fn note(&mut self, flow: Option<u32>, line: impl FnOnce() -> String) {
        if self.flow.is_some() && (flow.is_none() || flow == self.flow) {
            self.write(line());
        }
    }

    #[cold]
    fn write(&mut self, line: String) {
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

impl World {
    pub(crate) fn new(mut rng: SeededRng, shape: &Shape, guard: Guard, packets: u64) -> World {
        let cpus = shape.cpus.clone();
        let mut index_of = vec![u8::MAX; cpus[cpus.len() - 1].index() + 1];
        for (index, cpu) in (0..).zip(&cpus) {
            index_of[cpu.index()] = index;
        }
        let backlogs = usize::from(shape.producers) * cpus.len();
        // Near enough to the wrap for most backlogs to reach it.
        let near = (packets / backlogs as u64).clamp(1, 2000) as u32;
        let limit = 1 << rng.between(2, 8);
        let full = rng.pick(&[Refusal::Drop(DropReason::BacklogFull), Refusal::Wait]);
        World {
            flows: Flows::new(&mut rng, shape.queues, shape.producers),
            workers: (0..cpus.len())
                .map(|_| Worker { alive: true, hand: None, diligence: 256, stalled: 0 })
                .collect(),
            backlogs: (0..backlogs)
                .map(|backlog| Backlog::new(u32::MAX - rng.below(near), backlog % cpus.len()))
                .collect(),
            socks: Arc::new(SockFlowTable::new(1, cpus[0])),
            summary: Summary { runs: 1, ..Summary::default() },
            trace: Trace::default(),
            fault: None,
            index_of,
            limit,
            full,
            guard,
            interference: rng.pick(&[0, 2, 16, 64]),
            lists: 0,
            rng,
            cpus,
        }
    }

    /// The index of `cpu` among the possible ones.
    pub(crate) fn index(&self, cpu: CpuId) -> Option<usize> {
        let index = self.index_of.get(cpu.index()).copied().map(usize::from);
        index.filter(|index| *index < self.cpus.len())
    }

    /// The backlog from `producer` to the CPU.
    pub(crate) fn backlog(&self, producer: u16, cpu: CpuId) -> Option<usize> {
        Some(usize::from(producer) * self.cpus.len() + self.index(cpu)?)
    }

    /// The violation that was found since the last call.
    pub(crate) fn found(&mut self) -> Result<(), Fault> {
        self.fault.take().map_or(Ok(()), Err)
    }

    fn check(&mut self, found: Result<(), Fault>) {
        // The first violation is the most informative.
        if let (Err(fault), None) = (found, &self.fault) {
            self.fault = Some(fault);
        }
    }

    /// One turn of a random worker.
    pub(crate) fn step(&mut self) {
        let worker = self.rng.below(self.workers.len() as u32) as usize;
        let state = &mut self.workers[worker];
        if !state.alive {
            return;
        }
        if state.stalled > 0 {
            state.stalled -= 1;
            return;
        }
        let diligence = state.diligence;
        let hand = state.hand;
        if diligence < 256 && !self.rng.chance(diligence) {
            return;
        }
        match hand {
            None => self.take_some(worker),
            Some((backlog, _)) => {
                let mut count = self.backlogs[backlog].in_progress() as u32;
                // Sometimes it completes only a part.
                if self.rng.chance(48) {
                    count = self.rng.between(1, count);
                }
                self.complete(worker, count, false);
            }
        }
    }

    /// The worker takes a list from one of its backlogs, if there is one.
    fn take_some(&mut self, worker: usize) {
        let backlogs = self.backlogs.len();
        let from = self.rng.below(backlogs as u32) as usize;
        let mine = |backlog: &usize| {
            self.backlogs[*backlog].worker == worker && self.backlogs[*backlog].ready() > 0
        };
        let Some(backlog) = (from..backlogs).chain(0..from).find(mine) else { return };
        let most = 1 << self.rng.below(LIST.ilog2() + 1);
        let count = self.rng.between(1, most).min(self.backlogs[backlog].ready() as u32);
        self.take(worker, backlog, count as usize);
    }

    fn take(&mut self, worker: usize, backlog: usize, count: usize) {
        self.lists += 1;
        let list = List { id: self.lists, cpu: self.cpus[worker] };
        self.workers[worker].hand = Some((backlog, list));
        let mut found = Ok(());
        for packet in self.backlogs[backlog].take(count) {
            self.trace.note(Some(packet.flow), || {
                format!("packet {} begins on CPU {}, in list {}", packet.number, list.cpu, list.id)
            });
            found = found.and(self.flows.begin(packet, list));
        }
        self.check(found);
    }

    /// The worker completes the first `count` packets in hand. If it dies, they are `lost`, and still count as
    /// completed.
    fn complete(&mut self, worker: usize, count: u32, lost: bool) {
        let Some((backlog, list)) = self.workers[worker].hand else { return };
        for _ in 0..count {
            let Some((packet, wrapped)) = self.backlogs[backlog].complete() else { break };
            let word = if lost { "lost" } else { "completed" };
            self.trace.note(Some(packet.flow), || {
                format!("packet {} is {word} on CPU {}", packet.number, list.cpu)
            });
            let ended = self.flows.complete(packet);
            self.check(ended);
            self.summary.wraps += u64::from(wrapped);
            let count = if lost { &mut self.summary.lost } else { &mut self.summary.completed };
            *count += 1;
        }
        if self.backlogs[backlog].in_progress() == 0 {
            self.workers[worker].hand = None;
        }
    }

    fn complete_all(&mut self, worker: usize, lost: bool) {
        if let Some((backlog, _)) = self.workers[worker].hand {
            self.complete(worker, self.backlogs[backlog].in_progress() as u32, lost);
        }
    }

    /// Every worker continues until nothing is under way.
    pub(crate) fn drain(&mut self) {
        for worker in 0..self.workers.len() {
            self.complete_all(worker, false);
        }
        let from = self.rng.below(self.backlogs.len() as u32) as usize;
        for backlog in (from..self.backlogs.len()).chain(0..from) {
            let worker = self.backlogs[backlog].worker;
            while self.backlogs[backlog].ready() > 0 {
                self.take(worker, backlog, self.backlogs[backlog].ready().min(LIST as usize));
                self.complete_all(worker, false);
            }
        }
    }

    /// Moves or ends some applications.
    pub(crate) fn applications_move(&mut self, most: u32) {
        let producers = self.backlogs.len() / self.cpus.len();
        for _ in 0..self.rng.between(1, most) {
            let producer = self.rng.below(producers as u32) as usize;
            let flow = self.flows.pick(&mut self.rng, producer);
            let hash = self.flows.get(flow).hash;
            if self.rng.chance(32) {
                self.socks.forget(hash);
            } else {
                let cpu = self.rng.pick(&self.cpus);
                self.socks.record(hash, cpu);
                self.trace.note(Some(flow), || format!("its application goes to CPU {cpu}"));
            }
            self.summary.records += 1;
        }
    }

    /// A worker dies, and others take over its backlogs. One worker always stays. Returns whether one died.
    pub(crate) fn lose_cpu(&mut self) -> bool {
        let worker = self.rng.below(self.workers.len() as u32) as usize;
        if !self.workers[worker].alive || self.workers.iter().filter(|w| w.alive).count() < 2 {
            return false;
        }
        let lost = self.rng.chance(128);
        self.trace.note(None, || format!("the worker of CPU {} dies", self.cpus[worker]));
        self.complete_all(worker, lost);
        self.workers[worker].alive = false;
        let others: Vec<usize> =
            (0..self.workers.len()).filter(|other| self.workers[*other].alive).collect();
        for backlog in &mut self.backlogs {
            if backlog.worker == worker {
                backlog.worker = self.rng.pick(&others);
            }
        }
        self.summary.cpu_losses += 1;
        true
    }

    /// A CPU comes back, and its worker takes its backlogs back. Returns whether one came back.
    pub(crate) fn return_cpu(&mut self) -> bool {
        let worker = self.rng.below(self.workers.len() as u32) as usize;
        if self.workers[worker].alive {
            return false;
        }
        self.trace.note(None, || format!("the worker of CPU {} is back", self.cpus[worker]));
        for backlog in (worker..self.backlogs.len()).step_by(self.cpus.len()) {
            let before = self.backlogs[backlog].worker;
            if self.workers[before].hand.is_some_and(|(in_progress, _)| in_progress == backlog) {
                // The worker that began a list finishes it.
                self.complete_all(before, false);
            }
            self.backlogs[backlog].worker = worker;
        }
        self.workers[worker].alive = true;
        self.summary.cpu_returns += 1;
        true
    }

    /// Workers and applications continue while a producer decides.
    #[inline]
    fn interfere(&mut self) {
        if self.interference > 0 && self.rng.chance(self.interference) {
            if self.rng.chance(224) { self.step() } else { self.applications_move(1) }
        }
    }
}

/// The backlogs as one producer sees them.
pub(crate) struct View<'world> {
    pub(crate) world: &'world mut World,
    pub(crate) producer: u16,
}

impl View<'_> {
    /// The backlog to `cpu`; a fault if there cannot be one.
    #[inline]
    fn backlog(&mut self, producer: u16, cpu: CpuId) -> Option<&mut Backlog> {
        match self.world.backlog(producer, cpu) {
            Some(backlog) => self.world.backlogs.get_mut(backlog),
            None => {
                self.world.check(Err(Fault::NotPossible(cpu)));
                None
            }
        }
    }
}

impl Backlogs for View<'_> {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        self.world.interfere();
        let (limit, full) = (self.world.limit, self.world.full);
        match self.backlog(self.producer, cpu) {
            None => Err(Refusal::Drop(DropReason::WorkerLost)),
            Some(backlog) if backlog.waiting() >= limit => Err(full),
            Some(backlog) => Ok(backlog.reserve()),
        }
    }

    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool {
        self.world.interfere();
        let guard = self.world.guard;
        let Some(backlog) = self.backlog(producer, cpu) else { return true };
        let done = match guard {
            Guard::On => backlog.completed(),
            Guard::HeadAtDequeue => backlog.dequeued(),
            Guard::Off => return true,
        };
        done.wrapping_sub(position.wrapping_add(1)) as i32 >= 0
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.world
            .backlog(self.producer, cpu)
            .map_or(0, |backlog| self.world.backlogs[backlog].tail())
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        self.world.interfere();
        let limit = self.world.limit;
        (self.backlog(self.producer, cpu).map_or(0, |backlog| backlog.waiting()), limit)
    }

    fn producer(&self) -> u16 {
        self.producer
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("producer", &self.producer).finish_non_exhaustive()
    }
}
