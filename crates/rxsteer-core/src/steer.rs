//! `decide`: for each packet of a batch, the CPU that will process it.
//!
//! ```text
//!   arrivals ──► target (rule | rfs | slot | hash | binding | local) ──► order guard ──► reserve room
//!                                                                    ▲                 │ accepted
//!                                                                    └── flow table ◄──┴──► verdict
//! ```
//!
//! Invariants:
//! - Deciding a batch gives the same result as deciding its packets one by one.
//! - Only a packet that got room in a backlog affects later decisions. A refused packet leaves no trace that could
//!   block its flow.
//! - A decision that differs from the flow's last one passes the order guard ([`crate::order`]), or during a
//!   change the [transition](crate::transition). Rules under which a flow's CPU can't change keep no flow table
//!   and have no cost for it.

use crate::backlogs::{Arrival, Backlogs, Refusal};
use crate::balance::NoBuckets;
use crate::chooser::{Chooser, Rule};
use crate::config::{ConfigError, SteerConfig};
use crate::counters::SteerCounts;
use crate::cpu::CpuId;
use crate::flow_limit::FlowLimiter;
use crate::loops::{
    ByHash, BySlot, EnqueuePolicy, FlowLimited, Guarded, LIST, Scratch, Stays, Tally, Unlimited,
    place,
};
use crate::maps::by_hash;
use crate::order::{DevFlow, FlowTables, allowed};
use crate::plan::Plan;
use crate::target::TargetRule;
use crate::transition::Transition;
use crate::verdict::Verdict;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

/// The steering policy, with the state of one producer.
#[derive(Debug)]
pub struct Steering {
    plan: Arc<Plan>,
    flows: FlowTables,
    /// For each RX queue, the index of its flow table.
    table_of_queue: Arc<[u16]>,
    /// Set from a change until all packets queued before the change are completed.
    transition: Option<Box<Transition>>,
    limiter: Option<FlowLimiter>,
    counts: SteerCounts,
    scratch: Scratch,
}

impl Steering {
    /// The policy of `config`, with its own tables, for a producer that receives every RX queue.
    ///
    /// # Errors
    /// [`ConfigError`] when settings contradict each other.
    pub fn new(config: &SteerConfig) -> Result<Steering, ConfigError> {
        let queues = 0..config.receiving_cpus.len() as u16;
        Ok(Steering::of_plan(Arc::new(Plan::new(config, 1)?), queues))
    }

    /// The policy of `plan`, for a producer that receives the RX queues `queues`. All producers of a plan share
    /// its sock flow table and its sparse slots.
    ///
    /// # Panics
    /// When one of the queues does not exist.
    #[must_use]
    pub fn of_plan(plan: Arc<Plan>, queues: impl IntoIterator<Item = u16>) -> Steering {
        let mut table_of_queue = vec![0; plan.config.receiving_cpus.len()];
        for (table, queue) in (0..).zip(queues) {
            table_of_queue[usize::from(queue)] = table;
        }
        let table_of_queue: Arc<[u16]> = table_of_queue.into();
        let flows = if plan.rules.remember_flows() {
            FlowTables::new(plan.flow_log(), plan.config.slot_order, &table_of_queue)
        } else {
            FlowTables::none()
        };
        Steering {
            limiter: plan.config.flow_limit.map(FlowLimiter::new),
            plan,
            flows,
            table_of_queue,
            transition: None,
            counts: SteerCounts::default(),
            scratch: Scratch {
                slots: Box::new([0; LIST]),
                desired: Box::new([0; LIST]),
                loaded: 0,
            },
        }
    }

    /// Changes to `plan`, which was made from the present plan ([`Plan::next`]). Flows move as their packets
    /// allow. Call this between batches. A new size of the flow tables waits while
    /// [`crate::transition::MAX_OLD_TABLES`] tables of other sizes are still in use; all other settings apply at
    /// once.
    pub fn change<B: Backlogs>(&mut self, plan: &Arc<Plan>, backlogs: &mut B) {
        let remembers = plan.rules.remember_flows();
        let old = core::mem::replace(&mut self.plan, plan.clone());
        if old.config.flow_limit != plan.config.flow_limit {
            self.limiter = plan.config.flow_limit.map(FlowLimiter::new);
        }
        if let Some(transition) = &mut self.transition {
            transition.rules_change();
        } else if self.flows.is_none() {
            if old.rules != plan.rules {
                let order = plan.config.slot_order;
                self.flows = FlowTables::new(plan.flow_log(), order, &self.table_of_queue);
                self.transition = Some(Box::new(Transition::begin(plan, Some(old), backlogs)));
            }
        } else if !remembers || self.flows.log() != plan.flow_log() {
            self.transition = Some(Box::new(Transition::begin(plan, None, backlogs)));
        }
        self.resize();
    }

