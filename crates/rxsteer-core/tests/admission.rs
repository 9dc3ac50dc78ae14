//! Admission to sparse slots over whole packet sequences: what a scan does to large flows with it and without it, and
//! that no decision depends on it before a flow's N-th packet.

use proptest::prelude::*;
use rxsteer_core::{
    Arrival, Backlogs, CpuId, CpuSet, FlowHash, Idle, Policy, Refusal, Slots, SteerConfig,
    Steering, Verdict,
};
use std::collections::HashMap;

const SECOND: u64 = rxsteer_core::sparse::INACTIVE_AFTER_NS;

fn steering(policy: Policy) -> Steering {
    let receiving = vec![CpuId::new(0).unwrap()];
    Steering::new(&SteerConfig::new(policy, CpuSet::first(4).unwrap(), receiving)).unwrap()
}

fn arrival(hash: u32, time_ns: u64) -> Arrival {
    Arrival { time_ns, hash: FlowHash::from_raw(hash), ..Arrival::default() }
}

/// Decides on one packet. Returns its target's CPU, and whether that is the CPU of a slot.
fn decide(steering: &mut Steering, packet: &Arrival) -> (CpuId, bool) {
    let (before, mut verdict) = (steering.counts().in_slots, [Verdict::default()]);
    steering.decide(&[*packet], &mut Idle::default(), &mut verdict);
    (verdict[0].cpu(), steering.counts().in_slots > before)
}

fn hash(flow: u32) -> u32 {
    flow.wrapping_mul(0x9e37_79b1) | 1
}

/// 1,000 new flows of one packet in each of 20 s; from the 3rd second on, also 4 flows of 1,000 packets a second.
/// Returns the CPUs of the large flows' slots after their first 2 s, and the slots that flows of one packet got.
fn scan(policy: Policy) -> (Vec<Option<CpuId>>, u32) {
    let mut steering = steering(policy);
    let (mut slots, mut taken) = (vec![None; 4], 0);
    for packet in 0..20_000u32 {
        let now = u64::from(packet) * SECOND / 1000;
        let (_, in_slot) = decide(&mut steering, &arrival(hash(100 + packet), now));
        taken += u32::from(in_slot);
        if packet >= 3000 {
            for large in 0..4 {
                let (cpu, in_slot) = decide(&mut steering, &arrival(hash(1 + large), now + 1));
                if in_slot {
                    slots[large as usize] = Some(cpu);
                } else if packet >= 5000 {
                    slots[large as usize] = None;
                }
            }
        }
    }
    (slots, taken)
}

#[test]
fn beside_a_scan_each_large_flow_gets_a_slot_only_with_admission() {
    let (slots, taken) = scan(Policy::Sparse(Slots { loops: 4, after: 8 }));
    let mut cpus: Vec<CpuId> = slots.into_iter().map(|cpu| cpu.expect("each has a slot")).collect();
    cpus.sort_unstable();
    assert_eq!(cpus, CpuSet::first(4).unwrap().as_slice(), "each has a CPU of its own");
    assert_eq!(taken, 0, "no slot for a flow of one packet");

    let (slots, taken) = scan(Policy::Sparse(Slots::of(4)));
    assert_eq!((slots, taken), (vec![None; 4], 16), "all went to the first flows of the scan");
}

proptest! {
    /// A model that counts each flow by itself: collisions may only delay an admission.
    #[test]
    fn no_flow_has_a_slot_before_its_nth_packet_within_a_second(
        after in 2..10u8,
        packets in prop::collection::vec((0..2000u32, 0..SECOND / 50), 1..3000),
    ) {
        let mut steering = steering(Policy::Sparse(Slots { loops: 5, after }));
        let mut times: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut now = 0;
        for (flow, later) in packets {
            now += later;
            // Some flows send often.
            let flow = if flow < 1500 { flow % 30 } else { flow };
            let seen = times.entry(flow).or_default();
            seen.push(now);
            let (_, in_slot) = decide(&mut steering, &arrival(hash(flow), now));
            let begins = seen.windows(usize::from(after)).any(|packets| {
                packets[packets.len() - 1] - packets[0] <= SECOND
            });
            prop_assert!(!in_slot || begins, "{flow} at {now}: {seen:?}");
        }
    }
}

/// Refuses every packet at first.
struct Full(bool);

impl Backlogs for Full {
    fn reserve(&mut self, _cpu: CpuId) -> Result<u32, Refusal> {
        if self.0 { Err(Refusal::Wait) } else { Ok(0) }
    }
    fn has_completed(&mut self, _producer: u16, _cpu: CpuId, _position: u32) -> bool {
        true
    }
    fn tail(&self, _cpu: CpuId) -> u32 {
        0
    }
    fn waiting(&mut self, _cpu: CpuId) -> (u32, u32) {
        (0, 1)
    }
}

#[test]
fn packet_that_waits_for_room_counts_once() {
    let mut steering = steering(Policy::RfsSparse(Slots { loops: 1, after: 3 }));
    let (mut backlogs, mut verdict) = (Full(true), [Verdict::default()]);
    for packet in 1..=4 {
        for waits in [true, true, true, true, false] {
            backlogs.0 = waits;
            let decided = steering.decide(&[arrival(7, packet)], &mut backlogs, &mut verdict);
            assert_eq!(decided, usize::from(!waits));
        }
        assert_eq!(steering.counts().in_slots, packet.saturating_sub(2), "packet {packet}");
    }
}
