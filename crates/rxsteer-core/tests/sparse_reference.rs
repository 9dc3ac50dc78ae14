//! Sparse flows get the targets of sparse-patch's `find_cpu` on any packet sequence: several devices, queues with
//! maps of their own, offline CPUs, any number of loops, times that rise, stay, leap and run back, and rules that
//! change during the sequence while the slots stay.
//!
//! The packets' backlogs report every packet as completed. So the order guard holds no flow back, and a verdict is
//! the target of the rules.

use crate::reference::sparse::{SECOND, Sparse, by_hash};
use proptest::prelude::*;
use rxsteer_core::{
    Arrival, CpuId, CpuSet, FlowHash, Idle, Plan, Policy, Slots, SteerConfig, Steering, Verdict,
};
use std::sync::Arc;

/// The queues' devices, and the CPUs that receive them. Both are fixed.
const DEVICES: [u16; 4] = [0, 1, 1, 2];
const RECEIVING: [u16; 4] = [0, 1, 0, 5];

/// The settings that can change at run time.
#[derive(Clone, Debug)]
struct Rules {
    /// `None` is plain `rps`, which does not change the slots.
    loops: Option<u8>,
    /// Indexed by queue; each map ascending.
    maps: [Vec<u16>; 4],
    offline: Vec<u16>,
}

#[derive(Clone, Debug)]
enum Step {
    Packet { queue: u16, hash: u32, later: i64 },
    Change(Rules),
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn set(ids: &[u16]) -> Option<CpuSet> {
    CpuSet::new(ids.iter().copied().map(cpu))
}

impl Rules {
    fn config(&self, cpus: u16) -> SteerConfig {
        let policy = self.loops.map_or(Policy::Rps, |loops| Policy::Sparse(Slots::of(loops)));
        let receiving = RECEIVING.map(cpu).to_vec();
        SteerConfig {
            // Queue 0 uses the common map.
            rps_maps: (1..4).map(|queue| (queue.into(), self.map(queue))).collect(),
            devices: DEVICES.to_vec(),
            offline: set(&self.offline),
            possible: CpuSet::first(cpus),
            // Large enough that these flows rarely share slots.
            flow_cnt: Some(1 << 16),
            sock_flow_entries: 1,
            ..SteerConfig::new(policy, self.map(0), receiving)
        }
    }

