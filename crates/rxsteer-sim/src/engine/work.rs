//! Steps of CPUs: polling rings, processing backlogs, and their costs.

use super::World;
use super::backlogs::Seen;
use super::cpu::{Cost, CurrentWork, Item, State, WINDOW_NS, Work};
use super::nic::Watch;
use super::packet::{BURST, Packet, Role, float_ns, whole_ns};
use crate::scenario::Load;
use rxsteer_core::{Arrival, Policy, Verdict};

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

    /// Makes the CPU begin with work of a softirq at `at_ns`. A thread that runs there is interrupted then, or later if
    /// softirqs have kept threads from running for too long.
    fn raise_softirq(&mut self, cpu: u16, at_ns: u64) {
        let state = &self.cpus[usize::from(cpu)];
        if let State::Working(Work::Thread(_)) = state.state {
            let ran_ns = float_ns(state.current.lasted_ns(self.now));
            let excess_ns = state.kept_off_ns - ran_ns - self.scenario.scheduler.softirq_ns as f64;
            let allowed_ns = if excess_ns < 0.0 { 0 } else { self.now + whole_ns(excess_ns) + 1 };
            self.interrupt_thread(cpu, at_ns.max(allowed_ns));
        } else {
            self.wake(cpu, at_ns);
        }
    }

    /// Ends a thread's work on `cpu` at `at_ns`, if it is not complete by then.
    pub(crate) fn interrupt_thread(&mut self, cpu: u16, at_ns: u64) {
        let state = &mut self.cpus[usize::from(cpu)];
        // A paused CPU notices nothing.
        let at_ns = at_ns.max(state.current.paused_until_ns);
        if matches!(state.state, State::Working(Work::Thread(_))) && at_ns < state.current.until_ns
        {
            state.current.until_ns = at_ns;
            self.calendar.note_step(cpu, at_ns);
        }
    }

    /// Finishes the CPU's present work and begins the next.
    pub(crate) fn step(&mut self, cpu: u16) {
        let index = usize::from(cpu);
        if let State::Working(work) = self.cpus[index].state {
            self.count_work(cpu);
            match work {
                Work::Poll(queue) => self.frame_polled(cpu, queue),
                Work::Backlog(backlog) => self.packet_done(cpu, backlog),
                Work::Thread(thread) => self.thread_ran(cpu, thread),
                Work::Pause => {}
            }
        }
        if !self.cpus[index].online {
            if let Some(Work::Poll(queue)) = self.cpus[index].turn.take() {
                self.end_poll(cpu, queue);
            }
            self.evacuate(cpu);
            return;
        }
        while let Some(work) = self.choose(cpu) {
            let cost = match work {
                Work::Poll(queue) => self.poll(cpu, queue),
                Work::Backlog(backlog) => self.take_from(cpu, backlog),
                Work::Thread(thread) => {
                    Some(Cost { application: self.run_thread(cpu, thread), ..Cost::default() })
                }
                Work::Pause => None,
            };
            if let Some(cost) = cost {
                self.begin_work(cpu, work, cost);
                return;
            }
            self.cpus[index].turn = None;
        }
        self.cpus[index].kept_off_ns = 0.0;
        // The events that woke the CPU meanwhile were considered.
        self.cpus[index].state = State::Idle;
        self.calendar.cancel_step(cpu);
    }

    /// The CPU's next work. A poll or a turn at a backlog continues until nothing is left or its budget is used.
    fn choose(&mut self, cpu: u16) -> Option<Work> {
        let state = &mut self.cpus[usize::from(cpu)];
        if state.turn.is_some() {
            return state.turn;
        }
        let thread = state.running;
        let may_interrupt =
            thread.is_none() || state.kept_off_ns < self.scenario.scheduler.softirq_ns as f64;
        if !may_interrupt {
            return thread.map(Work::Thread);
        }
        state.left = self.steering.budget;
        // Rings and backlogs take turns.
        if state.polls.is_empty() || state.polled {
            let ready = |backlog: &u16| self.backlogs.of_cpu[usize::from(*backlog)].is_ready();
            if let Some(at) = state.serves.iter().position(ready) {
                let backlog = state.serves[at];
                // Backlogs take turns: an adopted backlog must not wait for the CPU's own one, which may never
                // empty.
                if state.serves.len() > 1 {
                    state.serves[at..].rotate_left(1);
                }
                state.turn = Some(Work::Backlog(backlog));
                return state.turn;
            }
        }
        if let Some(queue) = state.polls.pop_front() {
            state.poll = self.polls;
            self.polls += 1;
            state.turn = Some(Work::Poll(queue));
            return state.turn;
        }
        thread.map(Work::Thread)
    }

    /// Makes `work` the CPU's present work for the duration of its cost.
    fn begin_work(&mut self, cpu: u16, work: Work, cost: Cost) {
        let now = self.now;
        let most_ns =
            if matches!(work, Work::Thread(_)) { self.turn_of_thread(cpu) } else { u64::MAX };
        let state = &mut self.cpus[usize::from(cpu)];
        let working = &mut self.working[usize::from(state.core)];
        let ns_per_cost = state.ns_per_cost(*working > 0);
        *working += 1;
        let extra = std::mem::take(&mut state.extra);
        let mut current =
            CurrentWork { began_ns: now, cost, extra, ns_per_cost, ..CurrentWork::default() };
        let lasts = current.all() * ns_per_cost + state.fraction_ns;
        let whole = whole_ns(lasts).max(1);
        state.fraction_ns = (lasts - float_ns(whole)).max(0.0);
        current.complete_ns = now + whole;
        current.until_ns = now + whole.min(most_ns);
        state.current = current;
        state.state = State::Working(work);
        if !matches!(work, Work::Thread(_)) {
            state.polled = matches!(work, Work::Poll(_));
        }
        self.calendar.note_step(cpu, current.until_ns);
    }

    /// Counts the time since the present work began. The CPU works no more.
    pub(crate) fn count_work(&mut self, cpu: u16) {
        let state = &mut self.cpus[usize::from(cpu)];
        let State::Working(work) = std::mem::replace(&mut state.state, State::Idle) else { return };
        self.working[usize::from(state.core)] -= 1;
        let CurrentWork { began_ns, cost, extra, .. } = state.current;
        let lasted = float_ns(state.current.lasted_ns(self.now));
        let is_whole = self.now == state.current.complete_ns && began_ns >= self.from_ns;
        let (done, scale) = if is_whole {
            (state.current.ns_per_cost, state.current.ns_per_cost)
        } else {
            let all = state.current.all().max(f64::MIN_POSITIVE);
            let measured = self.now.max(self.from_ns) - began_ns.max(self.from_ns);
            (lasted / all, float_ns(measured).min(lasted) / all)
        };
        let ours = cost.protocol * done;
        state.ours_ns += ours;
        state.other_ns += lasted - ours;
        state.busy.receiving += cost.receiving * scale;
        state.busy.protocol += cost.protocol * scale;
        state.busy.application += cost.application * scale;
        match work {
            Work::Thread(_) => {
                state.busy.application += extra * scale;
                state.kept_off_ns = (state.kept_off_ns - lasted).max(0.0);
            }
            Work::Pause => {}
            Work::Poll(_) | Work::Backlog(_) => {
                state.busy.receiving += extra * scale;
                if state.running.is_some() {
                    state.kept_off_ns += lasted;
                }
            }
        }
    }

    // -----------------------------------------------------------------------------------------
    // Polling

    /// Takes frames off the queue's ring and decides where they go: one frame that is processed at once, or all frames
    /// that the poll will hand off when it ends. `None` when the ring is empty, which ends the poll.
    fn poll(&mut self, cpu: u16, queue: u32) -> Option<Cost> {
        let index = usize::from(cpu);
        let rx = &mut self.queues[queue as usize];
        rx.advance(self.now);
        self.lose_refused(queue);
        let rx = &mut self.queues[queue as usize];
        if rx.ring.is_empty() {
            self.end_poll(cpu, queue);
            return None;
        }
        let producer = rx.virtual_queue(cpu);
        let has_rules = self.plan.matcher().is_some();
        let is_steered = self.steering.policy != Policy::None || has_rules;
        let backlog = &self.backlogs.of_cpu[index];
        // A packet is processed in the same poll, as in the kernel without RPS, if no packet waits that it would
        // overtake.
        let at_once = !is_steered
            && !rx.spread
            && backlog.waiting == 0
            && backlog.in_work == 0
            && self.cpus[index].items.is_empty();
        if at_once {
            return self.poll_at_once(cpu, queue, producer);
        }
        let most = self.cpus[index].left as usize;
        let time_ns = self.now.saturating_add_signed(self.clock_offset);
        let first = self.cpus[index].items.len();
        let mut items = std::mem::take(&mut self.cpus[index].items);
        self.arrivals.clear();
        while self.arrivals.len() < most
            && let Some(packet) = rx.ring.pop_front()
        {
            let hash = self.flows[packet.flow as usize].hash;
            let rule = self.rule_hits.find(&self.plan, self.facts.as_deref(), &packet);
            self.arrivals.push(Arrival { time_ns, hash, rx_queue: producer, rule });
            items.push(Item { packet: Packet { producer, cpu, ..packet }, target: cpu });
        }
        let taken = self.arrivals.len();
        self.cpus[index].left -= taken as u32;
        if self.verdicts.len() < taken {
            self.verdicts.resize(taken, Verdict::default());
        }
        let mut seen = Seen { backlogs: &mut self.backlogs, producer };
        let steering = &mut self.steerings[usize::from(producer)];
        let decided = steering.decide(&self.arrivals, &mut seen, &mut self.verdicts);
        debug_assert_eq!(decided, taken, "no backlog here refuses with wait");

        let costs = &self.scenario.costs;
        let each = costs.receive
            + if has_rules { costs.rules } else { 0.0 }
            + if is_steered { costs.steer } else { 0.0 };
        let mut cost = Cost { receiving: each * taken as f64, ..Cost::default() };
        let state = &mut self.cpus[index];
        let mut is_refused = false;
        for (item, verdict) in items[first..].iter_mut().zip(&self.verdicts) {
            if verdict.is_drop() {
                is_refused = true;
                continue;
            }
            item.target = verdict.cpu().get();
            state.add_to_list(item.target, self.server.len(), costs, &mut cost);
        }
        // A refused packet is dropped at once.
        if is_refused {
            self.drop_refused(&mut items, first);
        }
        self.cpus[index].items = items;
        Some(cost)
    }

    /// Takes one frame off the queue's ring, and begins to process it in this poll, unless it goes to another CPU.
    fn poll_at_once(&mut self, cpu: u16, queue: u32, producer: u16) -> Option<Cost> {
        let index = usize::from(cpu);
        let packet = self.queues[queue as usize].ring.pop_front()?;
        let packet = Packet { producer, cpu, ..packet };
        let hash = self.flows[packet.flow as usize].hash;
        let time_ns = self.now.saturating_add_signed(self.clock_offset);
        // With rules, packets are not processed at once.
        let arrival = Arrival { time_ns, hash, rx_queue: producer, rule: 0 };
        let mut verdict = [Verdict::default()];
        let mut seen = Seen { backlogs: &mut self.backlogs, producer };
        let steering = &mut self.steerings[usize::from(producer)];
        let decided = steering.decide(&[arrival], &mut seen, &mut verdict);
        debug_assert_eq!(decided, 1, "no backlog here refuses with wait");
        let [verdict] = verdict;

        let costs = &self.scenario.costs;
        let mut cost = Cost { receiving: costs.receive, ..Cost::default() };
        let state = &mut self.cpus[index];
        state.left -= 1;
        if let Some(reason) = verdict.drop_reason() {
            self.account.drops.add(reason, 1);
            self.lost(&packet);
            return Some(cost);
        }
        let target = verdict.cpu().get();
        if target == cpu {
            self.backlogs.of_cpu[index].waiting -= 1;
            self.begins(cpu, &packet);
            cost.protocol = self.protocol(cpu, &packet);
            self.cpus[index].inline = Some(packet);
        } else {
            state.add_to_list(target, self.server.len(), costs, &mut cost);
            state.items.push(Item { packet, target });
        }
        Some(cost)
    }

    /// Drops the refused packets among the items from `first` on, which belong to the present verdicts.
    #[cold]
    fn drop_refused(&mut self, items: &mut Vec<Item>, first: usize) {
        let verdicts = std::mem::take(&mut self.verdicts);
        let mut verdict = verdicts.iter();
        let refused = |_: &mut Item| verdict.next().is_some_and(|verdict| verdict.is_drop());
        let refused: Vec<Item> = items.extract_if(first.., refused).collect();
        let reasons =
            verdicts.iter().take(self.arrivals.len()).filter_map(|verdict| verdict.drop_reason());
        for (Item { packet, .. }, reason) in refused.into_iter().zip(reasons) {
            self.account.drops.add(reason, 1);
            self.lost(&packet);
        }
        self.verdicts = verdicts;
    }

    /// Completes the work on polled frames, and the poll if its budget is used.
    fn frame_polled(&mut self, cpu: u16, queue: u32) {
        let index = usize::from(cpu);
        if let Some(packet) = self.cpus[index].inline.take() {
            self.processed(cpu, index, &packet);
        }
        if self.cpus[index].left == 0 {
            self.cpus[index].turn = None;
            self.queues[queue as usize].advance(self.now);
            self.lose_refused(queue);
            self.end_poll(cpu, queue);
        }
    }

    /// Ends the poll: splices lists, wakes CPUs, and polls the queue again or arms it.
    fn end_poll(&mut self, cpu: u16, queue: u32) {
        let index = usize::from(cpu);
        let mut items = std::mem::take(&mut self.cpus[index].items);
        for Item { packet, target } in items.drain(..) {
            self.kick(cpu, usize::from(target));
            self.backlogs.of_cpu[usize::from(target)].packets.push_back(packet);
        }
        self.cpus[index].items = items;
        let rx = &self.queues[queue as usize];
        if !rx.spread && !rx.ring.is_empty() {
            self.cpus[index].polls.push_back(queue);
        } else {
            self.arm(queue);
        }
    }

    /// Called before a packet is put onto the backlog of `target`: wakes the CPU that serves the backlog, if it
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
        self.raise_softirq(server, self.now + self.scenario.costs.wake_delay as u64);
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
        self.raise_softirq(cpu, self.now);
    }

    // -----------------------------------------------------------------------------------------
    // Backlogs

    /// Takes a packet from a backlog. Returns the cost of processing it; `None` when the backlog is empty.
    fn take_from(&mut self, cpu: u16, backlog: u16) -> Option<Cost> {
        let packet = *self.backlogs.of_cpu[usize::from(backlog)].packets.front()?;
        self.begins(cpu, &packet);
        let protocol = self.protocol(cpu, &packet);
        self.cpus[usize::from(cpu)].left -= 1;
        let backlog = &mut self.backlogs.of_cpu[usize::from(backlog)];
        backlog.in_work = 1;
        backlog.waiting -= 1;
        Some(Cost { protocol, ..Cost::default() })
    }

    /// Completes the packet taken from the backlog, and the turn if it was the last one.
    fn packet_done(&mut self, cpu: u16, backlog: u16) {
        let index = usize::from(backlog);
        self.backlogs.of_cpu[index].in_work = 0;
        if let Some(packet) = self.backlogs.of_cpu[index].packets.pop_front() {
            self.processed(cpu, index, &packet);
        }
        let is_empty = self.backlogs.of_cpu[index].packets.is_empty();
        let server = self.server[index];
        let state = &mut self.cpus[usize::from(cpu)];
        if state.left == 0 || is_empty || server != cpu {
            state.turn = None;
        }
        // The backlog's own CPU may have come back meanwhile.
        if server != cpu && !is_empty {
            self.raise_softirq(server, self.now);
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