    /// Replaces the flow tables by tables of the plan's size, if their size differs and if that is possible now.
    fn resize(&mut self) -> bool {
        let log = self.plan.flow_log();
        if let Some(transition) = &mut self.transition
            && self.plan.rules.remember_flows()
            && self.flows.log() != log
            && transition.has_room()
        {
            let order = self.plan.config.slot_order;
            let tables = FlowTables::new(log, order, &self.table_of_queue);
            transition.table_changes(core::mem::replace(&mut self.flows, tables));
            return true;
        }
        false
    }

    /// Decides for `arrivals` in their order: the verdict of the `i`-th packet is `verdicts[i]`. Returns the
    /// number of packets decided: all, or those before the first packet that must wait for room.
    ///
    /// # Panics
    /// When `verdicts` is shorter than `arrivals`.
    #[inline(never)]
    pub fn decide<B: Backlogs>(
        &mut self,
        arrivals: &[Arrival],
        backlogs: &mut B,
        verdicts: &mut [Verdict],
    ) -> usize {
        let verdicts = &mut verdicts[..arrivals.len()];
        if self.transition.is_some() && !self.is_drained(backlogs) {
            return self.decide_in_transition(arrivals, backlogs, verdicts);
        }
        match self.limiter.take() {
            None => self.decide_steadily(arrivals, &mut Unlimited(backlogs), verdicts),
            Some(mut limiter) => {
                let mut flow_limited = FlowLimited { backlogs, limiter: &mut limiter };
                let decided = self.decide_steadily(arrivals, &mut flow_limited, verdicts);
                self.limiter = Some(limiter);
                decided
            }
        }
    }

    /// Whether no packet sent before the last change is under way. This call and [`Steering::decide`] detect the
    /// end of a transition.
    pub fn is_drained<B: Backlogs>(&mut self, backlogs: &mut B) -> bool {
        let remembers = self.plan.rules.remember_flows();
        loop {
            let Some(transition) = &mut self.transition else { return true };
            let is_over = transition.is_over(remembers, backlogs);
            // A size that had to wait may have room now. Its old table may already be empty.
            if self.resize() {
                continue;
            }
            if !is_over {
                return false;
            }
            break;
        }
        self.transition = None;
        if !remembers {
            self.flows = FlowTables::none();
        }
        true
    }

    /// Has one loop per rule, so that the rule is examined once per batch.
    #[inline(always)]
    fn decide_steadily<A: EnqueuePolicy>(
        &mut self,
        arrivals: &[Arrival],
        enqueue: &mut A,
        verdicts: &mut [Verdict],
    ) -> usize {
        if self.plan.matcher.is_some() {
            return self.decide_with_rules(arrivals, enqueue, verdicts);
        }
        let Plan { rules, socks, sparse, .. } = &*self.plan;
        let Chooser { rfs, rule } = &rules.policy;
        let mut guarded = Guarded {
            flows: &mut self.flows,
            counts: &mut self.counts,
            scratch: &mut self.scratch,
            rules,
            socks,
            has_desired: *rfs && socks.has_desired(),
        };
        let producer = enqueue.backlogs().producer();
        match rule {
            Rule::Sparse(maps, in_slots) => {
                let table = (&**sparse, producer);
                match maps.row(producer) {
                    None => {
                        let by_slot = BySlot::new(rules, maps, in_slots, table, NoBuckets);
                        guarded.place(arrivals, enqueue, verdicts, &by_slot)
                    }
                    Some(row) => {
                        let by_slot = BySlot::new(rules, maps, in_slots, table, row);
                        guarded.place(arrivals, enqueue, verdicts, &by_slot)
                    }
                }
            }
            Rule::Rps(maps) if *rfs => match maps.row(producer) {
                None => guarded.place(arrivals, enqueue, verdicts, &ByHash::new(maps, NoBuckets)),
                Some(row) => guarded.place(arrivals, enqueue, verdicts, &ByHash::new(maps, row)),
            },
            Rule::Rps(maps) if let Some(row) = maps.row(producer) => {
                let counts = (guarded.counts, TargetRule::Hash);
                place(arrivals, enqueue, verdicts, counts, |packet| match maps.map(packet) {
                    None => rules.local(packet),
                    Some(map) => map.by_hash(packet, row),
                })
            }
            Rule::Rps(maps) => match maps.single() {
                // All queues share one map, so no lookup is needed.
                Some(map) => {
                    let (queues, counts) =
                        (maps.of_queue.len(), (guarded.counts, TargetRule::Hash));
                    place(arrivals, enqueue, verdicts, counts, |packet| {
                        if packet.hash.is_none() || usize::from(packet.rx_queue) >= queues {
                            rules.local(packet)
                        } else {
                            by_hash(packet)(map)
                        }
                    })
                }
                None => {
                    let counts = (guarded.counts, TargetRule::Hash);
                    place(arrivals, enqueue, verdicts, counts, |packet| {
                        maps.map(packet).map_or_else(|| rules.local(packet), by_hash(packet))
                    })
                }
            },
            Rule::Bound(bindings) => {
                let counts = (guarded.counts, TargetRule::Bound);
                place(arrivals, enqueue, verdicts, counts, |packet| rules.bound(bindings, packet))
            }
            Rule::None if *rfs => guarded.place(arrivals, enqueue, verdicts, &Stays(rules)),
            Rule::None => {
                let counts = (guarded.counts, TargetRule::Local);
                place(arrivals, enqueue, verdicts, counts, |packet| rules.local(packet))
            }
        }
    }