    fn map(&self, queue: u16) -> CpuSet {
        set(&self.maps[usize::from(queue)]).unwrap()
    }
}

/// `get_rps_cpu` around `find_cpu`: the target of a packet of `queue`.
fn target_of(
    sparse: &mut Sparse,
    rules: &Rules,
    cpus: u16,
    (queue, hash): (u16, u32),
    now: u64,
) -> u16 {
    let online = |cpu: u16| !rules.offline.contains(&cpu);
    let received = RECEIVING[usize::from(queue)];
    // The first online CPU takes the place of a receiving CPU that is gone.
    let local = match (0..cpus).find(|cpu| online(*cpu)) {
        Some(first) if !online(received) => first,
        _ => received,
    };
    if hash == 0 {
        return local;
    }
    let map = &rules.maps[usize::from(queue)];
    let chosen = match rules.loops {
        Some(loops) => {
            let flow = (DEVICES[usize::from(queue)], hash);
            sparse.find_cpu(map, loops, &rules.offline, flow, now)
        }
        None => by_hash(map, hash),
    };
    if online(chosen) { chosen } else { local }
}

/// Runs both implementations through `steps`. Returns where they first differ, or the number of packets compared
/// and how many of them could not go to their target.
fn compare(
    cpus: u16,
    start_ns: u64,
    first: &Rules,
    steps: impl Iterator<Item = Step>,
) -> Result<(u64, u64), String> {
    let (mut packets, mut followed) = (0, 0);
    let mut rules = first.clone();
    let mut plan = Arc::new(Plan::new(&rules.config(cpus), 1).unwrap());
    let mut steering = Steering::of_plan(plan.clone(), 0..4);
    let mut sparse = Sparse::new(cpus);
    let mut now = start_ns;
    for (index, step) in steps.enumerate() {
        match step {
            Step::Change(next) => {
                rules = next;
                plan = Arc::new(plan.next(&rules.config(cpus)).unwrap());
                steering.change(&plan, &mut Idle::default());
            }
            Step::Packet { queue, hash, later } => {
                now = now.saturating_add_signed(later);
                let flow_hash = FlowHash::from_raw(hash);
                let arrival = Arrival { time_ns: now, hash: flow_hash, rx_queue: queue, rule: 0 };
                let explanation = steering.explain(&arrival, &mut Idle::default()).target;
                let mut verdict = [Verdict::default()];
                let deferred = steering.counts().deferred;
                steering.decide(&[arrival], &mut Idle::default(), &mut verdict);
                let target = target_of(&mut sparse, &rules, cpus, (queue, hash), now);
                // With everything completed, a packet goes to its target, unless its hash places it and its slot
                // of the flow table has hysteresis left.
                let follows = steering.counts().deferred > deferred;
                let got = verdict[0];
                if explanation != cpu(target) || !follows && got != Verdict::deliver(cpu(target)) {
                    return Err(format!(
                        "step {index}: {arrival:?}: got {explanation}, {got:?}, reference cpu{target}"
                    ));
                }
                packets += 1;
                followed += u64::from(follows);
            }
        }
    }
    Ok((packets, followed))
}

/// CPUs of the property test.
const CPUS: u16 = 8;

fn some_cpus(least: usize) -> impl Strategy<Value = Vec<u16>> {
    prop::sample::subsequence((0..CPUS).collect::<Vec<_>>(), least..=4)
}

fn rules() -> impl Strategy<Value = Rules> {
    let loops = prop_oneof![1 => Just(None), 6 => (1..=5u8).prop_map(Some)];
    let maps = [some_cpus(1), some_cpus(1), some_cpus(1), some_cpus(1)];
    let offline = prop_oneof![2 => Just(vec![]), 1 => some_cpus(0)];
    (loops, maps, any::<bool>(), offline).prop_map(|(loops, mut maps, alike, offline)| {
        if alike {
            maps[2] = maps[1].clone();
            maps[3] = maps[1].clone();
        }
        Rules { loops, maps, offline }
    })
}

fn hash(flow: u32) -> u32 {
    flow.wrapping_mul(0x9e37_79b1)
}

fn step() -> impl Strategy<Value = Step> {
    let second = SECOND as i64;
    let later = prop_oneof![
        6 => Just(0),
        8 => 0..300_000_000i64,
        2 => Just(second),
        2 => Just(second + 1),
        1 => second..3 * second,
        2 => -400_000_000..0i64,
        1 => -3 * second..0i64,
    ];
    // Flow 0 is "no hash".
    let packet = (0..4u16, 0..12u32, later).prop_map(|(queue, flow, later)| Step::Packet {
        queue,
        hash: hash(flow),
        later,
    });
    prop_oneof![30 => packet, 1 => rules().prop_map(Step::Change)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn targets_of_every_packet_are_those_of_the_patch(
        start in prop_oneof![Just(0), Just(5 * SECOND)],
        first in rules(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        compare(CPUS, start, &first, steps.into_iter()).map_err(TestCaseError::fail)?;
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn rules(&mut self, cpus: u16) -> Rules {
        let mut some = |least: u64, most: u64| {
            let count = least + self.below(most - least + 1);
            let mut ids: Vec<u16> = (0..count).map(|_| self.below(cpus.into()) as u16).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let most = u64::from(cpus) / 2;
        Rules {
            maps: [some(1, most), some(1, most), some(1, 3), some(1, most)],
            offline: some(0, u64::from(cpus) / 8),
            loops: Some(1 + self.below(5) as u8),
        }
    }

    /// Mostly zero or a few milliseconds; sometimes a leap, forward or back.
    fn later(&mut self) -> i64 {
        let second = SECOND as i64;
        match self.below(400) {
            0 => second,
            1 => second + 1,
            2 => self.below(4 * SECOND) as i64,
            3 => -(self.below(2 * SECOND) as i64),
            4..200 => 0,
            _ => self.below(8_000_000) as i64,
        }
    }
}

/// The same over long sequences and large machines, where the table's chains fill and one flow often holds several
/// slots.
#[test]
fn long_sequences_on_large_machines() {
    let mut all = (0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let cpus = [8, 16, 64, 256][seed as usize % 4];
        // Fewer flows than slots in some runs, many more in others.
        let flows = 1 + random.below(u64::from(cpus) * 4) as u32;
        let first = random.rules(cpus);
        let steps: Vec<Step> = (0..5000)
            .map(|_| match random.below(1000) {
                0 => Step::Change(random.rules(cpus)),
                _ => Step::Packet {
                    queue: random.below(4) as u16,
                    hash: hash(random.below(flows.into()) as u32),
                    later: random.later(),
                },
            })
            .collect();
        match compare(cpus, 0, &first, steps.into_iter()) {
            Ok((packets, followed)) => all = (all.0 + packets, all.1 + followed),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    let (packets, followed) = all;
    assert!(followed * 2 < packets, "{followed} of {packets} say nothing of the verdict");
}

/// Flows that hold slots keep them during a flood of new flows: every packet of the flood is hashed, and the slot
/// of a flow that sends within a second goes to no other flow. Only the table of slots decides, and the number of
/// CPUs fixes its size.
#[test]
fn under_a_flood_established_flows_keep_their_slots() {
    let config =
        SteerConfig::new(Policy::Sparse(Slots::of(4)), CpuSet::first(4).unwrap(), vec![cpu(0)]);
    let mut steering = Steering::new(&config).unwrap();
    let mut decide = |hash: u32, time_ns: u64| {
        let arrival = Arrival { time_ns, hash: FlowHash::from_raw(hash), ..Arrival::default() };
        let mut verdict = [Verdict::default()];
        let before = steering.counts().in_slots;
        steering.decide(&[arrival], &mut Idle::default(), &mut verdict);
        (verdict[0].cpu(), steering.counts().in_slots > before)
    };
    let established: Vec<(u32, CpuId)> = (1..=16)
        .map(|flow| {
            let (cpu, in_slot) = decide(flow, 0);
            assert!(in_slot, "16 slots for 16 flows");
            (flow, cpu)
        })
        .collect();
    let mut random = Random(1);
    for packet in 1..=200_000u64 {
        // 50 µs per packet: 10 s, in which each established flow sends every 0.8 s.
        let now = packet * 50_000;
        if packet % 1000 == 0 {
            let (flow, at) = established[(packet / 1000) as usize % 16];
            assert_eq!(decide(flow, now), (at, true), "flow {flow} lost its slot at {now} ns");
        } else {
            let (_, in_slot) = decide(1000 + random.below(1 << 31) as u32, now);
            assert!(!in_slot, "a flow of the flood got a slot at {now} ns");
        }
    }
}
