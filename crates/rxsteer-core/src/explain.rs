//! Why a packet goes to its CPU, and what must happen before its flow can move. The explanation reads the same
//! tables and rules as `decide`, and changes nothing.

use crate::backlogs::{Arrival, Backlogs};
use crate::chooser::{Chooser, Rule};
use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::maps::{Map, Maps, by_hash};
use crate::matching::{PacketRule, RulePolicy};
use crate::order::{DevFlow, allowed};
use crate::policy::Fallback;
use crate::sparse::SlotId;
use crate::steer::Steering;
use crate::target::{Target, TargetRule};

pub use crate::sparse::NoSlot;

/// One decision, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The flow hash; 0 is none.
    pub hash: FlowHash,
    /// The RX queue that received the packet.
    pub rx_queue: u16,
    /// The device of that queue.
    pub device: u16,
    /// The entry of the sock flow table, under `rfs`.
    pub desired: Option<Desired>,
    /// The rule before the policy that matches the packet, and its index, from 0.
    pub rule: Option<(usize, PacketRule)>,
    /// The rule that chose `target`.
    pub reason: Reason,
    /// The CPU that the rules choose, before the order guard.
    pub target: CpuId,
    /// The packet's slot of the flow table, if there is a flow table.
    pub flow: Option<FlowSlot>,
    /// The CPU that the packet goes to.
    pub cpu: CpuId,
    /// Whether a transition is still in progress, so that old decisions may still apply.
    pub in_transition: bool,
}

impl Explanation {
    /// The policy of the matching rule, if the rule names one, and the index of the rule, from 0.
    #[must_use]
    pub fn own_policy(&self) -> Option<(usize, RulePolicy)> {
        let (index, rule) = self.rule.as_ref()?;
        Some((*index, rule.action.policy()?))
    }
}

/// A packet's entry of the sock flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The index of the entry.
    pub index: u32,
    /// The number of entries of the table.
    pub entries: u32,
    /// The content of the entry.
    pub state: DesiredState,
}

/// The meaning of a sock flow table entry for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredState {
    /// No desired CPU was recorded.
    Unset,
    /// The entry holds the desired CPU of another flow.
    OfAnotherFlow,
    /// The flow's application runs on this CPU.
    Cpu(CpuId),
    /// The flow's application runs on this CPU, which is offline or not one of
    /// [`SteerConfig::rfs_cpus`](crate::SteerConfig::rfs_cpus).
    Unusable(CpuId),
}

/// The rule that chose a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A rule before the policy matches the packet.
    Matched {
        /// The index of the rule, from 0.
        rule: usize,
    },
    /// The policy steers nothing: the packet stays on the CPU that receives it.
    PolicyNone,
    /// The packet has no flow hash: it stays on the CPU that receives it.
    NoHash,
    /// The RX queue does not exist: the packet counts as one of queue 0 and is not steered.
    NoSuchQueue,
    /// The packet's RX queue is bound.
    Bound,
    /// The packet's RX queue is not bound, or is bound to an offline CPU: the packet stays on the CPU that
    /// receives it.
    NotBound,
    /// The hash picked an entry of the queue's CPU map.
    Hash {
        /// The index of the entry, from 0.
        index: usize,
        /// The number of entries of the map.
        entries: usize,
        /// Whether the CPU of that entry is offline, so that the receiving CPU takes its place.
        offline: bool,
        /// Why the flow has no sparse slot, under rules that give slots.
        no_slot: Option<NoSlot>,
    },
    /// The hash picked a bucket, and the load decided which CPU has the bucket ([`crate::balance`]).
    Bucket {
        /// The number of the bucket, from 0.
        index: usize,
        /// The number of buckets.
        buckets: usize,
        /// Why the flow has no sparse slot, under rules that give slots.
        no_slot: Option<NoSlot>,
    },
    /// The flow holds a sparse slot, or would get one.
    Slot {
        /// The slot.
        slot: SlotId,
        /// Whether the flow already holds the slot.
        held: bool,
    },
    /// The flow's application runs on the CPU.
    Rfs,
    /// No rule places the flow, and so it stays on the CPU that receives it ([`Fallback::Local`]).
    Stays {
        /// Why the flow has no sparse slot, under rules that give slots.
        no_slot: Option<NoSlot>,
    },
}

