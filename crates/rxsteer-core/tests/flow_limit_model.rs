//! The flow limit compared with the kernel's `skb_flow_limit` (except for the packets that the kernel's history
//! begins with), and its effect in a decision: an elephant flow is dropped where its backlog is half full, mouse
//! flows still get room, and no packet is counted twice.

use crate::reference::backlogs::BacklogSet;
use proptest::prelude::*;
use rxsteer_core::flow_limit::FlowLimiter;
use rxsteer_core::{
    Arrival, Backlogs, CpuId, DropReason, FlowHash, Policy, Refusal, Slots, SteerConfig, Steering,
    Verdict,
};
use std::collections::VecDeque;

const HISTORY: usize = 128;

/// The kernel's `hash_32`, to the number of bits that index the buckets.
fn bucket(hash: u32, buckets: u32) -> u32 {
    ((u64::from(hash.wrapping_mul(0x61c8_8647)) * u64::from(buckets)) >> 32) as u32
}

/// `skb_flow_limit`, line by line.
struct Kernel {
    max_backlog: u32,
    buckets: Vec<u8>,
    history: [u32; HISTORY],
    history_head: usize,
}

impl Kernel {
    fn new(buckets: u32, max_backlog: u32) -> Kernel {
        // One bucket more, for the packets that never existed. The kernel counts them as bucket 0's, and drops
        // real packets of that bucket from its history in their place.
        let history = [buckets; HISTORY];
        let buckets = vec![0; buckets as usize + 1];
        Kernel { max_backlog, buckets, history, history_head: 0 }
    }

    fn skb_flow_limit(&mut self, hash: u32, qlen: u32) -> bool {
        if qlen < self.max_backlog >> 1 {
            return false;
        }
        let new_flow = bucket(hash, self.buckets.len() as u32 - 1);
        let old_flow = self.history[self.history_head];
        self.history[self.history_head] = new_flow;
        self.history_head += 1;
        self.history_head &= HISTORY - 1;
        if self.buckets[old_flow as usize] != 0 {
            self.buckets[old_flow as usize] -= 1;
        }
        self.buckets[new_flow as usize] += 1;
        usize::from(self.buckets[new_flow as usize]) > HISTORY >> 1
    }
}

/// The intended behaviour: a list of the last packets, counted anew each time.
struct Model {
    buckets: u32,
    max_backlog: u32,
    last: VecDeque<u32>,
}

impl Model {
    fn exceeds(&mut self, hash: u32, waiting: u32) -> bool {
        if waiting < self.max_backlog / 2 {
            return false;
        }
        let flow = bucket(hash, self.buckets);
        self.last.push_back(flow);
        if self.last.len() > HISTORY {
            self.last.pop_front();
        }
        self.last.iter().filter(|other| **other == flow).count() > HISTORY / 2
    }
}

/// Runs of packets of one flow, so that a flow often has about half of the last 128.
fn packets() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let run = (
        prop_oneof![0..4u32, any::<u32>()],
        1..60usize,
        prop_oneof![5 => 0..80u32, 1 => 0..200u32],
    );
    prop::collection::vec(run, 1..40).prop_map(|runs| {
        let packets = |(flow, length, waiting): (u32, usize, u32)| {
            // Every third packet of a run belongs to another flow.
            (0..length).map(move |n| (if n % 3 == 2 { flow ^ 1 } else { flow }, waiting))
        };
        runs.into_iter().flat_map(packets).collect()
    })
}

