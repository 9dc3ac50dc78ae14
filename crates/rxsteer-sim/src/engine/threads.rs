//! Applications: threads that read packets, where they run, and what they answer.

use super::World;
use super::packet::{Packet, Role, float_ns, whole_ns};
use crate::scenario::{Load, Placement};
use rand::RngExt;
use rand::seq::{IteratorRandom, SliceRandom};
use rand_distr::{Distribution, Exp1};
use rxsteer_core::CpuId;
use std::collections::VecDeque;

/// The most packets that wait for a thread: a socket's buffer.
const SOCKET_LIMIT: usize = 1000;

/// A thread of an application.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The CPU where the thread runs or last ran.
    pub(crate) cpu: u16,
    /// The CPU where the thread began.
    home: u16,
    is_asleep: bool,
    /// The packets that the thread has to read.
    queue: VecDeque<Packet>,
    /// The packet that the thread works on, and the remaining cost.
    current: Option<(Packet, f64)>,
}

impl Thread {
    pub(crate) fn new(cpu: u16) -> Thread {
        Thread { cpu, home: cpu, is_asleep: true, queue: VecDeque::new(), current: None }
    }

    /// The packets that the thread has to read or works on.
    pub(crate) fn packets(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.is_asleep
    }
}

impl World<'_> {
    /// Passes a packet that was processed on `cpu` to the thread. Returns whether there was room.
    pub(crate) fn give(&mut self, thread: u32, cpu: u16, mut packet: Packet) -> bool {
        let entry = &mut self.threads[thread as usize];
        if entry.queue.len() >= SOCKET_LIMIT {
            return false;
        }
        packet.cpu = cpu;
        entry.queue.push_back(packet);
        if entry.is_asleep {
            entry.is_asleep = false;
            let target = self.place(thread, cpu);
            self.threads[thread as usize].cpu = target;
            self.put(thread, target);
        }
        true
    }

    /// Lets a thread that is awake run on `cpu`, or wait for it.
    fn put(&mut self, thread: u32, cpu: u16) {
        let state = &mut self.cpus[usize::from(cpu)];
        if state.running.is_none() {
            state.running = Some(thread);
            state.ran_ns = 0.0;
        } else {
            state.run_queue.push_back(thread);
        }
        self.wake(cpu, self.now);
    }

    /// The CPU for a thread that `waker` wakes.
    fn place(&mut self, thread: u32, waker: u16) -> u16 {
        let Thread { cpu, home, .. } = self.threads[thread as usize];
        let placement = self.scenario.scheduler.placement;
        let free = |cpu: u16| self.allows(cpu) && self.cpus[usize::from(cpu)].is_free_of_threads();
        match placement {
            Placement::Pinned if self.allows(home) => return home,
            Placement::Waker if free(waker) => return waker,
            _ if free(cpu) => return cpu,
            _ => {}
        }
        // An idle CPU that shares the cache, or else any idle CPU, or else the thread's last CPU.
        let near = self.cpus[usize::from(cpu)].cache;
        let found = self
            .any_free(|world, cpu| world.cpus[usize::from(cpu)].cache == near)
            .or_else(|| self.any_free(|_, _| true));
        found.unwrap_or_else(|| if self.allows(cpu) { cpu } else { self.least_loaded(waker) })
    }

    /// Whether threads may run on `cpu`.
    fn allows(&self, cpu: u16) -> bool {
        self.cpus[usize::from(cpu)].online
            && CpuId::new(cpu).is_some_and(|id| self.scenario.scheduler.cpus.contains(id))
    }

    /// A random one of the CPUs that have no thread and that `is_wanted` accepts. All are equally likely, so that
    /// results do not depend on the numbers of CPUs.
    fn any_free(&mut self, is_wanted: impl Fn(&World<'_>, u16) -> bool) -> Option<u16> {
        let free = |world: &World<'_>, cpu: u16| {
            let state = &world.cpus[usize::from(cpu)];
            state.online && state.is_free_of_threads() && is_wanted(world, cpu)
        };
        let cpus = || self.scenario.scheduler.cpus.iter().map(CpuId::get);
        let count = cpus().filter(|cpu| free(self, *cpu)).count();
        let chosen = if count > 1 { self.rng.random_range(0..count) } else { 0 };
        let mut cpus = self.scenario.scheduler.cpus.iter().map(CpuId::get);
        cpus.by_ref().filter(|cpu| free(self, *cpu)).nth(chosen)
    }

    /// A CPU with the fewest threads among those that threads may run on; `else_cpu` if none is online.
    fn least_loaded(&mut self, else_cpu: u16) -> u16 {
        let threads = |cpu: u16| {
            let cpu = &self.cpus[usize::from(cpu)];
            cpu.run_queue.len() + usize::from(cpu.running.is_some())
        };
        let cpus = || self.scenario.scheduler.cpus.iter().map(CpuId::get);
        let online = || cpus().filter(|cpu| self.cpus[usize::from(*cpu)].online);
        let Some(least) = online().map(threads).min() else { return else_cpu };
        online().filter(|cpu| threads(*cpu) == least).choose(&mut self.rng).unwrap_or(else_cpu)
    }

    /// Moves waiting threads to CPUs that have no thread.
    pub(crate) fn balance(&mut self) {
        let waits = |cpu: &u16| !self.cpus[usize::from(*cpu)].run_queue.is_empty();
        let mut busy: Vec<u16> = (0..self.cpus.len() as u16).filter(waits).collect();
        busy.shuffle(&mut self.rng);
        for busy in busy {
            let Some(free) = self.any_free(|_, _| true) else { return };
            if let Some(thread) = self.cpus[usize::from(busy)].run_queue.pop_front() {
                self.threads[thread as usize].cpu = free;
                self.put(thread, free);
            }
        }
    }

    /// Takes a thread that waits for another CPU, for `cpu`, which has no thread left.
    fn take_waiting(&mut self, cpu: u16) -> Option<u32> {
        if !self.allows(cpu) {
            return None;
        }
        let longest =
            self.cpus.iter().map(|cpu| cpu.run_queue.len()).max().filter(|most| *most > 0)?;
        let busy = self.cpus.iter_mut().filter(|cpu| cpu.run_queue.len() == longest);
        let thread = busy.choose(&mut self.rng)?.run_queue.pop_front()?;
        self.threads[thread as usize].cpu = cpu;
        Some(thread)
    }

    /// Moves the threads of a CPU that went offline to other CPUs.
    pub(crate) fn evacuate_threads(&mut self, cpu: u16) {
        let state = &mut self.cpus[usize::from(cpu)];
        let running = state.running.take();
        let threads: Vec<u32> = running.into_iter().chain(state.run_queue.drain(..)).collect();
        for thread in threads {
            let target = self.least_loaded(self.successor(cpu));
            self.threads[thread as usize].cpu = target;
            self.put(thread, target);
        }
    }

    /// Begins or continues the running thread's work on a packet. Returns what is left of its cost.
    pub(crate) fn run_thread(&mut self, cpu: u16, thread: u32) -> f64 {
        let entry = &mut self.threads[thread as usize];
        let (packet, mut left) = match entry.current.take() {
            Some(current) => current,
            None => {
                let packet = entry.queue.pop_front().expect("a thread without packets sleeps");
                (packet, self.service(cpu, &packet))
            }
        };
        if self.cpus[usize::from(cpu)].last_thread != thread {
            self.cpus[usize::from(cpu)].last_thread = thread;
            left += self.scenario.costs.context_switch;
        }
        self.threads[thread as usize].current = Some((packet, left));
        left
    }

    /// How long the running thread may run now: at most to the end of its slice. If softirqs wait because they have
    /// kept threads from running for too long, at most as long as they exceeded their time.
    pub(crate) fn turn_of_thread(&self, cpu: u16) -> u64 {
        let state = &self.cpus[usize::from(cpu)];
        let scheduler = &self.scenario.scheduler;
        let mut most = scheduler.slice_ns as f64 - state.ran_ns;
        let waits = |backlog: &u16| self.backlogs.of_cpu[usize::from(*backlog)].is_ready();
        if !state.polls.is_empty() || state.serves.iter().any(waits) {
            most = most.min(state.kept_off_ns - scheduler.softirq_ns as f64 + 1.0);
        }
        whole_ns(most).max(1)
    }

    /// The cost of serving this packet, for a thread on `cpu` that has just read it.
    fn service(&mut self, cpu: u16, packet: &Packet) -> f64 {
        let costs = &self.scenario.costs;
        let flow = &self.flows[packet.flow as usize];
        if self.follows_applications {
            self.plan.sock_flows().record(flow.hash, CpuId::new(cpu).unwrap_or(CpuId::NONE));
        }
        let miss = self.miss(packet.cpu, cpu);
        let traffic = usize::from(flow.traffic);
        miss + match &self.scenario.traffic[traffic].load {
            Load::Requests(requests) => {
                let factor: f64 =
                    if requests.service_exponential { Exp1.sample(&mut self.rng) } else { 1.0 };
                requests.service * factor + costs.transmit
            }
            Load::Constant(constant) => constant.application,
            Load::Recorded(recorded) => recorded.application,
            Load::Stream(stream) => {
                stream.application + costs.transmit / f64::from(stream.packets_per_ack)
            }
        }
    }

    /// The thread has run until now: to the end of its work on a packet, or to an interrupt.
    pub(crate) fn thread_ran(&mut self, cpu: u16, thread: u32) {
        let index = usize::from(cpu);
        let current = self.cpus[index].current;
        let ran_ns = float_ns(current.lasted_ns(self.now));
        let entry = &mut self.threads[thread as usize];
        if let Some((packet, _)) = entry.current.take() {
            if self.now < current.complete_ns {
                let left = (current.all() - ran_ns / current.ns_per_cost).max(0.0);
                entry.current = Some((packet, left));
            } else {
                self.served(&packet);
            }
        }
        let entry = &mut self.threads[thread as usize];
        let is_done = entry.current.is_none() && entry.queue.is_empty();
        let state = &mut self.cpus[index];
        state.ran_ns += ran_ns;
        if is_done {
            entry.is_asleep = true;
            state.running = state.run_queue.pop_front();
            state.ran_ns = 0.0;
            if state.running.is_none() && self.scenario.scheduler.newidle {
                self.cpus[index].running = self.take_waiting(cpu);
            }
        } else if state.ran_ns >= self.scenario.scheduler.slice_ns as f64 {
            state.ran_ns = 0.0;
            if let Some(next) = state.run_queue.pop_front() {
                state.run_queue.push_back(thread);
                state.running = Some(next);
            }
        }
    }

    /// A thread has served this packet.
    fn served(&mut self, packet: &Packet) {
        self.account.ended += 1;
        match self.flows[packet.flow as usize].role {
            Role::Request(connection) => self.answer(connection, packet),
            Role::Data(connection) => {
                self.reached(packet, self.now);
                self.stream_data_came(connection, packet, self.now);
            }
            Role::Ack(_) | Role::Packet(_) => self.reached(packet, self.now),
        }
    }
}
