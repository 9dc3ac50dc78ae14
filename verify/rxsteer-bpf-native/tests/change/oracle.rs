//! The required decision for each frame. The target is that of the core, for the same settings at the same moment; the
//! order rule determines where the frame goes instead.

use super::settings::Settings;
use super::world::FLOW_LOG;
use rxsteer_bpf_native::abi::{STEER_BY_LOCAL, STEER_CPU_GENERATION, STEER_GENERATIONS};
use rxsteer_bpf_native::policy::{Decision, LastPacket, NativePolicy, Packet, Rules};
use rxsteer_core::{Arrival, FlowHash, Idle, Steering, Verdict};
use std::collections::HashMap;

/// Steering of the core, by configuration and receiving CPU.
#[derive(Debug, Default)]
pub(crate) struct Oracle(HashMap<(usize, u32), Option<Steering>>);

impl Oracle {
    /// Asserts that `decision` has the core's target; returns whether the core has one.
    pub(crate) fn check_target(
        &mut self,
        (config, settings): (usize, &Settings),
        packet: &Packet,
        decision: &Decision,
    ) -> bool {
        let core = || settings.core(packet.rx_cpu);
        let new = || Some(Steering::new(&core()?).expect("it is possible"));
        let steering = self.0.entry((config, packet.rx_cpu)).or_insert_with(new);
        let Some(steering) = steering else { return false };
        let arrival = Arrival {
            hash: FlowHash::from_raw(packet.hash),
            rx_queue: packet.queue as u16,
            ..Arrival::default()
        };
        let mut verdicts = [Verdict::default()];
        assert_eq!(steering.decide(&[arrival], &mut Idle::default(), &mut verdicts), 1);
        let core = u32::from(verdicts[0].cpu().get());
        assert_eq!(decision.target, core, "{settings:?} {packet:?} {decision:?}");
        true
    }
}

/// Where the order rule sends a frame, under rules that never move a flow by themselves: a ring, or `None` to pass.
/// `last` is the previous content of the slot.
pub(crate) fn goes_to(
    rules: &Rules,
    policy: &NativePolicy,
    last: Option<LastPacket>,
    is_boundary: bool,
    needs_metadata: bool,
    decision: &Decision,
) -> Option<u32> {
    let generation =
        u32::from(u32::from(rules.cpu[decision.target as usize]) & STEER_CPU_GENERATION != 0);
    let passes = decision.by == STEER_BY_LOCAL && rules.local_by_ring == 0;
    let target = (!passes).then_some(decision.target * STEER_GENERATIONS + generation);
    let is_unguarded = rules.unguarded != 0 && (passes || !is_boundary && !needs_metadata);
    let Some(last) = last else { return target };
    let delivered = policy.delivered((last.rx_cpu, last.ring()));
    let is_under_way = (delivered.wrapping_sub(last.seq) as i32) < 0;
    if is_under_way && !is_unguarded { Some(last.ring()) } else { target }
}

/// The slot of a hash in a flow table.
pub(crate) fn slot_of(hash: u32) -> u32 {
    hash >> (32 - FLOW_LOG)
}