fn hash(flow: u32) -> FlowHash {
    FlowHash::computed(flow.wrapping_mul(0x9e37_79b1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn limiter_equals_the_kernels(
        buckets in prop::sample::select(vec![1u32, 2, 4096]),
        limit in prop::sample::select(vec![1u32, 2, 100, 101]),
        packets in packets(),
    ) {
        let mut limiter = FlowLimiter::new(buckets);
        let mut kernel = Kernel::new(buckets, limit);
        for (flow, waiting) in packets {
            let hash = hash(flow);
            prop_assert_eq!(
                limiter.exceeds(hash, waiting, limit),
                kernel.skb_flow_limit(hash.get(), waiting)
            );
        }
    }

    #[test]
    fn limiter_counts_the_last_packets(
        buckets in prop::sample::select(vec![1u32, 2, 4096]),
        limit in prop::sample::select(vec![1u32, 2, 100, 101]),
        packets in packets(),
    ) {
        let mut limiter = FlowLimiter::new(buckets);
        let mut model = Model { buckets, max_backlog: limit, last: VecDeque::new() };
        for (flow, waiting) in packets {
            let hash = hash(flow);
            prop_assert_eq!(
                limiter.exceeds(hash, waiting, limit),
                model.exceeds(hash.get(), waiting)
            );
        }
    }
}

const LIMIT: u32 = 1000;
const ELEPHANT: u32 = 1;

fn steering(policy: Policy, flow_limit: Option<u32>) -> Steering {
    let receiving = vec![CpuId::new(0).unwrap()];
    let config = SteerConfig::new(policy, "1".parse().unwrap(), receiving);
    Steering::new(&SteerConfig { flow_limit, ..config }).unwrap()
}

fn backlogs(refusal: Refusal) -> BacklogSet {
    BacklogSet::new(2, LIMIT, 0, refusal)
}

const FULL: Refusal = Refusal::Drop(DropReason::BacklogFull);

/// Sends one packet. Returns why the packet was dropped, or `None` when it must wait.
fn send(
    steering: &mut Steering,
    backlogs: &mut BacklogSet,
    flow: u32,
) -> Option<Option<DropReason>> {
    let arrival = Arrival { hash: hash(flow), ..Arrival::default() };
    let mut verdict = [Verdict::default()];
    let decided = steering.decide(&[arrival], backlogs, &mut verdict);
    (decided == 1).then(|| verdict[0].drop_reason())
}

/// Policies with and without a flow table reserve room in two different ways.
fn policies() -> [Policy; 4] {
    [Policy::Rps, Policy::Sparse(Slots::of(2)), Policy::Rfs, Policy::RfsSparse(Slots::of(2))]
}

#[test]
fn it_is_off_by_default() {
    for policy in policies() {
        let (mut steering, mut backlogs) = (steering(policy, None), backlogs(FULL));
        for _ in 0..LIMIT {
            assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), Some(None));
        }
        let reason = Some(Some(DropReason::BacklogFull));
        assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), reason);
    }
}

#[test]
fn elephant_is_dropped_while_mice_get_in() {
    for policy in policies() {
        let (mut steering, mut backlogs) = (steering(policy, Some(4096)), backlogs(FULL));
        for _ in 0..500 {
            assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), Some(None), "half is free");
        }
        for _ in 0..64 {
            assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), Some(None), "half of 128");
        }
        for round in 0..300 {
            let elephant = Some(Some(DropReason::FlowLimit));
            // Three of four packets belong to the elephant flow.
            for _ in 0..3 {
                assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), elephant);
            }
            assert_eq!(send(&mut steering, &mut backlogs, 100 + round), Some(None));
        }
        assert_eq!(backlogs.under_way(1), 500 + 64 + 300);
        // A backlog that drains accepts all flows.
        backlogs.complete(1, 500);
        assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), Some(None));
    }
}

/// If refused packets of a full backlog were counted, the mouse flow that sent most of them would be the elephant.
#[test]
fn what_a_full_backlog_refuses_is_not_counted() {
    for policy in policies() {
        let (mut steering, mut backlogs) = (steering(policy, Some(4096)), backlogs(FULL));
        for flow in 0..LIMIT {
            assert_eq!(send(&mut steering, &mut backlogs, 100 + flow), Some(None));
        }
        for _ in 0..1000 {
            let reason = Some(Some(DropReason::BacklogFull));
            assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), reason);
        }
        backlogs.complete(1, 100);
        for _ in 0..64 {
            assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), Some(None));
        }
        let reason = Some(Some(DropReason::FlowLimit));
        assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), reason);
    }
}

/// A packet that must wait is offered many times, and counts as one packet in the history.
#[test]
fn packet_that_waits_counts_once() {
    for policy in policies() {
        let (mut steering, mut backlogs) = (steering(policy, Some(4096)), backlogs(Refusal::Wait));
        for flow in 0..LIMIT {
            assert_eq!(send(&mut steering, &mut backlogs, 100 + flow), Some(None));
        }
        for _ in 0..64 {
            for _ in 0..5 {
                assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), None, "no room");
            }
            backlogs.complete(1, 1);
            assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), Some(None));
        }
        backlogs.complete(1, 1);
        let reason = Some(Some(DropReason::FlowLimit));
        assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), reason, "the 65th");
    }
}

/// A packet that the flow limit drops takes no room and blocks no other packet.
#[test]
fn packets_that_the_limit_drops_take_no_room() {
    let (mut steering, mut backlogs) = (steering(Policy::Rfs, Some(4096)), backlogs(FULL));
    for _ in 0..564 {
        send(&mut steering, &mut backlogs, ELEPHANT);
    }
    let tail = backlogs.tail(CpuId::new(1).unwrap());
    let reason = Some(Some(DropReason::FlowLimit));
    assert_eq!(send(&mut steering, &mut backlogs, ELEPHANT), reason);
    assert_eq!(backlogs.tail(CpuId::new(1).unwrap()), tail);
}
