//! RFS, alone and above sparse flows, compared with a model: after any list of operations each packet gets the
//! verdict that the text of rfs-commit gives it.
//!
//! The model keeps its tables as rfs-commit describes them, and the packets under way as lists. It numbers packets
//! without limit, while the positions in the tested code begin just below their wrap.

use crate::reference::backlogs::BacklogSet;
use crate::reference::sparse::{Sparse, by_hash};
use proptest::prelude::*;
use rxsteer_core::order::HYSTERESIS;
use rxsteer_core::{
    Arrival, CpuId, CpuSet, DropReason, Fallback, FlowHash, Policy, Refusal, Slots, SteerConfig,
    Steering, Verdict,
};
use std::collections::{HashMap, VecDeque};

const CPUS: u16 = 8;
const MAPS: [&[u16]; 2] = [&[0, 1, 2, 3], &[2, 5, 7]];
const RECEIVING: [u16; 2] = [0, 6];
const DEVICES: [u16; 2] = [0, 1];

#[derive(Clone, Debug)]
enum Op {
    Record(u32, u16),
    Forget(u32),
    /// Queue 2 does not exist.
    Packet {
        queue: u16,
        hash: u32,
        later_ns: u64,
    },
    Complete(u16, u32),
}

#[derive(Clone, Debug)]
struct Setup {
    /// Sparse flows below RFS.
    loops: Option<u8>,
    fallback: Fallback,
    /// The only CPUs that flows may follow their applications to.
    rfs_cpus: Option<Vec<u16>>,
    sock_flow_entries: u32,
    flow_cnt: u32,
    offline: Vec<u16>,
    limit: u32,
    refusal: Refusal,
    start: u32,
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn set(ids: &[u16]) -> Option<CpuSet> {
    CpuSet::new(ids.iter().copied().map(cpu))
}

impl Setup {
    fn steering(&self) -> Steering {
        let policy = self.loops.map_or(Policy::Rfs, |loops| Policy::RfsSparse(Slots::of(loops)));
        let receiving = RECEIVING.map(cpu).to_vec();
        Steering::new(&SteerConfig {
            rps_maps: vec![(1.into(), set(MAPS[1]).unwrap())],
            fallback: self.fallback,
            rfs_cpus: self.rfs_cpus.as_deref().and_then(set),
            devices: DEVICES.to_vec(),
            offline: set(&self.offline),
            possible: CpuSet::first(CPUS),
            sock_flow_entries: self.sock_flow_entries,
            flow_cnt: Some(self.flow_cnt),
            ..SteerConfig::new(policy, set(MAPS[0]).unwrap(), receiving)
        })
        .unwrap()
    }
}

/// The text of rfs-commit, word by word.
struct Model {
    setup: Setup,
    /// Indexed by entry: upper hash bits and desired CPU.
    sock_flows: HashMap<u32, (u32, u16)>,
    /// Indexed by queue and slot: the current CPU, the number of the last packet queued there, and how many
    /// packets in a row have followed the slot instead of their target. The last slot is for packets without a
    /// flow.
    dev_flows: [Vec<Option<(u16, u64, u32)>>; 2],
    sparse: Sparse,
    /// Indexed by CPU: the packets under way.
    backlogs: Vec<VecDeque<u64>>,
    packets: u64,
    /// Packets whose target is the CPU where their application runs, and packets sent to a CPU other than their
    /// target.
    counts: [u64; 2],
}

impl Model {
    fn new(setup: &Setup) -> Model {
        let slots = vec![None; setup.flow_cnt.next_power_of_two() as usize + 1];
        Model {
            setup: setup.clone(),
            sock_flows: HashMap::new(),
            dev_flows: [slots.clone(), slots],
            sparse: Sparse::new(CPUS),
            backlogs: vec![VecDeque::new(); usize::from(CPUS)],
            packets: 0,
            counts: [0; 2],
        }
    }

    /// Index and upper bits. The lower bits are reserved for any CPU and for "none".
    fn sock_flow(&self, hash: u32) -> (u32, u32) {
        let for_cpu = (0..).find(|bits| 1 << bits > CPUS).unwrap();
        (hash % self.setup.sock_flow_entries.next_power_of_two(), hash >> for_cpu)
    }

