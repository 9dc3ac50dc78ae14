//! A CPU: its present work, its pending work, and its choice of the next work.
//!
//! ```text
//!   step: finish what was in hand ──► choose ──► polled frames | a packet of a backlog | a thread's packet ──► step
//!         (its effects happen here)
//! ```
//!
//! A CPU works on one packet at a time, and the effects on others happen at the end of that packet's work, when the
//! calendar's time is the CPU's time. So no effect is visible before its work is done. Frames that a poll hands over
//! are the exception: other CPUs see them only when the poll ends and its lists are spliced, so a poll takes all of
//! them off the ring in one step. A softirq waits for the end of the packet in hand, or of the poll; a thread is
//! interrupted at once.

use super::packet::Packet;
use crate::scenario::{Costs, Cpu, Scenario};
use std::collections::VecDeque;

/// Flows that a CPU processed in this window, or in the one before, count as present in its cache.
pub(crate) const WINDOW_NS: u64 = 100_000_000;

/// The present work of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Frames of an RX queue, which are queued to backlogs, or one that is processed at once.
    Poll(u32),
    /// A packet of a CPU's backlog.
    Backlog(u16),
    /// A packet that a thread reads, or a part of its work.
    Thread(u32),
    /// A pause of a CPU that had nothing in hand.
    Pause,
}

/// The activity of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    /// It begins to work at this time.
    Woken(u64),
    /// It works until its next step.
    Working(Work),
}

/// A packet that a poll hands off when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) packet: Packet,
    /// The backlog that the packet is queued to.
    pub(crate) target: u16,
}

/// What a piece of work costs, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) receiving: f64,
    pub(crate) protocol: f64,
    pub(crate) application: f64,
}

/// The work in hand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CurrentWork {
    pub(crate) began_ns: u64,
    /// When it is complete. A thread may be interrupted before.
    pub(crate) complete_ns: u64,
    /// When the CPU steps next: then, or when an interrupt comes.
    pub(crate) until_ns: u64,
    pub(crate) cost: Cost,
    /// Interrupts and wake-ups before it.
    pub(crate) extra: f64,
    /// Nanoseconds that a cost of 1 ns takes.
    pub(crate) ns_per_cost: f64,
    /// How long the CPU was paused meanwhile, and until when it is.
    pub(crate) paused_ns: u64,
    pub(crate) paused_until_ns: u64,
}

impl CurrentWork {
    /// How long the CPU has worked on it at `now`, pauses left out.
    pub(crate) fn lasted_ns(&self, now: u64) -> u64 {
        // A present pause is in `paused_ns` as a whole.
        (now - self.began_ns).saturating_sub(self.paused_ns)
    }

    pub(crate) fn all(&self) -> f64 {
        self.extra + self.cost.receiving + self.cost.protocol + self.cost.application
    }
}

/// How the time was spent, in nanoseconds of the measured part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub(crate) receiving: f64,
    pub(crate) protocol: f64,
    pub(crate) application: f64,
}

/// One CPU.
#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) id: u16,
    pub(crate) speed: f64,
    /// Nanoseconds that a cost of 1 ns takes: alone, and while an SMT sibling works.
    ns_per_cost: [f64; 2],
    pub(crate) core: u16,
    pub(crate) cache: u16,
    pub(crate) online: bool,
    pub(crate) state: State,
    pub(crate) current: CurrentWork,
    /// Work takes whole nanoseconds; this is the remaining fraction.
    pub(crate) fraction_ns: f64,
    /// The unfinished poll or turn at a backlog, and how many more packets it may process.
    pub(crate) turn: Option<Work>,
    pub(crate) left: u32,
    /// The packets that the present poll hands off when it ends.
    pub(crate) items: Vec<Item>,
    /// The frame in hand, if it is processed in the poll that received it.
    pub(crate) inline: Option<Packet>,
    /// The number of the present poll, and by CPU the last poll that had a packet for it.
    pub(crate) poll: u64,
    pub(crate) lists: Vec<u64>,
    /// RX queues that wait to be polled.
    pub(crate) polls: VecDeque<u32>,
    /// The CPUs whose backlogs this CPU serves: itself, and CPUs that are offline.
    pub(crate) serves: Vec<u16>,
    /// Additional cost of the next piece of work.
    pub(crate) extra: f64,
    /// Whether the last interrupt work was a poll.
    pub(crate) polled: bool,
    /// The thread that runs, or is interrupted.
    pub(crate) running: Option<u32>,
    /// Threads that wait for the CPU.
    pub(crate) run_queue: VecDeque<u32>,
    /// The last thread that ran on this CPU.
    pub(crate) last_thread: u32,
    /// How long the running thread has run in its slice.
    pub(crate) ran_ns: f64,
    /// How long interrupt work has kept threads from running.
    pub(crate) kept_off_ns: f64,
    /// The present window; `flows` counts the flows seen in the previous window and in this one.
    pub(crate) window: u32,
    flows: [u32; 2],
    /// The additional cost of a packet, since many flows share the cache.
    pub(crate) flow_miss: f64,
    pub(crate) busy: Busy,
    /// Since the start of the run: time for packets of backlogs, time for anything else, and packets processed.
    pub(crate) ours_ns: f64,
    pub(crate) other_ns: f64,
    pub(crate) processed: u64,
    /// Packets whose processing ended on this CPU in the measured part.
    pub(crate) packets: u64,
}

