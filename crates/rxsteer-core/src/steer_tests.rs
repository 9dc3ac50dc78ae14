//! Decisions of one packet after the other and in batches, and what they count.

use super::*;
use crate::flow::FlowHash;
use crate::policy::Policy;
use crate::verdict::DropReason;
use alloc::vec;
use alloc::vec::Vec;

/// Backlogs with room for a given number of packets each.
struct Room(Vec<u32>, Refusal);

impl Backlogs for Room {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        let left = &mut self.0[cpu.index()];
        *left = left.checked_sub(1).ok_or(self.1)?;
        Ok(*left)
    }

    fn has_completed(&mut self, _producer: u16, _cpu: CpuId, _position: u32) -> bool {
        true
    }

    fn tail(&self, _cpu: CpuId) -> u32 {
        0
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        (0, self.0[cpu.index()])
    }
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn packet(hash: u32, rx_queue: u16) -> Arrival {
    Arrival { hash: FlowHash::from_raw(hash), rx_queue, ..Arrival::default() }
}

fn config(policy: Policy) -> SteerConfig {
    SteerConfig::new(policy, "1-2".parse().unwrap(), vec![cpu(0), cpu(3)])
}

fn chosen(config: &SteerConfig, packets: &[Arrival]) -> Vec<u16> {
    let mut verdicts = vec![Verdict::default(); packets.len()];
    let mut room = Room(vec![100; 8], Refusal::Wait);
    let mut steering = Steering::new(config).unwrap();
    assert_eq!(steering.decide(packets, &mut room, &mut verdicts), packets.len());
    verdicts.iter().map(|verdict| verdict.cpu().get()).collect()
}

const PACKETS: [(u32, u16); 5] = [(0, 0), (1, 0), (u32::MAX, 0), (u32::MAX, 1), (0, 1)];

fn packets() -> Vec<Arrival> {
    PACKETS.iter().map(|&(hash, queue)| packet(hash, queue)).collect()
}

#[test]
fn every_packet_is_counted_for_the_rule_that_chose_its_target() {
    let counted = |policy: &str| {
        let config = config(policy.parse().unwrap());
        let mut steering = Steering::new(&config).unwrap();
        let mut room = Room(vec![100; 8], Refusal::Wait);
        steering.decide(&packets(), &mut room, &mut [Verdict::default(); PACKETS.len()]);
        let counts = steering.counts();
        [counts.local, counts.bound, counts.hashed, counts.in_slots, counts.rfs]
    };
    assert_eq!(counted("none"), [5, 0, 0, 0, 0]);
    assert_eq!(counted("rps"), [2, 0, 3, 0, 0], "two have no hash");
    assert_eq!(counted("bound:1=5"), [3, 2, 0, 0, 0]);
    assert_eq!(counted("rfs"), [2, 0, 3, 0, 0], "no application is known");
    let sparse = counted("sparse");
    assert_eq!((sparse[0], sparse[2] + sparse[3]), (2, 3));
}

#[test]
fn none_leaves_every_packet_where_it_was_received() {
    assert_eq!(chosen(&config(Policy::None), &packets()), [0, 0, 0, 3, 3]);
}

#[test]
fn rps_goes_by_hash_and_without_one_by_queue() {
    assert_eq!(chosen(&config(Policy::Rps), &packets()), [0, 1, 2, 2, 3]);
    let mut config = config(Policy::Rps);
    config.rps_maps = vec![(1.into(), "7".parse().unwrap())];
    assert_eq!(chosen(&config, &packets()), [0, 1, 2, 7, 3]);
}

#[test]
fn bound_goes_by_queue_alone() {
    let policy = Policy::Bound(vec![(1.into(), cpu(5))]);
    assert_eq!(chosen(&config(policy), &packets()), [0, 0, 0, 5, 5]);
}

#[test]
fn queue_that_is_not_there_is_not_steered() {
    assert_eq!(chosen(&config(Policy::Rps), &[packet(77, 9)]), [0]);
}

#[test]
fn first_that_must_wait_stops_the_batch() {
    let mut steering = Steering::new(&config(Policy::Rps)).unwrap();
    let batch = [packet(1, 0), packet(1, 0), packet(u32::MAX, 0)];
    let mut verdicts = [Verdict::default(); 3];
    let mut room = Room(vec![1; 8], Refusal::Wait);
    assert_eq!(steering.decide(&batch, &mut room, &mut verdicts), 1);
    let mut room = Room(vec![1; 8], Refusal::Drop(DropReason::BacklogFull));
    assert_eq!(steering.decide(&batch, &mut room, &mut verdicts), 3);
    assert_eq!(
        verdicts,
        [
            Verdict::deliver(cpu(1)),
            Verdict::drop(cpu(1), DropReason::BacklogFull),
            Verdict::deliver(cpu(2))
        ]
    );
}
