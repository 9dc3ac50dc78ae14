//! What holds of every decision, whatever the policy and the traffic.

use proptest::prelude::*;
use rxsteer_core::{
    Arrival, Backlogs, CpuId, DropReason, FlowHash, Policy, Refusal, SteerConfig, Steering, Verdict,
};

/// Backlogs with so many places each, refusing in one way or the other.
#[derive(Clone, Debug, PartialEq)]
struct Places {
    left: Vec<u32>,
    wait: bool,
}

impl Backlogs for Places {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        let refusal =
            if self.wait { Refusal::Wait } else { Refusal::Drop(DropReason::BacklogFull) };
        let left = &mut self.left[cpu.index()];
        *left = left.checked_sub(1).ok_or(refusal)?;
        Ok(*left)
    }
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn policy() -> impl Strategy<Value = SteerConfig> {
    let policies = prop_oneof![
        Just(Policy::None),
        Just(Policy::Rps),
        Just(Policy::Bound(vec![(0, cpu(3)), (2, cpu(1))]))
    ];
    (policies, 1..8u16, any::<bool>()).prop_map(|(policy, cpus, mapped)| {
        let mapped = mapped && policy == Policy::Rps;
        SteerConfig {
            policy,
            cpus: rxsteer_core::CpuSet::first(cpus).unwrap(),
            rps_maps: if mapped { vec![(1, "2,5".parse().unwrap())] } else { vec![] },
            receiving_cpus: vec![cpu(0), cpu(6), cpu(7)],
        }
    })
}

fn arrival() -> impl Strategy<Value = Arrival> {
    (prop_oneof![Just(0), any::<u32>()], 0..5u16, any::<u64>()).prop_map(
        |(hash, rx_queue, time_ns)| Arrival {
            time_ns,
            hash: FlowHash::from_raw(hash),
            rx_queue,
            reserved: 0,
        },
    )
}

proptest! {
    /// A batch decides like its packets one by one, up to the first that must wait, and leaves the
    /// backlogs alike.
    #[test]
    fn a_batch_equals_its_packets_one_by_one(
        config in policy(),
        arrivals in prop::collection::vec(arrival(), 0..100),
        places in 0..40u32,
        wait in any::<bool>(),
    ) {
        let mut batched = Places { left: vec![places; 8], wait };
        let mut single = batched.clone();
        let mut verdicts = vec![Verdict::default(); arrivals.len()];
        let decided =
            Steering::new(&config).unwrap().decide(&arrivals, &mut batched, &mut verdicts);

        let mut one_by_one = Steering::new(&config).unwrap();
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
        prop_assert!(decided == arrivals.len() || wait);
    }

    /// A flow's CPU depends on its hash and RX queue alone: the next packet goes where the last
    /// one went, and only to CPUs that the configuration names.
    #[test]
    fn a_flow_stays_where_it_is(config in policy(), arrival in arrival(), later in any::<u64>()) {
        let mut steering = Steering::new(&config).unwrap();
        let mut places = Places { left: vec![2; 8], wait: false };
        let mut verdicts = [Verdict::default(); 2];
        let again = Arrival { time_ns: later, ..arrival };
        prop_assert_eq!(steering.decide(&[arrival, again], &mut places, &mut verdicts), 2);
        prop_assert_eq!(verdicts[0], verdicts[1]);
        prop_assert!(config.destinations().contains(verdicts[0].cpu()));
        if arrival.hash.is_none() && !matches!(config.policy, Policy::Bound(_)) {
            prop_assert_eq!(verdicts[0].cpu(), steering.default_cpu(arrival.rx_queue));
        }
    }
}
