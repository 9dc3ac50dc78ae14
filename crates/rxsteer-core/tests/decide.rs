//! Properties of every decision, under all policies and any traffic.

use proptest::prelude::*;
use rxsteer_core::policy::Front;
use rxsteer_core::{
    Arrival, Backlogs, Balance, CpuId, DropReason, Fallback, FlowHash, Mechanisms, PacketRule,
    Plan, Policy, Refusal, Slots, SteerConfig, Steering, Verdict,
};
use std::sync::Arc;

/// Backlogs with room for a given number of packets each; they refuse either by dropping or by waiting.
#[derive(Clone, Debug, PartialEq)]
struct Room {
    left: Vec<u32>,
    wait: bool,
}

impl Backlogs for Room {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        let refusal =
            if self.wait { Refusal::Wait } else { Refusal::Drop(DropReason::BacklogFull) };
        let left = &mut self.left[cpu.index()];
        *left = left.checked_sub(1).ok_or(refusal)?;
        Ok(*left)
    }

    fn has_completed(&mut self, _producer: u16, cpu: CpuId, _position: u32) -> bool {
        // Some CPUs complete at once, others never complete a packet.
        cpu.get().is_multiple_of(2)
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.left[cpu.index()]
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        (40 - self.left[cpu.index()].min(40), 40)
    }
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn slots() -> impl Strategy<Value = Slots> {
    (1..=5u8, prop_oneof![Just(1), 2..6u8]).prop_map(|(loops, after)| Slots { loops, after })
}

fn config() -> impl Strategy<Value = SteerConfig> {
    let policies = prop_oneof![
        Just(Policy::None),
        Just(Policy::Rps),
        Just(Policy::Bound(vec![(0.into(), cpu(3)), (2.into(), cpu(1))])),
        slots().prop_map(Policy::Sparse),
        Just(Policy::Rfs),
        slots().prop_map(Policy::RfsSparse),
        (any::<bool>(), prop::option::of(slots())).prop_map(|(rfs, slots)| {
            Policy::Balance(Front { rfs, slots }, Balance { buckets: 256, ..Balance::default() })
        }),
    ];
    (policies, 1..8u16, any::<[bool; 6]>()).prop_map(
        |(policy, cpus, [mapped, limited, offline, local, rfs_cpus, ruled])| {
            let rules = if ruled { rules() } else { vec![] };
            let mapped = mapped && Mechanisms::of(&policy, &rules).maps;
            let cpus = rxsteer_core::CpuSet::first(cpus).unwrap();
            let receiving = vec![cpu(0), cpu(6), cpu(7)];
            SteerConfig {
                packet_rules: rules,
                rps_maps: if mapped { vec![(1.into(), "2,5".parse().unwrap())] } else { vec![] },
                fallback: if local { Fallback::Local } else { Fallback::Hash },
                rfs_cpus: if rfs_cpus { "1,7".parse().ok() } else { None },
                devices: vec![0, 1, 1],
                offline: if offline { "0,2".parse().ok() } else { None },
                possible: "0-7".parse().ok(),
                flow_cnt: Some(16),
                flow_limit: limited.then_some(64),
                ..SteerConfig::new(policy, cpus, receiving)
            }
        },
    )
}

/// Eight rules; packets have the number of one of them, or of a rule that does not exist.
fn rules() -> Vec<PacketRule> {
    let texts = [
        "tcp → 3",
        "udp → local",
        "icmp → 1,4",
        "esp → policy rps",
        "gre → policy sparse",
        "sctp → policy rfs",
        "dccp → policy rfs+sparse",
        "any → pass",
    ];
    texts.map(|text| text.parse().unwrap()).to_vec()
}

fn arrival() -> impl Strategy<Value = Arrival> {
    (prop_oneof![Just(0), any::<u32>()], 0..5u16, any::<u64>(), 0..10u16).prop_map(
        |(hash, rx_queue, time_ns, rule)| Arrival {
            time_ns,
            hash: FlowHash::from_raw(hash),
            rx_queue,
            rule,
        },
    )
}

/// Arrivals with few hashes, so that flows send again, and with rising times.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let hash = prop_oneof![
        1 => Just(0),
        8 => (0..40u32).prop_map(|flow| flow.wrapping_mul(0x9e37_79b1)),
    ];
    prop::collection::vec((hash, 0..5u16, 0..400_000_000u64, 0..10u16), 0..200).prop_map(
        |packets| {
            let mut now = 0;
            let arrival = |(hash, rx_queue, later, rule)| {
                now += later;
                Arrival { time_ns: now, hash: FlowHash::from_raw(hash), rx_queue, rule }
            };
            packets.into_iter().map(arrival).collect()
        },
    )
}

