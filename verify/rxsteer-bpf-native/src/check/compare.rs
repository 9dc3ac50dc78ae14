//! Comparison of the state of both sides, and of the reasons for their decisions.

use super::Subject;
use super::world::{SECOND, World};
use crate::abi;
use crate::policy::LastPacket;
use rand::RngExt;
use rxsteer_core::balance::Counted;
use rxsteer_core::explain::Reason;
use rxsteer_core::sparse::SlotId;
use rxsteer_core::{Arrival, FlowHash};

impl<S: Subject> World<S> {
    /// Checks that both sides have the same state in the packet's slot.
    pub(super) fn check_guard(&mut self, arrival: &Arrival) {
        if arrival.hash.is_none() {
            return;
        }
        // For rules without a guard, the core has no slots.
        let Some(flow) = self.explain(arrival).flow else { return };
        let last = self.subject.last_packet(arrival.rx_queue.into(), arrival.hash.get());
        // The core has no generations.
        let core = flow.last.map(|(cpu, rx_cpu, seq)| LastPacket {
            seq,
            cpu: cpu.get().into(),
            generation: last.map_or(0, |last| last.generation),
            rx_cpu: rx_cpu.into(),
            hysteresis: flow.hysteresis,
        });
        assert_eq!(last, core, "{arrival:?}");
    }

    /// Checks that both sides have the same state for every flow.
    pub(super) fn compare_state(&mut self) {
        for index in 0..self.scenario.config.sock_flow_entries {
            let entry = self.socks.raw(FlowHash::from_raw(index));
            assert_eq!(self.subject.sock_entry(index), entry, "sock flow entry {index}");
        }
        assert!(self.subject.chains_are_sound(), "the chains of sparse slots");
        for hash in self.hashes.clone() {
            for queue in 0..self.scenario.queues.len() as u16 {
                let hash = FlowHash::from_raw(hash);
                let arrival = Arrival { time_ns: self.now, hash, rx_queue: queue, rule: 0 };
                self.check_guard(&arrival);
                let ago = self.rng.random_range(0..2 * SECOND);
                for time_ns in [self.now, self.now + SECOND, self.now.saturating_sub(ago)] {
                    self.check_sparse_slot(&Arrival { time_ns, ..arrival });
                }
            }
        }
        self.compare_limiters();
        self.compare_buckets();
    }

    fn check_sparse_slot(&mut self, arrival: &Arrival) {
        let Some(rule) = self.scenario.rule_of_slots() else { return };
        let arrival = &Arrival { rule, ..*arrival };
        let explanation = self.explain(arrival);
        // RFS chose the target by the desired CPU before any slot was examined, so the core does not report a slot.
        let held = match explanation.reason {
            Reason::Rfs => return,
            Reason::Slot { slot: SlotId { cpu, loop_ }, held: true } => {
                Some((u32::from(cpu.get()), u32::from(loop_)))
            }
            _ => None,
        };
        let device = self.scenario.queues[usize::from(arrival.rx_queue)].device;
        let table = arrival.rx_queue.into();
        let (hash, now) = (arrival.hash.get(), arrival.time_ns);
        let slot = self.subject.slot_held(table, device.into(), hash, now);
        assert_eq!(slot, held, "{arrival:?}");
    }

    /// Checks that both sides counted the same in every bucket, and found the same large flows.
    fn compare_buckets(&self) {
        let Some(counted) = self.plan.bucket_counts() else { return };
        let buckets = counted.large.len();
        let cpus = counted.packets.len() - buckets;
        let mut theirs = Counted::new(buckets, cpus);
        for rx_cpu in self.steerings.keys() {
            for at in 0..buckets + cpus {
                let behind = at.checked_sub(buckets).map(|cpu| abi::STEER_MAX_BUCKETS + cpu as u32);
                let number = behind.unwrap_or(at as u32);
                let [packets, flow, votes] = self.subject.bucket((*rx_cpu).into(), number);
                theirs.add(at, packets, flow, votes);
            }
        }
        assert_eq!(theirs, counted);
    }

    /// The core's limiter shows only its decisions; the other side's counts must match its own history.
    fn compare_limiters(&self) {
        let Some(buckets) = self.scenario.config.flow_limit else { return };
        for rx_cpu in self.steerings.keys() {
            let history = self.subject.limit_history((*rx_cpu).into());
            for bucket in 0..buckets {
                let count = history.iter().filter(|of| **of == bucket + 1).count();
                assert_eq!(self.subject.limit_count((*rx_cpu).into(), bucket), count as u32);
            }
        }
    }
}
