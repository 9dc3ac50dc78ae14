//! A compiled policy, which chooses a packet's CPU. There is also one for each different policy that rules name.

use crate::admission::{Candidates, Slots};
use crate::balance::Buckets;
use crate::bound::Bindings;
use crate::config::SteerConfig;
use crate::cpu::CpuId;
use crate::maps::Maps;
use crate::policy::{Fallback, Policy};
use crate::queue_name::QueueName;
use crate::slot_request::SlotRequest;
use crate::sparse::NoSlot;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A policy, compiled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chooser {
    /// Whether desired CPUs take precedence over the other rule.
    pub(crate) rfs: bool,
    pub(crate) rule: Rule,
}

/// The rule that places a flow without a desired CPU.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    None,
    Rps(Maps),
    Bound(Bindings),
    Sparse(Maps, InSlots),
}

/// The settings of sparse slots, and the counts of flows without a slot, if they are counted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InSlots {
    pub(crate) slots: Slots,
    candidates: Option<Arc<Candidates>>,
}

/// How sparse slots are given away. A batch of packets reads it once from [`InSlots`].
#[derive(Clone, Copy)]
pub(crate) struct SlotSettings<'a> {
    /// The slots of each CPU.
    pub(crate) loops: u8,
    /// The counts of flows without a slot, and the packet that is admitted; `None` if all flows are admitted.
    pub(crate) admission: Option<(&'a Candidates, u8)>,
}

/// The input for compiling policies.
pub(crate) struct Tables<'a> {
    pub(crate) config: &'a SteerConfig,
    pub(crate) is_usable: &'a dyn Fn(CpuId) -> bool,
    /// For each RX queue, the CPU of packets that are not steered.
    pub(crate) local: &'a [CpuId],
    pub(crate) buckets: Option<&'a Buckets>,
    pub(crate) candidates: Option<&'a Arc<Candidates>>,
}

impl Tables<'_> {
    /// The CPU maps, or the table of buckets that replaces them.
    fn maps(&self) -> Maps {
        match self.buckets {
            Some(buckets) => Maps::of_buckets(self.config, self.is_usable, self.local, buckets),
            None => Maps::new(self.config, self.is_usable, self.local),
        }
    }

    fn bindings(&self, bindings: &[(QueueName, CpuId)]) -> Bindings {
        let bound = |queue| QueueName::most_specific(bindings, None, queue).copied();
        let queues = (0..self.local.len() as u16).map(|queue| (queue, bound(queue)));
        let online = queues.filter_map(|(queue, cpu)| Some((queue, cpu?)));
        let online = online.filter(|(_, cpu)| (self.is_usable)(*cpu));
        Bindings::new(&online.collect::<Vec<_>>())
    }
}

impl Chooser {
    pub(crate) fn new(policy: &Policy, tables: &Tables<'_>) -> Chooser {
        let is_local = tables.config.fallback == Fallback::Local;
        let rule = match (policy, policy.slots()) {
            (Policy::None, _) => Rule::None,
            (Policy::Bound(bindings), _) => Rule::Bound(tables.bindings(bindings)),
            (Policy::Rfs, _) if is_local => Rule::None,
            (_, None) => Rule::Rps(tables.maps()),
            (_, Some(slots)) => {
                let candidates = tables.candidates.filter(|_| slots.after > 1).cloned();
                Rule::Sparse(tables.maps(), InSlots { slots, candidates })
            }
        };
        Chooser { rfs: policy.is_rfs(), rule }
    }

    /// Whether it can change a flow's CPU while the settings stay the same.
    pub(crate) fn moves_flows(&self) -> bool {
        self.rfs || self.goes_by_time()
    }

    /// Whether decisions depend on the packets' times.
    #[inline(always)]
    pub(crate) fn goes_by_time(&self) -> bool {
        matches!(self.rule, Rule::Sparse(..))
    }
}

impl InSlots {
    #[inline(always)]
    pub(crate) fn settings(&self) -> SlotSettings<'_> {
        let admission = self.candidates.as_deref().map(|candidates| (candidates, self.slots.after));
        SlotSettings { loops: self.slots.loops, admission }
    }

    /// Why a flow without a slot would not be admitted. It changes nothing.
    pub(crate) fn refused(&self, request: &SlotRequest) -> Option<NoSlot> {
        let (candidates, after) = self.settings().admission?;
        let before = candidates.peek(request).map_or(0, |known| known.packets);
        let packet = before.saturating_add(1);
        (packet < after).then_some(NoSlot::NotAdmitted { packet, after })
    }
}
