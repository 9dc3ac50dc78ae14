//! From one plan to the next, in order.
//!
//! While nothing changes, rules that always decide alike for a flow (`none`, `rps`, `bound`) keep no
//! flow table, and rules whose decisions can change keep one. A change can come to either; a
//! transition is what lies between, until every packet that was sent by what held before is
//! completed. While it lasts, every packet looks at its slot and writes it, whatever the rules.
//!
//! ```text
//!  change                    period 1 over              period n: old rules, old tables unused
//!    │ period 1                 │ period 2, 3, …           │
//!  ──▼──────────────────────────▼──────────────────────────▼─────────► time
//!    everyone by the old rules, │ a flow moves when its
//!    slots are filled           │ slot allows it
//! ```
//!
//! A *period* begins by noting, for each CPU, the tail of this producer's queue; it is over when all
//! of these tails are completed. So whatever was queued in period `p` or before is completed in
//! period `p + 2` and after. That is coarser than a slot's number, but holds for any set of packets.
//!
//! **Old rules.** Under rules without a table nobody knows where a flow's packets wait, but the old
//! rules say which CPU that is. In period 1 the packets from before the change may wait still, so
//! every flow keeps its old decision, and its slot is filled. After it, a flow whose slot is unset
//! has nothing under way. Where two flows of a slot went to two CPUs, one entry can't say that: the
//! slot is *mixed* and holds the period of its last packet; its flows keep their old decisions until
//! two periods have passed over one.
//!
//! **Tables of another size.** The old table is asked first. A flow whose slot there is under way
//! follows it and renews it; otherwise the flow is done with that table for good, since a slot
//! whose packets are completed is never renewed. So each table's slots are alone in knowing where
//! their flows are, the oldest table first.

use crate::cpu::CpuId;
use crate::order::{DevFlow, FlowTables};
use crate::plan::Plan;
use crate::steer::{Arrival, Backlogs};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The period a transition begins with.
const FIRST: u64 = 1;

/// Most tables of other sizes that may be in use at once; another change of size waits.
pub(crate) const MAX_OLD_TABLES: usize = 4;

#[derive(Debug)]
pub(crate) struct Transition {
    period: u64,
    /// The position before each queue's tail when the period began.
    tails: Box<[(CpuId, u32)]>,
    /// Those of `tails` before this one are completed.
    completed: usize,
    /// Rules without a table that held before.
    old: Option<OldRules>,
    /// Tables of other sizes, oldest first.
    tables: Vec<OldTable>,
    /// The last period in which a packet went elsewhere than the rules want it.
    detour: u64,
}

#[derive(Debug)]
struct OldRules {
    plan: Arc<Plan>,
    /// The last period in which they decided.
    last: u64,
}

#[derive(Debug)]
struct OldTable {
    flows: FlowTables,
    /// The last period in which a slot was renewed.
    last: u64,
}

/// Where a packet goes, and what is to be written when it gets its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) cpu: CpuId,
    want: CpuId,
    /// Index of the old table whose slot it is; `None` for the current one.
    table: Option<usize>,
    slot: u32,
    mixed: bool,
}

/// What a slot says of the packets that were queued by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// None is under way.
    Nowhere,
    /// Some may be under way on this CPU.
    On(CpuId),
    /// Some may be under way, on the CPUs that the old rules say.
    ByOldRules,
}

impl Transition {
    /// Begins one. `old` are the rules that held before, if they kept no table.
    pub(crate) fn begin<B: Backlogs>(
        plan: &Plan,
        old: Option<Arc<Plan>>,
        backlogs: &mut B,
    ) -> Transition {
        let mut transition = Transition {
            period: FIRST,
            tails: plan.possible.iter().map(|cpu| (cpu, 0)).collect(),
            completed: 0,
            old: old.map(|plan| OldRules { plan, last: FIRST }),
            tables: Vec::new(),
            detour: FIRST,
        };
        transition.note_tails(backlogs);
        transition
    }

    /// The rules change once more.
    pub(crate) fn rules_change(&mut self) {
        self.detour = self.period;
    }

    /// Whether a table of another size can be taken in.
    pub(crate) fn has_room(&self) -> bool {
        self.tables.len() < MAX_OLD_TABLES
    }

