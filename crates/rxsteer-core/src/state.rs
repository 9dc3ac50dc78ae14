//! Explains a decision by tables outside of this crate. Another implementation of the policy supplies the state
//! that a packet's decision depends on, and the rules of this crate evaluate it.

use crate::admission::Candidate;
use crate::backlogs::{Arrival, Backlogs};
use crate::config::{ConfigError, SteerConfig};
use crate::cpu::CpuId;
use crate::explain::Explanation;
use crate::order::DevFlow;
use crate::plan::Plan;
use crate::sparse::SlotState;
use crate::steer::Steering;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The remembered state of a packet's flow and of the flows that share its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The stored entry of the sock flow table for the packet's hash.
    pub sock_entry: u32,
    /// The sparse slots that were ever given away.
    pub sparse: Vec<SlotState>,
    /// For each producer, when it last let the hash decide, in nanoseconds of the packets' clock.
    pub hash_active_ns: Vec<u64>,
    /// The counts of the flow if it has no slot.
    pub candidate: Option<Candidate>,
    /// The CPU of each bucket, under policies with buckets; empty means the table at the start.
    pub buckets: Vec<CpuId>,
    /// The packet's slot of its flow table; `None` if the order guard is not used.
    pub slot: Option<DevFlow>,
}

impl Steering {
    /// Explains where `packet` would go now by the rules of `config` and by `state`, and why. `config` describes
    /// the packet's RX queue alone, as queue 0.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is invalid.
    pub fn explain_by<B: Backlogs>(
        config: &SteerConfig,
        state: &State,
        packet: &Arrival,
        backlogs: &mut B,
    ) -> Result<Explanation, ConfigError> {
        // The flow table of this plan is not used: `state` supplies the slot.
        let config = SteerConfig { flow_cnt: Some(1), ..config.clone() };
        let producers = state.hash_active_ns.len().max(1);
        let plan = Plan::new(&config, u16::try_from(producers).unwrap_or(u16::MAX))?;
        let plan = plan.with_buckets(&state.buckets);
        plan.socks.restore(packet.hash, state.sock_entry);
        state.sparse.iter().for_each(|slot| plan.sparse.restore(slot));
        for (producer, seen_ns) in (0..).zip(&state.hash_active_ns) {
            plan.sparse.restore_hash_active(producer, *seen_ns);
        }
        if let (Some(candidates), Some(known)) = (&plan.candidates, state.candidate) {
            candidates.restore(&plan.rules.slot_request(packet, backlogs.producer()), known);
        }
        let remembers = plan.rules.remember_flows();
        // Rules without a flow table are guarded across changes only, and have no hysteresis.
        let slot = state.slot.map(|slot| if remembers { slot } else { slot.without_hysteresis() });
        let steering = Steering::of_plan(Arc::new(plan), 0..1);
        Ok(steering.explain_with(packet, backlogs, slot.map(|slot| (0, 1, slot))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backlogs::Refusal;
    use crate::explain::{DesiredState, NoSlot, Reason};
    use crate::flow::FlowHash;
    use crate::policy::Policy;
    use crate::sparse::{INACTIVE_AFTER_NS, SlotId};
    use alloc::vec;

    /// Reports either all or none of the packets as completed.
    struct Completed(bool);

    impl Backlogs for Completed {
        fn reserve(&mut self, _cpu: CpuId) -> Result<u32, Refusal> {
            Err(Refusal::Wait)
        }
        fn has_completed(&mut self, _producer: u16, _cpu: CpuId, _position: u32) -> bool {
            self.0
        }
        fn tail(&self, _cpu: CpuId) -> u32 {
            0
        }
        fn waiting(&mut self, _cpu: CpuId) -> (u32, u32) {
            (0, 1)
        }
    }

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    fn config(policy: &str) -> SteerConfig {
        let mut config =
            SteerConfig::new(policy.parse().unwrap(), "1-2".parse().unwrap(), vec![cpu(0)]);
        config.devices = vec![3];
        config.sock_flow_entries = 16;
        config
    }

    const NOW: u64 = 10 * INACTIVE_AFTER_NS;

    fn packet() -> Arrival {
        Arrival { time_ns: NOW, hash: FlowHash::from_raw(0x8000_0005), ..Arrival::default() }
    }

    fn explain_flow(config: &SteerConfig, state: &State, completed: bool) -> Explanation {
        Steering::explain_by(config, state, &packet(), &mut Completed(completed)).unwrap()
    }

    fn slot(cpu_: u16, loop_: u8, device: u16, seen_ns: u64) -> SlotState {
        let slot = SlotId { cpu: cpu(cpu_), loop_ };
        SlotState { slot, device, hash: packet().hash, seen_ns }
    }

    #[test]
    fn state_of_a_sparse_slot_counts_only_if_the_policy_would_use_it() {
        let held = |slot, policy: &str, offline: Option<&str>| {
            let mut config = config(policy);
            config.offline = offline.map(|cpus| cpus.parse().unwrap());
            let state = State { sparse: vec![slot], ..State::default() };
            match explain_flow(&config, &state, true).reason {
                Reason::Slot { slot, held: true } => Some((slot.cpu, slot.loop_)),
                Reason::Slot { held: false, .. } => None,
                other => panic!("{other:?}"),
            }
        };
        let mine = slot(1, 1, 3, NOW);
        assert_eq!(held(mine, "sparse", None), Some((cpu(1), 1)));
        assert_eq!(held(slot(1, 1, 2, NOW), "sparse", None), None, "of another device");
        let (last, late) = (NOW - INACTIVE_AFTER_NS, NOW - INACTIVE_AFTER_NS - 1);
        assert_eq!(held(slot(1, 1, 3, last), "sparse", None), Some((cpu(1), 1)));
        assert_eq!(held(slot(1, 1, 3, late), "sparse", None), None, "it was silent for too long");
        assert_eq!(held(slot(1, 1, 3, NOW + 1), "sparse", None), None, "time went back");
        assert_eq!(held(mine, "sparse:loops=1", None), None, "no such loop");
        assert_eq!(held(mine, "sparse", Some("1")), None, "its CPU is offline");
        assert_eq!(held(slot(7, 0, 3, NOW), "sparse", None), None, "no CPU of the map");
    }

    #[test]
    fn state_of_hashing_keeps_slots_from_flows() {
        let reason = |seen_ns| {
            let state = State { hash_active_ns: vec![0, seen_ns], ..State::default() };
            explain_flow(&config("sparse"), &state, true).reason
        };
        assert!(matches!(reason(NOW - INACTIVE_AFTER_NS - 1), Reason::Slot { held: false, .. }));
        let active = reason(NOW - INACTIVE_AFTER_NS);
        assert!(matches!(active, Reason::Hash { no_slot: Some(NoSlot::HashActive), .. }));
    }

    #[test]
    fn state_of_the_sock_flow_table_is_explained() {
        let desired = |entry| {
            let state = State { sock_entry: entry, ..State::default() };
            let explanation = explain_flow(&config("rfs"), &state, true);
            (explanation.desired.unwrap().state, explanation.target)
        };
        // CPUs 0 to 2 and "none" need two bits.
        assert_eq!(desired(0x8000_0004 | 3), (DesiredState::Cpu(cpu(2)), cpu(2)));
        assert_eq!(desired(0x4000_0004 | 3).0, DesiredState::OfAnotherFlow);
        assert_eq!(desired(0).0, DesiredState::Unset);
    }

    #[test]
    fn state_of_the_guard_holds_what_is_under_way() {
        let last = DevFlow::default().queued(cpu(1), cpu(1), 0, 9);
        let state = State { slot: Some(last), ..State::default() };
        // By its hash the packet's target is CPU 2.
        let at = |policy: &str, completed| {
            let explanation = explain_flow(&config(policy), &state, completed);
            assert_eq!(explanation.target, cpu(2));
            (explanation.cpu, explanation.flow.unwrap().completed)
        };
        assert_eq!(at("rps", false), (cpu(1), false));
        assert_eq!(
            at("rps", true),
            (cpu(2), true),
            "rules that remember nothing have no hysteresis"
        );
        assert_eq!(at("rfs", true), (cpu(1), true), "by hash alone it follows its slot");
        let none = explain_flow(&config("rps"), &State::default(), false);
        assert_eq!((none.cpu, none.flow), (cpu(2), None));
        assert!(
            Steering::explain_by(
                &SteerConfig { receiving_cpus: vec![], ..config("rps") },
                &state,
                &packet(),
                &mut Completed(true)
            )
            .is_err()
        );
        assert_eq!(config("none").policy, Policy::None);
    }
}