/// A packet's slot of its RX queue's flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSlot {
    /// The index of the slot among the slots of all queues.
    pub index: u32,
    /// The number of slots of one queue's table.
    pub entries: u32,
    /// The CPU, the producer and the sequence number of the last packet.
    pub last: Option<(CpuId, u16, u32)>,
    /// Whether that packet is completed, so that the order guard lets the slot's flows move.
    pub completed: bool,
    /// How many packets in a row may still follow the slot although only their hash places them.
    pub hysteresis: u32,
}

impl Steering {
    /// Explains where `packet` would go now, and why.
    ///
    /// During a transition ([`Explanation::in_transition`]) the former rules may still hold flows back. The
    /// explanation then is that of the new rules.
    #[must_use]
    pub fn explain<B: Backlogs>(&self, packet: &Arrival, backlogs: &mut B) -> Explanation {
        self.explain_with(packet, backlogs, self.flow_slot(packet))
    }

    /// Explains `packet` with `slot` as its flow table slot: the index, the number of slots of the table, and the
    /// content.
    pub(crate) fn explain_with<B: Backlogs>(
        &self,
        packet: &Arrival,
        backlogs: &mut B,
        slot: Option<(u32, u32, DevFlow)>,
    ) -> Explanation {
        let plan = self.plan();
        let rules = &plan.rules;
        let chooser = rules.chooser(packet);
        let desired = chooser.rfs.then(|| self.desired_of(packet));
        let rule = usize::from(packet.rule).saturating_sub(1);
        let matching = plan.config.packet_rules.get(rule).filter(|_| packet.rule != 0);
        let matched = rules.matched_target(packet);
        let (target, reason) = match (matched, rules.desired_target(&plan.socks, packet)) {
            (Some(target), _) => (target, Reason::Matched { rule }),
            (None, Some(target)) if chooser.rfs => (target, Reason::Rfs),
            _ => self.placed(chooser, packet, backlogs.producer()),
        };
        let flow = slot.map(|(index, entries, flow)| FlowSlot {
            index,
            entries,
            last: flow.last(),
            completed: flow.waiting(backlogs).is_none(),
            hysteresis: flow.hysteresis(),
        });
        Explanation {
            hash: packet.hash,
            rx_queue: packet.rx_queue,
            device: rules.slot_request(packet, 0).device,
            desired,
            rule: matching.map(|matching| (rule, matching.clone())),
            reason,
            target: target.cpu,
            flow,
            cpu: slot.map_or(target.cpu, |(_, _, flow)| allowed(flow, target, rules, backlogs)),
            in_transition: self.is_in_transition(),
        }
    }

    fn desired_of(&self, packet: &Arrival) -> Desired {
        let plan = self.plan();
        let socks = &plan.socks;
        let state = match socks.desired(packet.hash) {
            Some(cpu) if plan.rules.desired_target(socks, packet).is_some() => {
                DesiredState::Cpu(cpu)
            }
            Some(cpu) => DesiredState::Unusable(cpu),
            None if packet.hash.is_none() || socks.raw(packet.hash) == 0 => DesiredState::Unset,
            None => DesiredState::OfAnotherFlow,
        };
        Desired { index: socks.index(packet.hash), entries: socks.len(), state }
    }

    /// The CPU and the reason for a flow without a desired CPU.
    fn placed(&self, chooser: &Chooser, packet: &Arrival, producer: u16) -> (Target, Reason) {
        let rules = &self.plan().rules;
        let local = |reason| (rules.local(packet), reason);
        match &chooser.rule {
            Rule::None if chooser.rfs => {
                self.unsteered(packet).unwrap_or_else(|| local(Reason::Stays { no_slot: None }))
            }
            Rule::None => local(Reason::PolicyNone),
            Rule::Bound(bindings) => match bindings.cpu(packet.rx_queue) {
                Some(_) => (rules.bound(bindings, packet), Reason::Bound),
                None => local(Reason::NotBound),
            },
            Rule::Rps(maps) => self.by_map(packet, maps, Fallback::Hash, |_| None),
            Rule::Sparse(maps, in_slots) => {
                let sparse = &self.plan().sparse;
                let request = rules.slot_request(packet, producer);
                let (loops, not_admitted) = (in_slots.slots.loops, in_slots.refused(&request));
                let found =
                    maps.map(packet).and_then(|map| sparse.peek(&request, &map.walk, loops));
                if let Some((slot, held)) = found
                    && (held || not_admitted.is_none())
                {
                    let target = Target { cpu: slot.cpu, by: TargetRule::Slot };
                    return (target, Reason::Slot { slot, held });
                }
                self.by_map(packet, maps, rules.fallback(), |_| {
                    let active = sparse.is_hash_active(&request);
                    let refused = if active { NoSlot::HashActive } else { NoSlot::AllTaken };
                    Some(not_admitted.unwrap_or(refused))
                })
            }
        }
    }

