//! The core's explanations for live tables that the test filled. Needs root; prints SKIPPED without it.

use super::*;
use crate::abi::steer_sparse_slot;
use crate::flows::EndedFlows;
use crate::grace::Grace;
use crate::latest::Latest;
use crate::load::{Loaded, load};
use crate::rings::tests::setup;
use crate::setup::Setup;
use crate::testing;
use crate::view::KnownDevice;
use rxsteer_core::explain::{DesiredState, NoSlot, Reason};

/// Tables for four CPUs and an interface with one RX queue, and a flow.
struct Tables {
    view: View,
    key: FlowKey,
    _loaded: Loaded,
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn tables(test: &str) -> Option<Tables> {
    let setup = Setup { possible: "0-3".parse().unwrap(), ..setup() };
    let loaded = testing::loaded(&format!("explain::{test}"), load(&setup))?;
    let settings = Settings::new(Policy::Rps, "1-3".parse().unwrap());
    let known = Latest::new(Known::of(&settings));
    let view = View::new(&loaded, Grace::new().unwrap(), known, EndedFlows::default()).unwrap();
    let mut key = FlowKey { src_port: 7, dst_port: 9, protocol: 17, ..FlowKey::default() };
    key.ip_version = 4;
    key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
    key.dst[..4].copy_from_slice(&[10, 0, 0, 2]);
    Some(Tables { view, key, _loaded: loaded })
}

impl Tables {
    /// Where the flow goes under a policy over CPUs 1 to 3.
    fn ask(&self, policy: &str, offline: &str) -> LiveDecision {
        let mut settings = Settings::new(policy.parse().unwrap(), "1-3".parse().unwrap());
        settings.offline = offline.parse().ok();
        let name = "eth0".to_owned();
        let devices =
            vec![KnownDevice { id: DeviceId(0), ifindex: 1, name, first_table: 0, queues: 1 }];
        self.view.known.set(Known {
            rules: Vec::new(),
            settings,
            is_unguarded: false,
            buckets: Default::default(),
            devices,
        });
        self.view.explain(&self.key).decisions.remove(0)
    }

