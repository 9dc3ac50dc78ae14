//! Events during a run: CPUs that go offline and come back, other speeds, another policy, a clock that jumps.

use super::World;
use super::backlogs::Seen;
use super::calendar::Other;
use super::cpu::State;
use crate::scenario::{EventKind, Placement, Steering};
use rxsteer_core::{CpuId, CpuSet};
use std::sync::Arc;

impl World<'_> {
    /// Executes the `index`-th event of the scenario.
    pub(crate) fn run_event(&mut self, index: u32) {
        match self.scenario.events[index as usize].what.clone() {
            EventKind::Offline(cpu) => self.offline(cpu.get()),
            EventKind::Online(cpu) => self.online(cpu.get()),
            EventKind::Speed(cpu, speed) => {
                self.cpus[cpu.index()].set_speed(speed, self.scenario.smt_speed);
            }
            EventKind::Steering(steering) => self.change(steering),
            EventKind::ClockStep(by_ns) => {
                self.clock_offset = self.clock_offset.saturating_add(by_ns)
            }
            EventKind::Burst(traffic, packets) => self.burst(traffic, packets),
        }
    }

    /// The CPU that does the work of an offline CPU: the next online CPU in the order of ids.
    pub(crate) fn successor(&self, cpu: u16) -> u16 {
        let count = self.cpus.len();
        let after = (1..=count).map(|step| (usize::from(cpu) + step) % count);
        let online = after.into_iter().find(|cpu| self.cpus[*cpu].online);
        online.unwrap_or(usize::from(cpu)) as u16
    }

    /// Takes a CPU offline, unless it is the last one online. The CPU still finishes the packet in hand; a thread
    /// continues elsewhere.
    fn offline(&mut self, cpu: u16) {
        let online = self.cpus.iter().filter(|cpu| cpu.online).count();
        if !self.cpus[usize::from(cpu)].online || online == 1 {
            return;
        }
        self.cpus[usize::from(cpu)].online = false;
        self.share_out_backlogs();
        self.change(self.steering.clone());
        if self.cpus[usize::from(cpu)].is_working() {
            self.interrupt_thread(cpu, self.now);
        } else {
            self.evacuate(cpu);
        }
    }

    fn online(&mut self, cpu: u16) {
        if self.cpus[usize::from(cpu)].online {
            return;
        }
        self.cpus[usize::from(cpu)].online = true;
        self.share_out_backlogs();
        self.change(self.steering.clone());
        self.wake(cpu, self.now);
    }

    /// Records which CPU serves which backlog.
    fn share_out_backlogs(&mut self) {
        for cpu in &mut self.cpus {
            cpu.serves.clear();
        }
        for backlog in 0..self.cpus.len() as u16 {
            let online = self.cpus[usize::from(backlog)].online;
            let server = if online { backlog } else { self.successor(backlog) };
            self.server[usize::from(backlog)] = server;
            let serves = &mut self.cpus[usize::from(server)].serves;
            if server == backlog {
                serves.insert(0, backlog);
            } else {
                serves.push(backlog);
            }
        }
    }

    /// Moves the pending work of an offline CPU, which has finished its present work, to other CPUs.
    pub(crate) fn evacuate(&mut self, cpu: u16) {
        let state = &mut self.cpus[usize::from(cpu)];
        state.state = State::Idle;
        self.calendar.cancel_step(cpu);
        let polls: Vec<u32> = state.polls.drain(..).collect();
        let successor = self.successor(cpu);
        self.cpus[usize::from(successor)].polls.extend(polls);
        self.wake(successor, self.now);
        self.evacuate_threads(cpu);
    }

    /// Changes to another policy or other settings.
    pub(crate) fn change(&mut self, steering: Steering) {
        let offline =
            self.cpus.iter().filter(|cpu| !cpu.online).filter_map(|cpu| CpuId::new(cpu.id));
        let config = self.scenario.steer_config(&steering, CpuSet::new(offline));
        // The configuration was checked when the run began.
        let Ok(plan) = self.plan.next(&config) else { return };
        self.plan = Arc::new(plan);
        self.rule_hits.hold(&self.plan);
        self.backlogs.max_backlog = steering.max_backlog;
        self.follows_applications = config.mechanisms().rfs;
        self.steering = steering;
        for (producer, core) in (0u16..).zip(&mut self.steerings) {
            core.change(&self.plan, &mut Seen { backlogs: &mut self.backlogs, producer });
        }
    }

    /// Notes all events with a known time.
    pub(crate) fn note_events(&mut self) {
        for (index, event) in (0..).zip(&self.scenario.events) {
            self.calendar.note(event.at_ns, Other::Event { index });
        }
        self.note_interval();
        self.note_pauses();
        let every = self.scenario.scheduler.balance_ns;
        let may_move = self.scenario.scheduler.placement != Placement::Pinned;
        if every > 0 && may_move && !self.threads.is_empty() {
            self.calendar.note(every, Other::Balance);
        }
    }
}
