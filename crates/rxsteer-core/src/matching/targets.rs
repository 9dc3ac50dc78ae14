//! Where the packets that a rule matches go.

use super::{Action, PacketRule, RulePolicy};
use crate::backlogs::Arrival;
use crate::chooser::Chooser;
use crate::cpu::{CpuId, CpuSet};
use crate::rps::RpsMap;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Where each rule sends packets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    of_rule: Box<[To]>,
    /// The different policies that rules name.
    choosers: Box<[Chooser]>,
}

#[derive(Debug, PartialEq, Eq)]
enum To {
    /// To the CPU that receives the packet.
    Local,
    Map(RpsMap),
    /// The CPU that the policy with this number chooses.
    Policy(usize),
}

impl Targets {
    /// Only usable CPUs get packets. If none is usable, packets stay on the CPU that receives them. `compiled` compiles
    /// the policy of a rule.
    pub(crate) fn new(
        rules: &[PacketRule],
        is_usable: impl Fn(CpuId) -> bool,
        compiled: impl Fn(RulePolicy) -> Chooser,
    ) -> Targets {
        let mut policies: Vec<RulePolicy> = Vec::new();
        let to = |rule: &PacketRule| match &rule.action {
            Action::Cpus(cpus) => CpuSet::new(cpus.iter().filter(|cpu| is_usable(*cpu)))
                .map_or(To::Local, |cpus| To::Map(RpsMap::new(&cpus))),
            Action::Local | Action::Pass => To::Local,
            Action::Policy(policy) => {
                let known = policies.iter().position(|known| known == policy);
                if known.is_none() {
                    policies.push(*policy);
                }
                To::Policy(known.unwrap_or(policies.len() - 1))
            }
        };
        let of_rule = rules.iter().map(to).collect();
        Targets { of_rule, choosers: policies.into_iter().map(compiled).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of_rule.is_empty()
    }

    /// The policies that rules name.
    pub(crate) fn choosers(&self) -> impl Iterator<Item = &Chooser> {
        self.choosers.iter()
    }

    fn to(&self, packet: &Arrival) -> Option<&To> {
        self.of_rule.get(usize::from(packet.rule.checked_sub(1)?))
    }

    /// The policy named by the rule that matches the packet, if there is one.
    pub(crate) fn chooser(&self, packet: &Arrival) -> Option<&Chooser> {
        match self.to(packet)? {
            To::Policy(number) => self.choosers.get(*number),
            To::Local | To::Map(_) => None,
        }
    }

    /// The CPU of a packet that a rule matches; `Some(None)` is the CPU that receives it. `None` if no rule matches it,
    /// or if a policy decides.
    pub(crate) fn cpu(&self, packet: &Arrival) -> Option<Option<CpuId>> {
        match self.to(packet)? {
            To::Map(map) if !packet.hash.is_none() => Some(Some(map.cpu(packet.hash))),
            To::Local | To::Map(_) => Some(None),
            To::Policy(_) => None,
        }
    }
}