    /// Sets the flow's sparse slot as a program would have `age` jiffies ago.
    fn give(&mut self, at: u32, loop_: u32, device: u64, age: u64) {
        let flow = (device + 1) << 32 | u64::from(self.view.hash.hash(&self.key).get());
        let last_seen = self.view.jiffies() - age + 1;
        let slot = steer_sparse_slot { flow, last_seen, ..Default::default() };
        for index in 0..self.view.sparse.len() {
            let is_it = index == at * SPARSE_ROW + loop_;
            self.view.sparse.set(index, if is_it { slot } else { Default::default() });
        }
    }
}

fn held(decision: &LiveDecision) -> Option<(CpuId, u8)> {
    match decision.explanation.reason {
        Reason::Slot { slot, held: true } => Some((slot.cpu, slot.loop_)),
        _ => None,
    }
}

#[test]
fn explain_takes_a_sparse_slot_for_the_flows_only_if_the_policy_does() {
    let test = "explain_takes_a_sparse_slot_for_the_flows_only_if_the_policy_does";
    let Some(mut tables) = tables(test) else { return };
    let second = u64::from(tables.view.hz);
    tables.give(2, 3, 0, 0);
    assert_eq!(held(&tables.ask("sparse", "")), Some((cpu(2), 3)));
    assert_eq!(tables.ask("sparse", "").explanation.cpu, cpu(2));
    assert_eq!(held(&tables.ask("sparse:loops=3", "")), None, "more loops than configured");
    assert_eq!(held(&tables.ask("sparse", "2")), None, "its CPU is offline");
    assert_eq!(held(&tables.ask("rps", "")), None, "no policy of slots");
    tables.give(2, 3, 1, 0);
    assert_eq!(held(&tables.ask("sparse", "")), None, "another device's");
    tables.give(2, 3, 0, second + 2);
    assert_eq!(held(&tables.ask("sparse", "")), None, "silent for more than a second");
    tables.give(0, 0, 0, 0);
    assert_eq!(held(&tables.ask("sparse", "")), None, "of a CPU that is not in the map");
}

#[test]
fn explain_says_why_a_flow_gets_no_slot() {
    let Some(mut tables) = tables("explain_says_why_a_flow_gets_no_slot") else { return };
    let last_seen = tables.view.jiffies() + 1;
    let row = crate::abi::steer_hash_active { last_seen, ..Default::default() };
    tables.view.hash_actives.set(3, row);
    let reason = tables.ask("sparse", "").explanation.reason;
    assert!(matches!(reason, Reason::Hash { no_slot: Some(NoSlot::HashActive), .. }), "{reason:?}");
    tables.view.hash_actives.set(3, Default::default());
    let reason = tables.ask("sparse", "").explanation.reason;
    assert!(matches!(reason, Reason::Slot { held: false, .. }), "{reason:?}");
}

#[test]
fn explain_shows_what_the_order_guard_knows() {
    let Some(mut tables) = tables("explain_shows_what_the_order_guard_knows") else { return };
    let hash = tables.view.hash.hash(&tables.key);
    let index = upper_bits(hash.get(), tables.view.sizes.flow_log);
    let before = tables.ask("rps", "").explanation;
    let other = if before.target == cpu(1) { 2 } else { 1 };
    // Number 9 of CPU 3 went to the second ring of another CPU.
    let last = LastPacket { seq: 9, cpu: other, generation: 1, rx_cpu: 3, hysteresis: 0 };
    let [last_seq, packed] = last.words();
    tables.view.lines.slots.set(index, steer_slot { last_seq, packed, ..Default::default() });
    let ring = last.ring();
    let delivered = |tables: &Tables, number| {
        let offset = std::mem::offset_of!(crate::abi::steer_pair, delivered);
        tables.view.rings.lock().pairs.set_number(ring * 4 + 3, offset, number);
    };
    delivered(&tables, 8);
    let held = tables.ask("rps", "");
    let flow = held.explanation.flow.unwrap();
    assert_eq!((held.explanation.cpu, held.explanation.target), (cpu(other as u16), before.target));
    assert_eq!((flow.completed, held.received_on), (false, Some(cpu(3))));
    delivered(&tables, 9);
    let moves = tables.ask("rps", "").explanation;
    assert_eq!((moves.cpu, moves.flow.unwrap().completed), (before.target, true));
    // If no rule steers the flow, it stays on the CPU that received it last.
    assert_eq!(tables.ask("none", "").explanation.target, cpu(3));
}

#[test]
fn explain_hears_the_application_in_one_direction() {
    let Some(mut tables) = tables("explain_hears_the_application_in_one_direction") else { return };
    // The flow's own direction, in which its source is below its destination.
    let hash = tables.view.hash.hash(&tables.key).get();
    let mask = SockFlowTable::sock_cpu_mask(cpu(3));
    let index = hash % (tables.view.socks.len() * LINE_WORDS);
    let mut line = tables.view.socks.get(index / LINE_WORDS);
    line.word[(index % LINE_WORDS) as usize] = hash & !mask | 3;
    tables.view.socks.set(index / LINE_WORDS, line);
    let explanation = tables.ask("rfs", "").explanation;
    assert_eq!(
        (explanation.desired.unwrap().state, explanation.target),
        (DesiredState::Cpu(cpu(2)), cpu(2))
    );
    let explanation = tables.ask("rfs", "2").explanation;
    assert_eq!(explanation.desired.unwrap().state, DesiredState::Unusable(cpu(2)));
    tables.key = tables.key.reversed();
    let explanation = tables.ask("rfs", "").explanation;
    assert_ne!(
        explanation.desired.unwrap().state,
        DesiredState::Cpu(cpu(2)),
        "another's desired CPU"
    );
}