    /// The table of flows is replaced by one of another size.
    pub(crate) fn table_changes(&mut self, old: FlowTables) {
        debug_assert!(self.has_room(), "asked for by the caller");
        self.tables.push(OldTable { flows: old, last: self.period });
    }

    /// Goes on to the next period if this one is over, lets go of what is not needed any more, and
    /// says whether the transition is over.
    pub(crate) fn is_over<B: Backlogs>(
        &mut self,
        rules_remember_flows: bool,
        backlogs: &mut B,
    ) -> bool {
        // Twice, where nothing at all is under way: asking once more never tells more.
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
        let at_rest = rules_remember_flows || is_completed(self.detour);
        self.old.is_none() && self.tables.is_empty() && at_rest
    }

    fn is_period_over<B: Backlogs>(&mut self, backlogs: &mut B) -> bool {
        let producer = backlogs.producer();
        while let Some(&(cpu, last)) = self.tails.get(self.completed) {
            if !backlogs.has_completed(producer, cpu, last) {
                return false;
            }
            self.completed += 1;
        }
        true
    }

    fn note_tails<B: Backlogs>(&mut self, backlogs: &mut B) {
        for (cpu, last) in &mut self.tails {
            *last = backlogs.tail(*cpu).wrapping_sub(1);
        }
        self.completed = 0;
    }

    /// Where a packet goes that the rules want on `want`.
    pub(crate) fn place<B: Backlogs>(
        &self,
        packet: &Arrival,
        want: CpuId,
        flows: &FlowTables,
        backlogs: &mut B,
    ) -> Placed {
        let (table, slot, waiting) = self.home(packet, flows, backlogs);
        let by_old_rules = || {
            let old = self.old.as_ref();
            old.map_or(want, |old| old.plan.want(packet, backlogs.producer()).cpu)
        };
        let (cpu, mixed) = if self.old.is_some() && self.period == FIRST {
            let cpu = by_old_rules();
            let mixed = match waiting {
                Waiting::Nowhere => false,
                Waiting::On(other) => other != cpu,
                Waiting::ByOldRules => true,
            };
            (cpu, mixed)
        } else {
            match waiting {
                Waiting::Nowhere => (want, false),
                Waiting::On(cpu) => (cpu, false),
                Waiting::ByOldRules => (by_old_rules(), true),
            }
        };
        Placed { cpu, want, table, slot, mixed }
    }

    /// The slot that knows where the packet's flow is: that of the oldest table in which packets
    /// are under way, else that of the current one.
    fn home<B: Backlogs>(
        &self,
        packet: &Arrival,
        flows: &FlowTables,
        backlogs: &mut B,
    ) -> (Option<usize>, u32, Waiting) {
        for (index, table) in self.tables.iter().enumerate() {
            let slot = table.flows.index(packet);
            let waiting = self.waiting(table.flows.get(slot), backlogs);
            if waiting != Waiting::Nowhere {
                return (Some(index), slot, waiting);
            }
        }
        let slot = flows.index(packet);
        (None, slot, self.waiting(flows.get(slot), backlogs))
    }

    fn waiting<B: Backlogs>(&self, flow: DevFlow, backlogs: &mut B) -> Waiting {
        if let Some(period) = flow.period() {
            // Without old rules all they decided is completed.
            let under_way = self.old.is_some() && self.period < period + 2;
            return if under_way { Waiting::ByOldRules } else { Waiting::Nowhere };
        }
        match flow.last() {
            Some((cpu, producer, last)) if !backlogs.has_completed(producer, cpu, last) => {
                Waiting::On(cpu)
            }
            _ => Waiting::Nowhere,
        }
    }

    /// The packet got its place, as number `position`.
    pub(crate) fn queued(
        &mut self,
        placed: &Placed,
        producer: u16,
        position: u32,
        flows: &mut FlowTables,
    ) {
        let flow = if placed.mixed {
            if let Some(old) = &mut self.old {
                old.last = self.period;
            }
            DevFlow::mixed(self.period)
        } else {
            DevFlow::queued(placed.cpu, producer, position)
        };
        match placed.table {
            None => flows.set(placed.slot, flow),
            Some(index) => {
                let table = &mut self.tables[index];
                table.flows.set(placed.slot, flow);
                table.last = self.period;
            }
        }
        if placed.cpu != placed.want {
            self.detour = self.period;
        }
    }
}
