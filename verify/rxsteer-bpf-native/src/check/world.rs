//! The traffic, and the comparison.

use super::rings::{Producer, Rings};
use super::seen::Seen;
use super::{Kind, Scenario, Subject};
use crate::abi;
use crate::policy::{Decision, LastPacket, Packet};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_core::explain::{Explanation, Reason};
use rxsteer_core::{Arrival, CpuId, FlowHash, Plan, SockFlowTable, Steering, Verdict};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) const SECOND: u64 = rxsteer_core::sparse::INACTIVE_AFTER_NS;
/// The most packets of a burst; the core processes fewer at a time.
const MAX: usize = 150;

/// One scenario, run by the core and by another implementation.
#[derive(Debug)]
pub struct World<S> {
    pub(super) subject: S,
    pub(super) scenario: Scenario,
    pub(super) rng: ChaCha8Rng,
    rings: Rings,
    pub(super) plan: Arc<Plan>,
    /// By RX CPU.
    pub(super) steerings: BTreeMap<u16, Steering>,
    pub(super) socks: Arc<SockFlowTable>,
    pub(super) hashes: Vec<u32>,
    pub(super) now: u64,
    seen: Seen,
}

impl<S: Subject> World<S> {
    /// The start of `scenario`; `subject` has empty tables with its [`Scenario::sizes`].
    ///
    /// # Panics
    ///
    /// If the core considers the scenario impossible.
    pub fn new(mut subject: S, mut scenario: Scenario, mut rng: ChaCha8Rng) -> World<S> {
        let sizes = scenario.sizes();
        let rings = Rings::new(&mut rng, sizes.cpus, sizes.rx_cpus, scenario.ring_size);
        for (rx_cpu, ring, pair) in rings.all() {
            subject.set_pair((rx_cpu, ring), [pair.tail, pair.dequeued, pair.delivered]);
        }
        let plan = Plan::new(&scenario.config, sizes.rx_cpus as u16).expect("it is possible");
        let plan = Arc::new(plan);
        let mut steerings = BTreeMap::new();
        for queue in &scenario.queues {
            let of = (0..).zip(&scenario.queues).filter(|(_, other)| other.rx_cpu == queue.rx_cpu);
            let queues: Vec<u16> = of.map(|(number, _)| number).collect();
            steerings.insert(queue.rx_cpu, Steering::of_plan(plan.clone(), queues));
        }
        // `rps` reads no desired CPUs, so the core's `rfs`, which replaces it, must not get any.
        let socks = if scenario.kind == Kind::Rps {
            let highest = scenario.possible.highest();
            Arc::new(SockFlowTable::new(sizes.sock_entries, highest))
        } else {
            plan.sock_flows().clone()
        };
        scenario.table = plan.bucket_table().to_vec();
        subject.configure(&scenario.rules());
        let flows = rng.random_range(5..400);
        let hashes = (0..flows).map(|_| subject.new_flow(&mut rng)).collect();
        let now = rng.random_range(0..5 * SECOND);
        let seen = Seen::default();
        World { subject, scenario, rng, rings, plan, steerings, socks, hashes, now, seen }
    }

    /// Sends bursts until `packets` packets were decided on, and compares everything. Returns what was covered.
    ///
    /// # Panics
    ///
    /// If the two differ.
    pub fn run(&mut self, packets: u64) -> Seen {
        let mut compared = 0;
        while self.seen.packets < packets {
            self.burst();
            self.events();
            if self.seen.packets >= compared + 3_000 {
                compared = self.seen.packets;
                self.compare_state();
            }
        }
        self.compare_state();
        self.seen
    }

    fn burst(&mut self) {
        let queue = self.rng.random_range(0..self.scenario.queues.len());
        let length = match self.rng.random_range(0..4) {
            0 => 1,
            1 | 2 => self.rng.random_range(1..20),
            _ => self.rng.random_range(1..MAX),
        };
        // A flow with most of the packets, for the flow limit.
        let elephant = self.rng.random_ratio(1, 4);
        let mut hash = *self.hashes.choose(&mut self.rng).unwrap_or(&1);
        let mut arrivals = Vec::new();
        for _ in 0..length {
            if !elephant || self.rng.random_ratio(1, 5) {
                hash = *self.hashes.choose(&mut self.rng).unwrap_or(&1);
            }
            if self.rng.random_ratio(1, 500) {
                hash = self.subject.new_flow(&mut self.rng);
            }
            self.now += self.rng.random_range(0..1000);
            // In the core, `bound` decides by queue alone; in the kernel, it does not steer these packets.
            let unsteered = !self.scenario.is_bound() && self.rng.random_ratio(1, 100);
            let rule = self.rng.random_range(0..=self.scenario.config.packet_rules.len()) as u16;
            arrivals.push(Arrival {
                time_ns: self.now,
                hash: FlowHash::from_raw(if unsteered { 0 } else { hash }),
                rx_queue: queue as u16,
                // A frame without a flow matches no rule.
                rule: if unsteered { 0 } else { rule },
            });
        }
        self.decide(&arrivals);
    }