    fn record(&mut self, hash: u32, cpu: u16) {
        if hash != 0 && cpu < CPUS {
            let (index, upper) = self.sock_flow(hash);
            self.sock_flows.insert(index, (upper, cpu));
        }
    }

    fn forget(&mut self, hash: u32) {
        let (index, upper) = self.sock_flow(hash);
        if hash != 0 && self.sock_flows.get(&index).is_some_and(|entry| entry.0 == upper) {
            self.sock_flows.remove(&index);
        }
    }

    fn is_online(&self, cpu: u16) -> bool {
        !self.setup.offline.contains(&cpu)
    }

    /// Whether a flow may be sent to a CPU because its application runs there.
    fn is_desired(&self, cpu: u16) -> bool {
        let allowed = self.setup.rfs_cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
        allowed && self.is_online(cpu)
    }

    /// Whether a flow that the fallback places may stay on a CPU for a while.
    fn may_linger(&self, cpu: u16) -> bool {
        let mapped = MAPS.iter().any(|map| map.contains(&cpu)) && self.is_online(cpu);
        mapped || self.setup.fallback == Fallback::Local && self.is_desired(cpu)
    }

    /// The target of a packet, and whether only the fallback placed it.
    fn target_of(&mut self, queue: u16, hash: u32, now: u64) -> (u16, bool) {
        // Not steered: a queue that does not exist counts as the first.
        let Some(map) = MAPS.get(usize::from(queue)).filter(|_| hash != 0) else {
            return (*RECEIVING.get(usize::from(queue)).unwrap_or(&RECEIVING[0]), false);
        };
        let (index, upper) = self.sock_flow(hash);
        if let Some(&(_, desired)) = self.sock_flows.get(&index).filter(|entry| entry.0 == upper)
            && self.is_desired(desired)
        {
            self.counts[0] += 1;
            return (desired, false);
        }
        let mut falls_back = true;
        let chosen = match self.setup.loops {
            None => by_hash(map, hash),
            Some(loops) => {
                let flow = (DEVICES[usize::from(queue)], hash);
                let chosen = self.sparse.find_cpu(map, loops, &self.setup.offline, flow, now);
                falls_back = self.sparse.by_hash;
                chosen
            }
        };
        if falls_back && self.setup.fallback == Fallback::Local {
            return (RECEIVING[usize::from(queue)], true);
        }
        let chosen = if self.is_online(chosen) { chosen } else { RECEIVING[usize::from(queue)] };
        (chosen, falls_back)
    }

    /// `None`: the packet must wait.
    fn packet(&mut self, queue: u16, hash: u32, now: u64) -> Option<Verdict> {
        let before = self.counts;
        let (target, falls_back) = self.target_of(queue, hash, now);
        let (table, slot) = if hash == 0 || queue > 1 {
            (usize::from(queue % 2), self.dev_flows[0].len() - 1)
        } else {
            // The kernel's hash_32, to the number of bits that index the slots.
            let mixed = u64::from(hash.wrapping_mul(0x61c8_8647));
            let slots = self.dev_flows[0].len() as u64 - 1;
            (usize::from(queue), ((mixed * slots) >> 32) as usize)
        };
        let goes_to = match self.dev_flows[table][slot] {
            Some((current, number, _)) if self.backlogs[usize::from(current)].contains(&number) => {
                current
            }
            // A packet that the fallback places follows the flows of the slot for a while.
            Some((current, _, followed))
                if falls_back && followed < HYSTERESIS && self.may_linger(current) =>
            {
                current
            }
            _ => target,
        };
        let followed = match self.dev_flows[table][slot] {
            _ if goes_to == target => 0,
            Some((_, _, followed)) => HYSTERESIS.min(followed + 1),
            None => unreachable!("an unset slot defers no flow"),
        };
        let backlog = &mut self.backlogs[usize::from(goes_to)];
        let verdict = if backlog.len() < self.setup.limit as usize {
            self.packets += 1;
            backlog.push_back(self.packets);
            self.dev_flows[table][slot] = Some((goes_to, self.packets, followed));
            Verdict::deliver(cpu(goes_to))
        } else if let Refusal::Drop(reason) = self.setup.refusal {
            Verdict::drop(cpu(goes_to), reason)
        } else {
            self.counts = before;
            return None;
        };
        self.counts[1] += u64::from(goes_to != target);
        Some(verdict)
    }

