//! A transition from one plan to the next, in order.
//!
//! In steady state, rules keep a flow table if their decision for a flow can change, and none if it can't. `none`, `rps`,
//! `bound` and `balance` alone keep none (a move of buckets counts as a change of rules). A change can lead to either
//! kind. A transition lasts from a change until every packet sent by the former rules and tables is completed. During a
//! transition every packet reads and writes its slot, under all rules.
//!
//! ```text
//!  change         a CPU's tail completed         nothing is under way by what held before
//!    │                      │                                      │
//!  ──▼──────────────────────▼──────────────────────────────────────▼────────► time
//!    its flows keep their   │ each moves when its slot             │ rules without a
//!    old decision, and      │ is completed                         │ table need none
//!    slots are filled       │                                      │
//! ```
//!
//! **Old rules.** Under rules without a table, no slot records where a flow's packets wait, but the old rules give
//! the CPU. So each producer notes its tail per CPU, and a flow keeps its old decision until its old CPU has
//! completed that tail. Meanwhile the flow's packets fill a separate table, which is divided by old CPU: flows
//! that share a slot there come from the same CPU. After that, a flow whose slot is under way follows the slot. A
//! flow whose slot is not under way has left the old rules.
//!
//! **Tables of another size.** The old table is asked first, in the same way.
//!
//! A slot of an old table that is found completed is unset at once and stays unset. Its flows have left that
//! table. So the slots of each table, oldest table first, are the only record of where their flows are. (Comparing
//! the numbers again would be wrong: after 2³¹ packets they seem to lie ahead.)
//!
//! **When a table is empty.** A *period* begins by noting the tail of this producer's queue for each CPU. The
//! period is over when all of these tails are completed. So all packets queued in period `p` or before are
//! completed in period `p + 2` and after.

use crate::backlogs::{Arrival, Backlogs};
use crate::chooser::Rule;
use crate::cpu::{CpuId, CpuSet};
use crate::maps::by_hash;
use crate::order::{DevFlow, FlowTables, row, unset};
use crate::plan::Plan;
use crate::slot::hash_32;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// The period at the beginning of a transition.
const FIRST: u64 = 1;

/// The largest number of tables of other sizes that may be in use at once. Another change of size waits until one
/// of them is empty.
pub const MAX_OLD_TABLES: usize = 4;

/// The smallest number of slots per CPU, as a power of two, in a table divided by old CPU.
const MIN_LOG: u32 = 6;

#[derive(Debug)]
pub(crate) struct Transition {
    period: u64,
    /// The position before the tail that each queue had when the period began, for the queues that have not
    /// completed it. A queue that has completed its tail is not asked again: after 2³¹ packets the tail would seem
    /// to lie ahead.
    tails: Vec<(CpuId, u32)>,
    cpus: CpuSet,
    /// The former rules, if they kept no table.
    old: Option<OldRules>,
    /// Tables of other sizes, oldest first.
    tables: Vec<OldTable>,
    /// The last period in which a packet went to a CPU other than its target.
    off_target: u64,
}

/// Rules without a table, and a table of where the packets they decided on since the change went.
#[derive(Debug)]
struct OldRules {
    plan: Arc<Plan>,
    /// For each CPU id, the part of the table that belongs to the CPU.
    part_of: Box<[u16]>,
    /// For each part, the position before the tail when the rules changed; `None` once that position is completed.
    tails: Box<[Option<u32>]>,
    /// For each part, `1 << log` slots and one slot for packets without a flow.
    slots: Box<[[u32; 2]]>,
    log: u32,
    /// The last period in which a slot was written.
    last: u64,
}

#[derive(Debug)]
struct OldTable {
    flows: FlowTables,
    /// The last period in which a slot was written.
    last: u64,
}

/// Where a packet goes, and what to write when it gets room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) cpu: CpuId,
    target: CpuId,
    home: Home,
    slot: u32,
}

/// The table whose slot records where the packet's flow is.
#[derive(Clone, Copy, Debug)]
enum Home {
    OldRules,
    OldTable(usize),
    Current,
}

impl Transition {
    /// Begins a transition. `old` holds the former rules, if they kept no table.
    pub(crate) fn begin<B: Backlogs>(
        plan: &Plan,
        old: Option<Arc<Plan>>,
        backlogs: &mut B,
    ) -> Transition {
        let mut transition = Transition {
            period: FIRST,
            tails: Vec::new(),
            cpus: plan.possible.clone(),
            old: old.map(|plan| OldRules::new(plan, backlogs)),
            tables: Vec::new(),
            off_target: FIRST,
        };
        transition.note_tails(backlogs);
        transition
    }

    /// Records that the rules change again.
    pub(crate) fn rules_change(&mut self) {
        self.off_target = self.period;
    }

    /// Whether another table of another size can be added.
    pub(crate) fn has_room(&self) -> bool {
        self.tables.len() < MAX_OLD_TABLES
    }

    /// Records that a flow table of another size replaces `old`.
    pub(crate) fn table_changes(&mut self, old: FlowTables) {
        debug_assert!(self.has_room(), "asked for by the caller");
        self.tables.push(OldTable { flows: old, last: self.period });
    }

    /// Enters the next period if this one is over, frees tables and rules that are not needed any more, and
    /// returns whether the transition is over.
    pub(crate) fn is_over<B: Backlogs>(
        &mut self,
        rules_remember_flows: bool,
        backlogs: &mut B,
    ) -> bool {
        // Twice, for the case that no packet is under way; further checks never find more.
        for _ in 0..2 {
            if !self.is_period_over(backlogs) {
                break;
            }
            self.period += 1;
            self.note_tails(backlogs);
        }
        let period = self.period;
        let is_completed = |last: u64| period >= last + 2;
        if self.old.as_ref().is_some_and(|old| is_completed(old.last)) {
            self.old = None;
        }
        self.tables.retain(|table| !is_completed(table.last));
        let at_rest = rules_remember_flows || is_completed(self.off_target);
        self.old.is_none() && self.tables.is_empty() && at_rest
    }