    /// The loop with rules before the policy: packet by packet, with a flow table under every policy.
    #[inline(never)]
    fn decide_with_rules<A: EnqueuePolicy>(
        &mut self,
        arrivals: &[Arrival],
        enqueue: &mut A,
        verdicts: &mut [Verdict],
    ) -> usize {
        let (plan, flows) = (&*self.plan, &mut self.flows);
        let producer = enqueue.backlogs().producer();
        let mut tally = Tally::default();
        let mut decided = arrivals.len();
        for (index, packet) in arrivals.iter().enumerate() {
            let target = plan.target(packet, producer);
            let slot = flows.index(packet);
            let flow = flows.get(slot);
            let cpu = allowed(flow, target, &plan.rules, enqueue.backlogs());
            verdicts[index] = match enqueue.admit(cpu, packet) {
                Ok(position) => {
                    flows.set(slot, flow.queued(cpu, target.cpu, producer, position));
                    Verdict::deliver(cpu)
                }
                Err(Refusal::Drop(reason)) => Verdict::drop(cpu, reason),
                Err(Refusal::Wait) => {
                    plan.rules.waits(packet, target, producer);
                    decided = index;
                    break;
                }
            };
            tally.add(target, cpu);
        }
        self.counts.add(&tally);
        decided
    }

    #[cold]
    #[inline(never)]
    fn decide_in_transition<B: Backlogs>(
        &mut self,
        arrivals: &[Arrival],
        backlogs: &mut B,
        verdicts: &mut [Verdict],
    ) -> usize {
        let Some(transition) = &mut self.transition else { return 0 };
        let producer = backlogs.producer();
        for (index, packet) in arrivals.iter().enumerate() {
            let target = self.plan.target(packet, producer);
            let placed = transition.place(packet, target.cpu, &self.flows, backlogs);
            let admitted = match &mut self.limiter {
                None => Unlimited(backlogs).admit(placed.cpu, packet),
                Some(limiter) => FlowLimited { backlogs, limiter }.admit(placed.cpu, packet),
            };
            verdicts[index] = match admitted {
                Ok(position) => {
                    transition.queued(&placed, producer, position, &mut self.flows);
                    Verdict::deliver(placed.cpu)
                }
                Err(Refusal::Drop(reason)) => Verdict::drop(placed.cpu, reason),
                Err(Refusal::Wait) => {
                    self.plan.rules.waits(packet, target, producer);
                    return index;
                }
            };
            let mut tally = Tally::default();
            tally.add(target, placed.cpu);
            self.counts.add(&tally);
        }
        arrivals.len()
    }

    /// The plan in use.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Whether decisions depend on the packets' times ([`crate::sparse`]).
    #[inline(always)]
    #[must_use]
    pub fn goes_by_time(&self) -> bool {
        self.plan.rules.choosers().any(Chooser::goes_by_time)
    }

    /// How many packets each mechanism has decided on so far.
    #[must_use]
    pub fn counts(&self) -> SteerCounts {
        self.counts
    }

    /// The CPU that receives `rx_queue`. As in the kernel, a queue number out of range counts as queue 0.
    #[must_use]
    pub fn default_cpu(&self, rx_queue: u16) -> CpuId {
        self.plan.rules.local(&Arrival { rx_queue, ..Arrival::default() }).cpu
    }

    /// Whether a transition is in progress.
    #[must_use]
    pub fn is_in_transition(&self) -> bool {
        self.transition.is_some()
    }

    /// The packet's flow table slot outside a transition: its index, the number of slots of a queue's table, and
    /// its content.
    pub(crate) fn flow_slot(&self, packet: &Arrival) -> Option<(u32, u32, DevFlow)> {
        if self.flows.is_none() {
            return None;
        }
        let index = self.flows.index(packet);
        Some((index, 1 << self.flows.log(), self.flows.get(index)))
    }
}

#[cfg(all(test, not(loom)))]
#[path = "steer_tests.rs"]
mod tests;