    fn complete(&mut self, cpu: u16, count: u32) {
        let backlog = &mut self.backlogs[usize::from(cpu)];
        backlog.drain(..backlog.len().min(count as usize));
    }
}

fn setup() -> impl Strategy<Value = Setup> {
    let refusals = [Refusal::Wait, Refusal::Drop(DropReason::BacklogFull)];
    (
        prop::option::of(1..=5u8),
        (
            prop::sample::select(vec![Fallback::Hash, Fallback::Local]),
            prop::sample::select(vec![None, Some(vec![1, 6])]),
        ),
        prop::sample::select(vec![1u32, 2, 5, 64]),
        prop::sample::select(vec![1u32, 2, 4, 64]),
        prop::sample::select(vec![vec![], vec![2], vec![2, 7]]),
        prop_oneof![Just(3u32), Just(100)],
        prop::sample::select(refusals.to_vec()),
        prop_oneof![Just(u32::MAX - 5), Just(i32::MAX as u32 - 5), any::<u32>()],
    )
        .prop_map(
            |(
                loops,
                (fallback, rfs_cpus),
                sock_flow_entries,
                flow_cnt,
                offline,
                limit,
                refusal,
                start,
            )| {
                Setup {
                    loops,
                    fallback,
                    rfs_cpus,
                    sock_flow_entries,
                    flow_cnt,
                    offline,
                    limit,
                    refusal,
                    start,
                }
            },
        )
}

/// Few flows, some of which differ in one bit only; and "no hash".
fn hash() -> impl Strategy<Value = u32> {
    let flow = (1..8u32, prop::sample::select(vec![0u32, 1 << 1, 1 << 3, 1 << 5, 1 << 28]))
        .prop_map(|(flow, bit)| flow.wrapping_mul(0x9e37_79b1) ^ bit);
    prop_oneof![1 => Just(0), 20 => flow]
}

fn op() -> impl Strategy<Value = Op> {
    let later = prop_oneof![8 => 0..100_000_000u64, 1 => Just(1_000_000_000), 1 => Just(3 << 30)];
    prop_oneof![
        // CPU 8 is above the highest.
        3 => (hash(), 0..=CPUS).prop_map(|(hash, cpu)| Op::Record(hash, cpu)),
        1 => hash().prop_map(Op::Forget),
        10 => (prop_oneof![4 => Just(0), 4 => Just(1), 1 => Just(2)], hash(), later)
            .prop_map(|(queue, hash, later_ns)| Op::Packet { queue, hash, later_ns }),
        4 => (0..CPUS, 0..6u32).prop_map(|(cpu, count)| Op::Complete(cpu, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_verdict_is_the_models(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let mut model = Model::new(&setup);
        let mut steering = setup.steering();
        let mut backlogs = BacklogSet::new(usize::from(CPUS), setup.limit, setup.start, setup.refusal);
        let socks = steering.plan().sock_flows().clone();
        let mut now = 0;
        for (index, op) in ops.into_iter().enumerate() {
            match op {
                Op::Record(hash, at) => {
                    socks.record(FlowHash::from_raw(hash), cpu(at));
                    model.record(hash, at);
                }
                Op::Forget(hash) => {
                    socks.forget(FlowHash::from_raw(hash));
                    model.forget(hash);
                }
                Op::Complete(cpu, count) => {
                    backlogs.complete(usize::from(cpu), count);
                    model.complete(cpu, count);
                }
                Op::Packet { queue, hash, later_ns } => {
                    now += later_ns;
                    let arrival = Arrival {
                        time_ns: now,
                        hash: FlowHash::from_raw(hash),
                        rx_queue: queue,
                        rule: 0,
                    };
                    let mut verdict = [Verdict::default()];
                    let decided = steering.decide(&[arrival], &mut backlogs, &mut verdict);
                    let got = (decided == 1).then_some(verdict[0]);
                    prop_assert_eq!(got, model.packet(queue, hash, now), "operation {}", index);
                    let counts = steering.counts();
                    prop_assert_eq!([counts.rfs, counts.deferred], model.counts);
                }
            }
        }
    }
}