/// A policy with a history: applications recorded desired CPUs, packets were sent, rules were changed.
fn steering(first: &SteerConfig, then: Option<&SteerConfig>, desired: &[(u32, u16)]) -> Steering {
    let plan = Arc::new(Plan::new(first, 1).unwrap());
    let mut steering = Steering::of_plan(plan.clone(), 0..3);
    for (hash, desired) in desired {
        plan.sock_flows().record(FlowHash::from_raw(hash.wrapping_mul(0x9e37_79b1)), cpu(*desired));
    }
    if let Some(then) = then {
        let before: Vec<Arrival> = (0..60u32)
            .map(|n| Arrival {
                time_ns: u64::from(n),
                hash: FlowHash::from_raw((n % 40).wrapping_mul(0x9e37_79b1)),
                rx_queue: (n % 3) as u16,
                rule: 0,
            })
            .collect();
        let mut room = Room { left: vec![40; 8], wait: false };
        steering.decide(&before, &mut room, &mut vec![Verdict::default(); before.len()]);
        let next = plan.next(then).unwrap();
        steering.change(&Arc::new(next), &mut room);
    }
    steering
}

proptest! {
    /// A batch gets the same decisions as its packets one by one, up to the first packet that must wait, and
    /// leaves the backlogs in the same state.
    #[test]
    fn batch_equals_its_packets_one_by_one(
        config in config(),
        changed in prop::option::of(config()),
        desired in prop::collection::vec((0..40u32, 0..9u16), 0..40),
        arrivals in arrivals(),
        room in 0..40u32,
        wait in any::<bool>(),
    ) {
        let mut batched = Room { left: vec![room; 8], wait };
        let mut single = batched.clone();
        let mut verdicts = vec![Verdict::default(); arrivals.len()];
        let mut whole = steering(&config, changed.as_ref(), &desired);
        let decided = whole.decide(&arrivals, &mut batched, &mut verdicts);

        let mut one_by_one = steering(&config, changed.as_ref(), &desired);
        for (index, arrival) in arrivals.iter().enumerate() {
            let mut verdict = [Verdict::default()];
            let done = one_by_one.decide(&[*arrival], &mut single, &mut verdict);
            prop_assert_eq!(done == 1, index < decided);
            if done == 0 {
                break;
            }
            prop_assert_eq!(verdict[0], verdicts[index]);
        }
        prop_assert_eq!(batched, single);
        prop_assert_eq!(whole.counts(), one_by_one.counts());
        prop_assert!(decided == arrivals.len() || wait);
    }

    /// While nothing else happens, a flow's CPU depends only on its hash and RX queue: the next packet goes where the
    /// last one went, unless this packet is the one at which the flow may get a sparse slot. Packets go only to CPUs
    /// that the configuration names and that are online.
    #[test]
    fn flow_stays_where_it_is(
        config in config(),
        arrival in arrival(),
        later in 0..1_000_000_000u64,
    ) {
        let mut steering = Steering::new(&config).unwrap();
        let mut room = Room { left: vec![2; 8], wait: false };
        let mut verdicts = [Verdict::default(); 2];
        let again = Arrival { time_ns: arrival.time_ns.saturating_add(later), ..arrival };
        prop_assert_eq!(steering.decide(&[arrival, again], &mut room, &mut verdicts), 2);
        // A second packet that is admitted may go to a slot instead.
        let is_admitted = config.policy.slots().is_some_and(|slots| slots.after == 2);
        prop_assert!(verdicts[0] == verdicts[1] || is_admitted, "{verdicts:?}");
        let gone = |cpu| config.offline.as_ref().is_some_and(|gone| gone.contains(cpu));
        let named = config.destinations().contains(verdicts[0].cpu());
        // If the receiving CPU is also gone, any other CPU takes its place.
        prop_assert!(!gone(verdicts[0].cpu()) && (named || config.offline.is_some()));
        if arrival.hash.is_none() && !matches!(config.policy, Policy::Bound(_)) {
            prop_assert_eq!(verdicts[0].cpu(), steering.default_cpu(arrival.rx_queue));
        }
    }
}