    /// The CPU for a packet without a flow, or of a queue that does not exist.
    fn unsteered(&self, packet: &Arrival) -> Option<(Target, Reason)> {
        let rules = &self.plan().rules;
        let local = |reason| Some((rules.local(packet), reason));
        match usize::from(packet.rx_queue) >= rules.local.len() {
            true => local(Reason::NoSuchQueue),
            false if packet.hash.is_none() => local(Reason::NoHash),
            false => None,
        }
    }

    fn by_map(
        &self,
        packet: &Arrival,
        maps: &Maps,
        fallback: Fallback,
        no_slot: impl Fn(&Map) -> Option<NoSlot>,
    ) -> (Target, Reason) {
        let rules = &self.plan().rules;
        let map = match (maps.map(packet), self.unsteered(packet)) {
            (Some(map), None) => map,
            (_, unsteered) => {
                return unsteered.unwrap_or((rules.local(packet), Reason::NoSuchQueue));
            }
        };
        if fallback == Fallback::Local {
            return (rules.local(packet), Reason::Stays { no_slot: no_slot(map) });
        }
        let target = by_hash(packet)(map);
        let index = map.rps.index(packet.hash);
        if maps.counts.is_some() {
            let buckets = map.rps.len();
            return (target, Reason::Bucket { index, buckets, no_slot: no_slot(map) });
        }
        let configured = self.plan().config.map_of(packet.rx_queue).as_slice()[index];
        let (entries, offline) = (map.rps.len(), configured != target.cpu);
        (target, Reason::Hash { index, entries, offline, no_slot: no_slot(map) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admission::Slots;
    use crate::backlogs::Refusal;
    use crate::config::SteerConfig;
    use crate::policy::Policy;
    use crate::verdict::Verdict;
    use alloc::vec;

    /// Backlogs that never complete a packet.
    struct Stuck(u32);

    impl Backlogs for Stuck {
        fn reserve(&mut self, _cpu: CpuId) -> Result<u32, Refusal> {
            self.0 += 1;
            Ok(self.0)
        }
        fn has_completed(&mut self, _producer: u16, _cpu: CpuId, _position: u32) -> bool {
            false
        }
        fn tail(&self, _cpu: CpuId) -> u32 {
            self.0 + 1
        }
        fn waiting(&mut self, _cpu: CpuId) -> (u32, u32) {
            (0, 100)
        }
    }

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    fn steering(policy: Policy) -> Steering {
        let config = SteerConfig::new(policy, "1-2".parse().unwrap(), vec![cpu(0)]);
        Steering::new(&config).unwrap()
    }

    fn packet(hash: u32) -> Arrival {
        Arrival { hash: FlowHash::from_raw(hash), ..Arrival::default() }
    }

    #[test]
    fn explanation_predicts_the_decision_and_leaves_no_trace() {
        let policies = [
            "none",
            "rps",
            "bound:0=2",
            "sparse:loops=1",
            "sparse:after=3",
            "rfs",
            "rfs+sparse:after=2",
            "rfs+sparse",
            "rps+balance",
            "rfs+sparse+balance:buckets=256",
        ];
        for (policy, fallback) in policies
            .into_iter()
            .flat_map(|policy| [Fallback::Hash, Fallback::Local].map(|fallback| (policy, fallback)))
        {
            let cpus = "1-2".parse().unwrap();
            let config = SteerConfig {
                fallback,
                ..SteerConfig::new(policy.parse().unwrap(), cpus, vec![cpu(0)])
            };
            let mut steering = Steering::new(&config).unwrap();
            let mut backlogs = Stuck(0);
            for n in 0..40u32 {
                let hash = FlowHash::from_raw((n * n % 7).wrapping_mul(0x2345_6789));
                let packet =
                    Arrival { time_ns: u64::from(n) * 400_000_000, hash, ..Arrival::default() };
                if n % 5 == 0 {
                    steering.plan().sock_flows().record(hash, cpu((n % 4) as u16));
                }
                let explanation = steering.explain(&packet, &mut backlogs);
                assert_eq!(explanation, steering.explain(&packet, &mut backlogs), "{policy} {n}");
                let mut verdict = [Verdict::default()];
                steering.decide(&[packet], &mut backlogs, &mut verdict);
                assert_eq!(explanation.cpu, verdict[0].cpu(), "{policy} {n}: {explanation:?}");
            }
        }
    }

    #[test]
    fn flow_whose_packet_is_under_way_waits() {
        let mut steering = steering(Policy::Rfs);
        let mut backlogs = Stuck(9);
        let mut verdict = [Verdict::default()];
        steering.decide(&[packet(1)], &mut backlogs, &mut verdict);
        steering.plan().sock_flows().record(FlowHash::from_raw(1), cpu(2));
        let explanation = steering.explain(&packet(1), &mut backlogs);
        assert_eq!(
            (explanation.target, explanation.cpu, explanation.reason),
            (cpu(2), cpu(1), Reason::Rfs)
        );
        assert_eq!(
            explanation.desired.map(|desired| desired.state),
            Some(DesiredState::Cpu(cpu(2)))
        );
        let flow = explanation.flow.unwrap();
        assert_eq!((flow.last, flow.completed), (Some((cpu(1), 0, 10)), false));
    }

    #[test]
    fn without_a_slot_it_says_why() {
        let mut steering = steering(Policy::Sparse(Slots::of(1)));
        let mut verdicts = [Verdict::default(); 3];
        let packets = [1, 2, 3].map(packet);
        let reason = |steering: &Steering| match steering.explain(&packets[2], &mut Stuck(0)).reason
        {
            Reason::Hash { no_slot, .. } => no_slot,
            other => panic!("{other:?}"),
        };
        steering.decide(&packets[..2], &mut Stuck(0), &mut verdicts);
        assert_eq!(reason(&steering), Some(NoSlot::AllTaken));
        steering.decide(&packets[2..], &mut Stuck(0), &mut verdicts);
        assert_eq!(reason(&steering), Some(NoSlot::HashActive));
    }

    #[test]
    fn flow_that_nothing_places_stays() {
        let cpus = "1-2".parse().unwrap();
        let mut config = SteerConfig::new(Policy::RfsSparse(Slots::of(1)), cpus, vec![cpu(0)]);
        (config.fallback, config.rfs_cpus) = (Fallback::Local, "2".parse().ok());
        let mut steering = Steering::new(&config).unwrap();
        let mut verdicts = [Verdict::default(); 3];
        steering.decide(&[1, 2, 3].map(packet), &mut Stuck(0), &mut verdicts);
        assert_eq!(verdicts.map(Verdict::cpu), [cpu(2), cpu(1), cpu(0)], "slots come before it");
        let explained = steering.explain(&packet(4), &mut Stuck(0));
        let stays = Reason::Stays { no_slot: Some(NoSlot::HashActive) };
        assert_eq!((explained.target, explained.reason), (cpu(0), stays));
        steering.plan().sock_flows().record(FlowHash::from_raw(4), cpu(1));
        let explained = steering.explain(&packet(4), &mut Stuck(0));
        assert_eq!((explained.target, explained.reason), (cpu(0), stays));
        assert_eq!(
            explained.desired.map(|desired| desired.state),
            Some(DesiredState::Unusable(cpu(1)))
        );
        assert_eq!(steering.explain(&packet(0), &mut Stuck(0)).reason, Reason::NoHash);
        steering.plan().sock_flows().record(FlowHash::from_raw(4), cpu(2));
        assert_eq!(steering.explain(&packet(4), &mut Stuck(0)).target, cpu(2));
    }
}
