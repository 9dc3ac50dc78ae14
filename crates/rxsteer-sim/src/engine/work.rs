//! Steps of CPUs: polling rings, processing backlogs, and their costs.

use super::World;
use super::backlogs::Seen;
use super::cpu::{CHUNK_NS, Item, State, WINDOW_NS, Work};
use super::nic::Watch;
use super::packet::{BURST, Packet, Role, float_ns, whole_ns};
use crate::scenario::Load;
use rxsteer_core::{Arrival, Policy, Verdict};

/// The cost of a chunk, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    receiving: f64,
    protocol: f64,
    application: f64,
}

impl World<'_> {
    /// Makes the CPU begin to work at `at_ns`, unless it already works.
    pub(crate) fn wake(&mut self, cpu: u16, at_ns: u64) {
        let state = &mut self.cpus[usize::from(cpu)];
        let sooner = match state.state {
            State::Idle => true,
            State::Woken(when) => at_ns < when,
            State::Working(_) => false,
        };
        if sooner {
            state.state = State::Woken(at_ns);
            self.calendar.note_step(cpu, at_ns);
        }
    }

    /// Finishes the CPU's present work and begins the next.
    pub(crate) fn step(&mut self, cpu: u16) {
        let index = usize::from(cpu);
        let state = &mut self.cpus[index];
        if let State::Working(work) = std::mem::replace(&mut state.state, State::Idle) {
            self.working[usize::from(state.core)] -= 1;
            match work {
                Work::Poll(queue) => self.polled(cpu, queue),
                Work::Backlog(backlog) => self.backlog_done(cpu, backlog),
                Work::Thread(thread) => {
                    let ran_ns = self.in_hand_ns[index];
                    self.thread_ran(cpu, thread, ran_ns);
                }
            }
        }
        if !self.cpus[index].online {
            self.evacuate(cpu);
            return;
        }
        while let Some(work) = self.choose(cpu) {
            let cost = match work {
                Work::Poll(queue) => self.poll(cpu, queue),
                Work::Backlog(backlog) => {
                    // Backlogs take turns: an adopted backlog must not wait for the CPU's own one, which may never
                    // empty.
                    let serves = &mut self.cpus[index].serves;
                    if serves.len() > 1
                        && let Some(at) = serves.iter().position(|own| *own == backlog)
                    {
                        serves[at..].rotate_left(1);
                    }
                    Some(self.take_from(cpu, backlog))
                }
                Work::Thread(thread) => {
                    Some(Cost { application: self.run_thread(cpu, thread), ..Cost::default() })
                }
            };
            if let Some(cost) = cost {
                self.take_in_hand(cpu, work, cost);
                return;
            }
        }
        self.cpus[index].kept_off_ns = 0.0;
        // The events that woke the CPU meanwhile were considered.
        self.cpus[index].state = State::Idle;
        self.calendar.cancel_step(cpu);
    }

    fn choose(&mut self, cpu: u16) -> Option<Work> {
        let state = &mut self.cpus[usize::from(cpu)];
        let thread = state.running;
        let may_interrupt =
            thread.is_none() || state.kept_off_ns < self.scenario.scheduler.softirq_ns as f64;
        if !may_interrupt {
            return thread.map(Work::Thread);
        }
        // Rings and backlogs take turns.
        if state.polls.is_empty() || state.polled {
            for &backlog in &state.serves {
                if self.backlogs.of_cpu[usize::from(backlog)].is_ready() {
                    return Some(Work::Backlog(backlog));
                }
            }
        }
        match state.polls.pop_front() {
            Some(queue) => Some(Work::Poll(queue)),
            None => thread.map(Work::Thread),
        }
    }

    /// Makes `work` the CPU's present work for the duration of its cost.
    fn take_in_hand(&mut self, cpu: u16, work: Work, cost: Cost) {
        let index = usize::from(cpu);
        let state = &mut self.cpus[index];
        let working = &mut self.working[usize::from(state.core)];
        let sibling_works = *working > 0;
        *working += 1;
        let extra = std::mem::take(&mut state.extra);
        let all = extra + cost.receiving + cost.protocol + cost.application;
        let lasts = (all * state.ns_per_cost(sibling_works)).max(1.0);
        let ends = self.now + whole_ns(lasts + 0.5);
        self.calendar.note_step(cpu, ends);
        self.in_hand_ns[index] = lasts;
        state.state = State::Working(work);
        let ours = lasts * cost.protocol / all.max(f64::MIN_POSITIVE);
        state.ours_ns += ours;
        state.other_ns += lasts - ours;
        let measured = ends.clamp(self.from_ns, self.scenario.duration_ns)
            - self.now.clamp(self.from_ns, self.scenario.duration_ns);
        let scale = float_ns(measured) / all.max(f64::MIN_POSITIVE);
        state.busy.receiving += cost.receiving * scale;
        state.busy.protocol += cost.protocol * scale;
        state.busy.application += cost.application * scale;
        match work {
            Work::Thread(_) => {
                state.busy.application += extra * scale;
                state.kept_off_ns = (state.kept_off_ns - lasts).max(0.0);
            }
            Work::Poll(_) | Work::Backlog(_) => {
                state.busy.receiving += extra * scale;
                state.polled = matches!(work, Work::Poll(_));
                if state.running.is_some() {
                    state.kept_off_ns += lasts;
                }
            }
        }
    }

    // -----------------------------------------------------------------------------------------
    // Polling

    /// Takes frames off the queue's ring and decides where they go. `None` when the ring is empty.
    fn poll(&mut self, cpu: u16, queue: u32) -> Option<Cost> {
        let index = usize::from(cpu);
        let rx = &mut self.queues[queue as usize];
        rx.advance(self.now);
        self.lose_refused(queue);
        let rx = &mut self.queues[queue as usize];
        let producer = rx.virtual_queue(cpu);
        let costs = &self.scenario.costs;
        let is_steered = self.steering.policy != Policy::None;
        let backlog = &self.backlogs.of_cpu[index];
        // The packets are processed in the same poll, as in the kernel without RPS, if no packet waits that they
        // would overtake.
        let at_once = !is_steered && !rx.spread && backlog.waiting == 0 && backlog.in_work == 0;
        let in_ring = rx.ring.len();
        let most = if in_ring > 1 {
            let each = costs.receive + if at_once { costs.protocol } else { costs.steer };
            let most = (CHUNK_NS * self.cpus[index].speed / each.max(1.0)) as usize;
            most.min(self.steering.budget.min(self.steering.max_backlog) as usize).clamp(1, in_ring)
        } else {
            in_ring
        };
        if most == 0 {
            self.arm(queue);
            return None;
        }
        let mut items = std::mem::take(&mut self.cpus[index].items);
        let time_ns = self.now.saturating_add_signed(self.clock_offset);
        self.arrivals.clear();
        while items.len() < most
            && let Some(packet) = rx.ring.pop_front()
        {
            let hash = self.flows[packet.flow as usize].hash;
            self.arrivals.push(Arrival { time_ns, hash, rx_queue: producer, rule: 0 });
            let packet = Packet { producer, cpu, ..packet };
            items.push(Item { packet, verdict: Verdict::default(), inline: false });
        }
        if self.verdicts.len() < items.len() {
            self.verdicts.resize(items.len(), Verdict::default());
        }
        let mut seen = Seen { backlogs: &mut self.backlogs, producer };
        let decided = self.steerings[usize::from(producer)].decide(
            &self.arrivals,
            &mut seen,
            &mut self.verdicts,
        );
        debug_assert_eq!(decided, items.len(), "no backlog here refuses with wait");
        let cost = self.cost_of_poll(cpu, at_once, &mut items);
        self.cpus[index].items = items;
        Some(cost)
    }

    /// Records the verdicts. Returns the cost of the poll.
    fn cost_of_poll(&mut self, cpu: u16, at_once: bool, items: &mut Vec<Item>) -> Cost {
        let costs = &self.scenario.costs;
        let each =
            costs.receive + if self.steering.policy == Policy::None { 0.0 } else { costs.steer };
        let mut cost = Cost { receiving: each * items.len() as f64, ..Cost::default() };
        self.chunk += 1;
        let mut refused = false;
        let verdicts = std::mem::take(&mut self.verdicts);
        for (item, &verdict) in items.iter_mut().zip(&verdicts) {
            item.verdict = verdict;
            if verdict.is_drop() {
                refused = true;
                continue;
            }
            let target = verdict.cpu().index();
            if at_once && target == usize::from(cpu) {
                item.inline = true;
                self.backlogs.of_cpu[target].waiting -= 1;
                self.begins(cpu, &item.packet);
                cost.protocol += self.protocol(cpu, &item.packet);
            } else if target != usize::from(cpu) {
                cost.receiving += self.scenario.costs.hand_off;
                if self.spliced[target] != self.chunk {
                    self.spliced[target] = self.chunk;
                    cost.receiving += self.scenario.costs.splice;
                }
            }
        }
        self.verdicts = verdicts;
        // A refused packet is dropped at once.
        if refused {
            self.drop_refused(items);
        }
        cost
    }

    #[cold]
    fn drop_refused(&mut self, items: &mut Vec<Item>) {
        for Item { packet, verdict, .. } in items.extract_if(.., |item| item.verdict.is_drop()) {
            if let Some(reason) = verdict.drop_reason() {
                self.account.drops.add(reason, 1);
            }
            self.lost(&packet);
        }
    }

    /// Ends the poll: splices lists, wakes CPUs, and polls the queue again or arms it.
    fn polled(&mut self, cpu: u16, queue: u32) {
        let items = std::mem::take(&mut self.cpus[usize::from(cpu)].items);
        self.chunk += 1;
        for item in &items {
            if item.inline {
                self.processed(cpu, usize::from(cpu), &item.packet);
                continue;
            }
            let target = item.verdict.cpu().index();
            if self.spliced[target] != self.chunk {
                self.spliced[target] = self.chunk;
                self.kick(cpu, target);
            }
            self.backlogs.of_cpu[target].packets.push_back(item.packet);
        }
        let state = &mut self.cpus[usize::from(cpu)];
        state.items = items;
        state.items.clear();
        let rx = &mut self.queues[queue as usize];
        rx.advance(self.now);
        let goes_on = !rx.spread && !rx.ring.is_empty();
        self.lose_refused(queue);
        if goes_on {
            self.cpus[usize::from(cpu)].polls.push_back(queue);
        } else {
            self.arm(queue);
        }
    }

    /// Called before a list is spliced onto the backlog of `target`: wakes the CPU that serves the backlog, if it
    /// was empty.
    fn kick(&mut self, cpu: u16, target: usize) {
        let backlog = &self.backlogs.of_cpu[target];
        let server = self.server[target];
        if !backlog.packets.is_empty() || server == cpu {
            return;
        }
        self.kicks += u64::from(self.is_measured());
        self.cpus[usize::from(cpu)].extra += self.scenario.costs.wake_up;
        self.cpus[usize::from(server)].extra += self.scenario.costs.woken;
        self.wake(server, self.now + self.scenario.costs.wake_delay as u64);
    }

    /// Lets the queue interrupt again when it has a frame.
    pub(crate) fn arm(&mut self, queue: u32) {
        let rx = &mut self.queues[queue as usize];
        rx.watch = Watch::Armed;
        if let Some(at_ns) = rx.next_interrupt(self.now) {
            rx.watch = Watch::Noted;
            self.calendar.note_interrupt(queue, at_ns);
        }
    }

    /// Executes an interrupt of the queue.
    pub(crate) fn interrupt(&mut self, queue: u32) {
        let rx = &mut self.queues[queue as usize];
        let cpu = rx.interrupt(self.now);
        let cpu = rx.cpus[cpu];
        let cpu = self.server[usize::from(cpu)];
        self.interrupts += u64::from(self.is_measured());
        let state = &mut self.cpus[usize::from(cpu)];
        state.extra += self.scenario.costs.interrupt;
        state.polls.push_back(queue);
        self.wake(cpu, self.now);
    }

    // -----------------------------------------------------------------------------------------
    // Backlogs

    /// Takes packets from a backlog. Returns the cost of processing them.
    fn take_from(&mut self, cpu: u16, backlog: u16) -> Cost {
        let index = usize::from(cpu);
        let most = CHUNK_NS * self.cpus[index].speed;
        let budget = self.steering.budget as usize;
        let mut taken = 0;
        let mut cost = 0.0;
        while taken < budget
            && (taken == 0 || cost < most)
            && let Some(&packet) = self.backlogs.of_cpu[usize::from(backlog)].packets.get(taken)
        {
            taken += 1;
            self.begins(cpu, &packet);
            cost += self.protocol(cpu, &packet);
        }
        let backlog = &mut self.backlogs.of_cpu[usize::from(backlog)];
        backlog.in_work = taken as u32;
        backlog.waiting -= taken as u32;
        Cost { protocol: cost, ..Cost::default() }
    }

    /// Completes the packets taken from the backlog.
    fn backlog_done(&mut self, cpu: u16, backlog: u16) {
        for _ in 0..self.backlogs.of_cpu[usize::from(backlog)].in_work {
            if let Some(packet) = self.backlogs.of_cpu[usize::from(backlog)].packets.pop_front() {
                self.processed(cpu, usize::from(backlog), &packet);
            }
        }
        self.backlogs.of_cpu[usize::from(backlog)].in_work = 0;
        // The backlog's own CPU may have come back meanwhile.
        let server = self.server[usize::from(backlog)];
        if server != cpu && !self.backlogs.of_cpu[usize::from(backlog)].packets.is_empty() {
            self.wake(server, self.now);
        }
    }

    /// The cost of the protocol processing of this packet on `cpu`.
    fn protocol(&mut self, cpu: u16, packet: &Packet) -> f64 {
        let costs = &self.scenario.costs;
        let miss = self.miss(packet.cpu, cpu);
        let window = (self.now / WINDOW_NS) as u32;
        let state = &mut self.cpus[usize::from(cpu)];
        state.turn_window(window, costs);
        let flow = &mut self.flows[packet.flow as usize];
        if flow.window != window {
            flow.window = window;
            state.add_flow(costs);
        }
        let cost = costs.protocol + costs.protocol_byte * f64::from(packet.bytes) + miss;
        let cost = cost + state.flow_miss;
        if packet.data == BURST {
            return cost;
        }
        cost + match flow.role {
            _ if flow.out.is_some() => costs.transmit,
            Role::Data(connection) => {
                match &self.scenario.traffic[usize::from(flow.traffic)].load {
                    Load::Stream(stream) if stream.application == 0.0 => {
                        costs.transmit / f64::from(stream.packets_per_ack)
                    }
                    _ => {
                        let thread = self.reader_of[connection as usize];
                        if self.threads[thread as usize].is_asleep() {
                            costs.thread_wake
                        } else {
                            0.0
                        }
                    }
                }
            }
            Role::Request(connection) => {
                let thread = self.clients[connection as usize].thread;
                if self.threads[thread as usize].is_asleep() { costs.thread_wake } else { 0.0 }
            }
            Role::Packet(thread) if thread > 0 => {
                let is_asleep = self.threads[thread as usize - 1].is_asleep();
                if is_asleep { costs.thread_wake } else { 0.0 }
            }
            Role::Packet(_) | Role::Ack(_) => 0.0,
        }
    }

    /// The cost of a packet whose last step was on `from` and whose present step is on `to`.
    pub(crate) fn miss(&self, from: u16, to: u16) -> f64 {
        let (a, b) = (&self.cpus[usize::from(from)], &self.cpus[usize::from(to)]);
        if a.core == b.core {
            0.0
        } else if a.cache == b.cache {
            self.scenario.costs.miss_shared
        } else {
            self.scenario.costs.miss_remote
        }
    }
}