    /// Both sides decide on the burst: one packet by packet, the other all at once.
    fn decide(&mut self, arrivals: &[Arrival]) {
        let table = u32::from(arrivals[0].rx_queue);
        let queue = self.scenario.queues[table as usize];
        let explanation = self.explain(&arrivals[0]);
        let mut decided = VecDeque::new();
        for arrival in arrivals {
            let packet = Packet {
                rule: arrival.rule,
                hash: arrival.hash.get(),
                rx_cpu: queue.rx_cpu.into(),
                queue: queue.number.into(),
                device: queue.device,
                // The core keeps one desired CPU for both directions.
                sock_hash: arrival.hash.get(),
                row: table,
                now: arrival.time_ns,
            };
            // Packets without a flow are not steered in the kernel.
            if packet.hash == 0 {
                decided.push_back(None);
                continue;
            }
            let before = self.subject.last_packet(table, packet.hash);
            let decision = self.subject.decide(&packet, table);
            self.check_ring(before, &decision);
            self.count(before, &decision);
            decided.push_back((decision.passes == 0).then_some(decision));
            if decision.passes != 0 {
                assert_eq!(decision.cpu, packet.rx_cpu, "{packet:?}");
                assert_eq!(self.subject.last_packet(table, packet.hash), None);
            }
        }
        if let Some(Some(first)) = decided.front() {
            check_reason(&explanation, first);
        }
        let steering = self.steerings.get_mut(&queue.rx_cpu).expect("the queue's source has one");
        let mut producer = Producer {
            rings: &mut self.rings,
            rx_cpu: queue.rx_cpu.into(),
            decided: decided.clone(),
            limited: self.scenario.config.flow_limit.is_some(),
            current: None,
        };
        let mut verdicts = vec![Verdict::default(); arrivals.len()];
        assert_eq!(steering.decide(arrivals, &mut producer, &mut verdicts), arrivals.len());
        for ((arrival, verdict), decision) in arrivals.iter().zip(&verdicts).zip(&decided) {
            let (cpu, dropped) =
                decision.map_or((u32::from(queue.rx_cpu), false), |d| (d.cpu, d.dropped != 0));
            assert_eq!(u32::from(verdict.cpu().get()), cpu, "{arrival:?} {decision:?}");
            assert_eq!(verdict.is_drop(), dropped, "{arrival:?} {decision:?}");
            self.check_guard(arrival);
        }
        for (arrival, decision) in arrivals.iter().zip(&decided) {
            if let Some(decision) = decision {
                let pair = (queue.rx_cpu.into(), decision.ring());
                let tail = self.rings.pair(pair.0, pair.1).tail;
                assert_eq!(self.subject.tail(pair), tail, "{arrival:?} {decision:?}");
            }
        }
        self.seen.packets += arrivals.len() as u64;
    }

    /// Checks the ring of a packet. It goes through the ring that its CPU uses now, unless it must follow earlier
    /// packets. A local packet passes, unless earlier packets are on their way through a ring.
    fn check_ring(&self, last: Option<LastPacket>, decision: &Decision) {
        let is_under_way =
            |last: &LastPacket| !self.rings.is_delivered(last.rx_cpu, last.cpu, last.seq);
        let under_way = last.filter(is_under_way);
        let is_local = decision.by == abi::STEER_BY_LOCAL && !self.scenario.goes_by_ring();
        assert_eq!(decision.passes != 0, is_local && under_way.is_none(), "{decision:?}");
        if decision.passes == 0 {
            let present = self.scenario.second_generation.contains(&(decision.cpu as u16));
            let followed = under_way.filter(|last| last.cpu == decision.cpu);
            let generation = followed.map_or(present.into(), |last| last.generation);
            assert_eq!(decision.generation, generation, "{decision:?}");
        }
    }

    fn count(&mut self, last: Option<LastPacket>, decision: &Decision) {
        let seen = &mut self.seen;
        seen.by_rule[decision.by as usize] += 1;
        seen.deferred += u64::from(decision.target != decision.cpu);
        seen.moved += u64::from(last.is_some_and(|last| last.cpu != decision.cpu));
        seen.dropped += u64::from(decision.dropped != 0);
        seen.second_generation += u64::from(decision.generation);
        seen.unguarded += u64::from(self.scenario.unguarded);
    }

    pub(super) fn explain(&mut self, arrival: &Arrival) -> Explanation {
        let rx_cpu = self.scenario.queues[usize::from(arrival.rx_queue)].rx_cpu;
        let mut producer = Producer {
            rings: &mut self.rings,
            rx_cpu: rx_cpu.into(),
            decided: VecDeque::new(),
            limited: false,
            current: None,
        };
        self.steerings[&rx_cpu].explain(arrival, &mut producer)
    }

