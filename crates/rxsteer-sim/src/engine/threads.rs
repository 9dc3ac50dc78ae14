//! Applications: threads that read packets, where they run, and what they answer.

use super::World;
use super::cpu::{CHUNK_NS, Item};
use super::packet::{Packet, Role};
use crate::scenario::{Load, Placement};
use rand_distr::{Distribution, Exp1};
use rxsteer_core::{CpuId, Verdict};
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

    /// The packets that the thread has to read or works on, without those of its CPU's present work.
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
    fn place(&self, thread: u32, waker: u16) -> u16 {
        let Thread { cpu, home, .. } = self.threads[thread as usize];
        let scheduler = &self.scenario.scheduler;
        let allowed = |cpu: u16| {
            self.cpus[usize::from(cpu)].online
                && CpuId::new(cpu).is_some_and(|id| scheduler.cpus.contains(id))
        };
        let free = |cpu: u16| allowed(cpu) && self.cpus[usize::from(cpu)].is_free_of_threads();
        match scheduler.placement {
            Placement::Pinned if allowed(home) => return home,
            Placement::Waker if free(waker) => return waker,
            _ if free(cpu) => return cpu,
            _ => {}
        }
        // An idle CPU that shares the cache, or else any idle CPU, or else the thread's last CPU.
        let near = self.cpus[usize::from(cpu)].cache;
        let candidates = || scheduler.cpus.iter().map(CpuId::get).filter(|cpu| free(*cpu));
        let mut found = candidates().find(|cpu| self.cpus[usize::from(*cpu)].cache == near);
        found = found.or_else(|| candidates().next());
        found.unwrap_or_else(|| if allowed(cpu) { cpu } else { self.least_loaded(waker) })
    }

    /// The CPU with the fewest threads among those that threads may run on; `else_cpu` if none is online.
    fn least_loaded(&self, else_cpu: u16) -> u16 {
        let cpus = self.scenario.scheduler.cpus.iter().map(CpuId::get);
        let online = cpus.filter(|cpu| self.cpus[usize::from(*cpu)].online);
        let threads = |cpu: &u16| {
            let cpu = &self.cpus[usize::from(*cpu)];
            cpu.run_queue.len() + usize::from(cpu.running.is_some())
        };
        online.min_by_key(threads).unwrap_or(else_cpu)
    }

    /// Moves waiting threads to CPUs that have no thread.
    pub(crate) fn balance(&mut self) {
        for busy in 0..self.cpus.len() {
            if self.cpus[busy].run_queue.is_empty() {
                continue;
            }
            let mut cpus = self.scenario.scheduler.cpus.iter().map(CpuId::get);
            let free = cpus.find(|cpu| {
                let cpu = &self.cpus[usize::from(*cpu)];
                cpu.online && cpu.is_free_of_threads()
            });
            let Some(free) = free else { return };
            if let Some(thread) = self.cpus[busy].run_queue.pop_front() {
                self.threads[thread as usize].cpu = free;
                self.put(thread, free);
            }
        }
    }

    /// Moves the threads of a CPU that went offline to other CPUs.
    pub(crate) fn evacuate_threads(&mut self, cpu: u16) {
        let state = &mut self.cpus[usize::from(cpu)];
        let running = state.running.take();
        let threads: Vec<u32> = running.into_iter().chain(state.run_queue.drain(..)).collect();
        for thread in threads {
            let target = self.least_loaded(self.heir(cpu));
            self.threads[thread as usize].cpu = target;
            self.put(thread, target);
        }
    }

    /// Begins a chunk of the running thread's work. Returns its cost.
    pub(crate) fn run_thread(&mut self, cpu: u16, thread: u32) -> f64 {
        let index = usize::from(cpu);
        let mut cost = 0.0;
        if self.cpus[index].last_thread != thread {
            self.cpus[index].last_thread = thread;
            cost += self.scenario.costs.context_switch;
        }
        let most = cost + CHUNK_NS * self.cpus[index].speed;
        let mut items = std::mem::take(&mut self.cpus[index].items);
        while cost < most {
            let entry = &mut self.threads[thread as usize];
            let (packet, left) = match entry.current.take() {
                Some(current) => current,
                None => match entry.queue.pop_front() {
                    Some(packet) => (packet, self.service(cpu, &packet)),
                    None => break,
                },
            };
            let entry = &mut self.threads[thread as usize];
            if cost + left <= most {
                cost += left;
                items.push(Item { packet, verdict: Verdict::default(), inline: false });
            } else {
                entry.current = Some((packet, left - (most - cost)));
                cost = most;
            }
        }
        self.cpus[index].items = items;
        cost
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

    /// Ends a chunk of the thread's work.
    pub(crate) fn thread_ran(&mut self, cpu: u16, thread: u32, ran_ns: f64) {
        let index = usize::from(cpu);
        let items = std::mem::take(&mut self.cpus[index].items);
        self.account.ended += items.len() as u64;
        for Item { packet, .. } in &items {
            match self.flows[packet.flow as usize].role {
                Role::Request(connection) => self.answer(connection, packet),
                Role::Data(connection) => {
                    self.reached(packet, self.now);
                    self.stream_data_came(connection, packet, self.now);
                }
                Role::Ack(_) | Role::Packet(_) => self.reached(packet, self.now),
            }
        }
        self.cpus[index].items = items;
        self.cpus[index].items.clear();
        let entry = &mut self.threads[thread as usize];
        let is_done = entry.current.is_none() && entry.queue.is_empty();
        let state = &mut self.cpus[index];
        state.ran_ns += ran_ns;
        if is_done {
            entry.is_asleep = true;
            state.running = state.run_queue.pop_front();
            state.ran_ns = 0.0;
        } else if state.ran_ns >= self.scenario.scheduler.slice_ns as f64
            && let Some(next) = state.run_queue.pop_front()
        {
            state.run_queue.push_back(thread);
            state.running = Some(next);
            state.ran_ns = 0.0;
        }
    }
}