    fn is_period_over<B: Backlogs>(&mut self, backlogs: &mut B) -> bool {
        let producer = backlogs.producer();
        self.tails.retain(|(cpu, last)| !backlogs.has_completed(producer, *cpu, *last));
        if let Some(old) = &mut self.old {
            for (cpu, tail) in self.cpus.iter().zip(&mut old.tails) {
                if tail.is_some_and(|last| backlogs.has_completed(producer, cpu, last)) {
                    *tail = None;
                }
            }
        }
        self.tails.is_empty()
    }

    fn note_tails<B: Backlogs>(&mut self, backlogs: &mut B) {
        let tail = |cpu| (cpu, backlogs.tail(cpu).wrapping_sub(1));
        self.tails.clear();
        self.tails.extend(self.cpus.iter().map(tail));
    }

    /// Chooses the CPU of a packet with the target `target`.
    pub(crate) fn place<B: Backlogs>(
        &mut self,
        packet: &Arrival,
        target: CpuId,
        flows: &FlowTables,
        backlogs: &mut B,
    ) -> Placed {
        if let Some(old) = &mut self.old {
            let cpu = old.cpu(packet);
            let slot = old.slot(packet, cpu);
            if old.holds(slot, cpu, backlogs) {
                return Placed { cpu, target, home: Home::OldRules, slot };
            }
        }
        for (index, table) in self.tables.iter_mut().enumerate() {
            let slot = table.flows.index(packet);
            match table.flows.get(slot).waiting(backlogs) {
                Some(cpu) => return Placed { cpu, target, home: Home::OldTable(index), slot },
                None => table.flows.set(slot, DevFlow::default()),
            }
        }
        let slot = flows.index(packet);
        let cpu = flows.get(slot).waiting(backlogs).unwrap_or(target);
        Placed { cpu, target, home: Home::Current, slot }
    }

    /// Records that the packet got room, as number `position`.
    pub(crate) fn queued(
        &mut self,
        placed: &Placed,
        producer: u16,
        position: u32,
        flows: &mut FlowTables,
    ) {
        let Placed { cpu, target, home, slot } = *placed;
        let flow = |before: DevFlow| before.queued(cpu, target, producer, position);
        match home {
            Home::Current => flows.set(slot, flow(flows.get(slot))),
            Home::OldTable(index) => {
                let table = &mut self.tables[index];
                table.flows.set(slot, flow(table.flows.get(slot)));
                table.last = self.period;
            }
            Home::OldRules => {
                if let Some(old) = &mut self.old {
                    let words = &mut old.slots[slot as usize];
                    *words = flow(DevFlow::of_words(*words)).words();
                    old.last = self.period;
                }
            }
        }
        if cpu != target {
            self.off_target = self.period;
        }
    }
}

impl OldRules {
    fn new<B: Backlogs>(plan: Arc<Plan>, backlogs: &mut B) -> OldRules {
        let cpus = &plan.possible;
        let mut part_of = vec![0; cpus.highest().index() + 1].into_boxed_slice();
        for (part, cpu) in (0..).zip(cpus.iter()) {
            part_of[cpu.index()] = part;
        }
        // There are as many slots in total as in the flow table, unless that makes the parts too small.
        let parts_log = cpus.len().next_power_of_two().trailing_zeros();
        let log = plan.flow_log().saturating_sub(parts_log).max(MIN_LOG);
        OldRules {
            part_of,
            tails: cpus.iter().map(|cpu| Some(backlogs.tail(cpu).wrapping_sub(1))).collect(),
            slots: unset(cpus.len() * row(log)),
            log,
            last: FIRST,
            plan,
        }
    }

    /// The CPU to which the old rules sent the packet's flow. It counts nothing: the present plan, which shares the counts
    /// of the old one, counts the packet.
    fn cpu(&self, packet: &Arrival) -> CpuId {
        let rules = &self.plan.rules;
        debug_assert!(!rules.remember_flows(), "the flow table has the CPU");
        let target = match &rules.policy.rule {
            Rule::Bound(bindings) => Some(rules.bound(bindings, packet)),
            Rule::Rps(maps) => maps.map(packet).map(by_hash(packet)),
            Rule::None | Rule::Sparse(..) => None,
        };
        target.unwrap_or_else(|| rules.local(packet)).cpu
    }

    /// The slot of a packet that the old rules send to `cpu`.
    fn slot(&self, packet: &Arrival, cpu: CpuId) -> u32 {
        let part = u32::from(self.part_of[cpu.index()]) * row(self.log) as u32;
        if packet.hash.is_none() {
            return part + (1 << self.log);
        }
        part + hash_32(packet.hash.get(), self.log)
    }

    /// Whether packets of this slot may be under way; all of them are on `cpu`.
    fn holds<B: Backlogs>(&mut self, slot: u32, cpu: CpuId, backlogs: &mut B) -> bool {
        let tail = &mut self.tails[usize::from(self.part_of[cpu.index()])];
        if let Some(last) = *tail {
            if !backlogs.has_completed(backlogs.producer(), cpu, last) {
                return true;
            }
            *tail = None;
        }
        let words = &mut self.slots[slot as usize];
        let waiting = DevFlow::of_words(*words).waiting(backlogs).is_some();
        if !waiting {
            *words = DevFlow::default().words();
        }
        waiting
    }
}