    /// Events between bursts.
    fn events(&mut self) {
        for _ in 0..self.rng.random_range(0..6) {
            if let Some((rx_cpu, ring, numbers)) = self.rings.advance(&mut self.rng) {
                self.subject.set_pair((rx_cpu, ring), numbers);
            }
        }
        match self.rng.random_range(0..40) {
            0 => self.now += SECOND,
            1 => self.now += self.rng.random_range(0..2 * SECOND),
            2 => self.now = self.now.saturating_sub(self.rng.random_range(0..2 * SECOND)),
            3..12 => self.now += self.rng.random_range(0..SECOND / 10),
            _ => {}
        }
        for _ in 0..self.rng.random_range(0..3) {
            self.socket_event();
        }
        if self.scenario.kind.has_buckets() && self.rng.random_ratio(1, 20) {
            if self.scenario.kind == Kind::Balance {
                self.deliver_all();
            }
            let moves = self.scenario.moves(&mut self.rng);
            let plan = Arc::new(self.plan.moved(&moves));
            self.seen.bucket_moves += moves.len() as u64;
            self.adopt(plan);
        }
        if self.rng.random_ratio(1, 100) {
            if self.scenario.unguarded && self.rng.random() {
                // First the guard is active again, with the same rules.
                self.guard_again();
            } else if self.scenario.kind.can_change() {
                if self.scenario.kind.has_no_table() {
                    self.deliver_all();
                }
                self.change();
            } else {
                self.scenario.switch_rings(&mut self.rng);
                self.subject.configure(&self.scenario.rules());
            }
        }
    }

    /// The guard is active again, with the same rules.
    fn guard_again(&mut self) {
        if std::mem::take(&mut self.scenario.unguarded) {
            self.subject.configure(&self.scenario.rules());
        }
    }

    /// Delivers everything that is under way.
    fn deliver_all(&mut self) {
        while let Some((rx_cpu, ring, numbers)) = self.rings.advance(&mut self.rng) {
            self.subject.set_pair((rx_cpu, ring), numbers);
        }
    }

    fn socket_event(&mut self) {
        let hash = match self.rng.random_range(0..20) {
            0 => 0,
            1 => self.rng.random(),
            _ => *self.hashes.choose(&mut self.rng).unwrap_or(&1),
        };
        if self.rng.random_ratio(1, 4) {
            self.socks.forget(FlowHash::from_raw(hash));
            self.subject.forget_desired(hash);
            return;
        }
        // This includes CPUs to which packets cannot be sent, and ids above the highest.
        let id = self.rng.random_range(0..self.scenario.possible.highest().get() + 3);
        self.socks.record(FlowHash::from_raw(hash), CpuId::new(id).expect("it is small"));
        self.subject.record_desired(hash, id.into());
    }

    fn change(&mut self) {
        self.scenario.change(&mut self.rng);
        let plan = Arc::new(self.plan.next(&self.scenario.config).expect("it is possible"));
        self.adopt(plan);
    }

    /// Both sides decide by the present scenario and the buckets of `plan` from now on.
    fn adopt(&mut self, plan: Arc<Plan>) {
        self.scenario.table = plan.bucket_table().to_vec();
        self.subject.configure(&self.scenario.rules());
        for (rx_cpu, steering) in &mut self.steerings {
            let mut producer = Producer {
                rings: &mut self.rings,
                rx_cpu: (*rx_cpu).into(),
                decided: VecDeque::new(),
                limited: false,
                current: None,
            };
            steering.change(&plan, &mut producer);
            assert!(steering.is_drained(&mut producer), "no transition is under way");
        }
        self.plan = plan;
    }
}

/// Checks that the first packet of a burst had the core's target, by the same rule.
fn check_reason(explanation: &Explanation, decision: &Decision) {
    let by = match explanation.reason {
        Reason::Matched { .. } => abi::STEER_BY_MATCH,
        Reason::PolicyNone
        | Reason::NotBound
        | Reason::NoHash
        | Reason::NoSuchQueue
        | Reason::Stays { .. } => abi::STEER_BY_LOCAL,
        Reason::Bound => abi::STEER_BY_BOUND,
        Reason::Hash { .. } | Reason::Bucket { .. } => abi::STEER_BY_HASH,
        Reason::Slot { .. } => abi::STEER_BY_SLOT,
        Reason::Rfs => abi::STEER_BY_RFS,
    };
    let target = u32::from(explanation.target.get());
    assert_eq!((decision.by, decision.target), (by, target), "{explanation:?} {decision:?}");
    assert_eq!(decision.cpu, u32::from(explanation.cpu.get()), "{explanation:?} {decision:?}");
}