impl CpuState {
    pub(crate) fn new(id: usize, scenario: &Scenario) -> CpuState {
        let Cpu { speed, core, cache } = scenario.cpus[id];
        let mut state = CpuState {
            id: id as u16,
            speed,
            ns_per_cost: [1.0; 2],
            core,
            cache,
            online: true,
            state: State::Idle,
            current: CurrentWork::default(),
            fraction_ns: 0.0,
            turn: None,
            left: 0,
            items: Vec::new(),
            inline: None,
            poll: 0,
            lists: Vec::new(),
            polls: VecDeque::new(),
            serves: vec![id as u16],
            extra: 0.0,
            polled: false,
            running: None,
            run_queue: VecDeque::new(),
            last_thread: u32::MAX,
            ran_ns: 0.0,
            kept_off_ns: 0.0,
            window: 0,
            flows: [0; 2],
            flow_miss: 0.0,
            busy: Busy::default(),
            ours_ns: 0.0,
            other_ns: 0.0,
            processed: 0,
            packets: 0,
        };
        state.set_speed(speed, scenario.smt_speed);
        state
    }

    /// Sets the speed, and the factor `smt_speed` for the time while an SMT sibling works.
    pub(crate) fn set_speed(&mut self, speed: f64, smt_speed: f64) {
        self.speed = speed;
        self.ns_per_cost = [1.0, smt_speed].map(|share| 1.0 / (speed * share));
    }

    /// Nanoseconds that a cost of 1 ns takes.
    pub(crate) fn ns_per_cost(&self, sibling_works: bool) -> f64 {
        self.ns_per_cost[usize::from(sibling_works)]
    }

    /// Adds to `cost` the cost of putting a packet onto the present poll's list for `target`, if `target` is another
    /// one of `cpus` CPUs.
    pub(crate) fn add_to_list(&mut self, target: u16, cpus: usize, costs: &Costs, cost: &mut Cost) {
        if target == self.id {
            return;
        }
        cost.receiving += costs.hand_off;
        if self.lists.is_empty() {
            self.lists.resize(cpus, u64::MAX);
        }
        let list = &mut self.lists[usize::from(target)];
        if *list != self.poll {
            *list = self.poll;
            cost.receiving += costs.splice;
        }
    }

    pub(crate) fn is_working(&self) -> bool {
        matches!(self.state, State::Working(_))
    }

    /// Whether no thread runs or waits here. A scheduler calls such a CPU idle, whatever interrupts do.
    pub(crate) fn is_free_of_threads(&self) -> bool {
        self.running.is_none() && self.run_queue.is_empty()
    }

    /// Enters the window `window`.
    pub(crate) fn turn_window(&mut self, window: u32, costs: &Costs) {
        if self.window != window {
            self.flows[0] = if self.window + 1 == window { self.flows[1] } else { 0 };
            self.flows[1] = 0;
            self.window = window;
            self.flow_miss = self.flow_miss_now(costs);
        }
    }

    /// Counts another flow in this window.
    pub(crate) fn add_flow(&mut self, costs: &Costs) {
        self.flows[1] += 1;
        self.flow_miss = self.flow_miss_now(costs);
    }

    /// The additional cost of a packet with the number of flows that the CPU has at present.
    fn flow_miss_now(&self, costs: &Costs) -> f64 {
        let flows = f64::from(self.flows[0].max(self.flows[1]));
        if flows > 0.0 { costs.flow_miss * flows / (flows + costs.flow_cache) } else { 0.0 }
    }
}
