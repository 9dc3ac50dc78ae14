//! `decide`: for each packet of a batch, the CPU that will process it.
//!
//! ```text
//!   arrivals ──► choose (none | rps | bound) ──► reserve a place ──► verdict
//! ```
//!
//! What must hold:
//! - deciding a batch equals deciding its packets one by one;
//! - only a packet that got a place in a backlog counts for anything later: a refused one leaves no
//!   trace that could block its flow;
//! - a flow's CPU never changes under the policies here, so order per (RX queue, flow) is the
//!   order of each backlog. A mechanism that *can* change it belongs behind an order guard.

use crate::config::{ConfigError, Rule, Rules, SteerConfig};
use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::verdict::{DropReason, Verdict};

/// What the policy needs to know of one packet.
///
/// The time is the packet's own rather than one for the batch: in a replay at full speed a batch
/// can span seconds of capture time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When the packet was received, in nanoseconds of a clock of the caller's choice.
    pub time_ns: u64,
    /// Its flow hash.
    pub hash: FlowHash,
    /// The RX queue it arrived on.
    pub rx_queue: u16,
    /// Always 0.
    pub reserved: u16,
}

const _: () = assert!(size_of::<Arrival>() == 16);

/// The backlogs as one producer sees them.
pub trait Backlogs {
    /// Reserves a place for one packet in `cpu`'s backlog and says its position in this producer's
    /// queue to that CPU (free-running, wraps).
    ///
    /// # Errors
    /// [`Refusal`], when there is no place.
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal>;
}

/// Why a backlog takes no packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet is to be dropped.
    Drop(DropReason),
    /// The packet must wait: the decision for it and all behind it comes later.
    Wait,
}

/// The steering policy with its state.
#[derive(Clone, Debug)]
pub struct Steering {
    rules: Rules,
}

impl Steering {
    /// The policy of `config`.
    ///
    /// # Errors
    /// [`ConfigError`], when the configuration contradicts itself.
    pub fn new(config: &SteerConfig) -> Result<Steering, ConfigError> {
        Ok(Steering { rules: config.check()? })
    }

    /// Decides for `arrivals` in their order: the verdict of the `i`-th is `verdicts[i]`. Returns
    /// how many were decided: all, or those before the first that must wait for a place.
    ///
    /// # Panics
    /// When `verdicts` is shorter than `arrivals`.
    #[inline(never)]
    pub fn decide<B: Backlogs>(
        &mut self,
        arrivals: &[Arrival],
        backlogs: &mut B,
        verdicts: &mut [Verdict],
    ) -> usize {
        let verdicts = &mut verdicts[..arrivals.len()];
        let receiving = &*self.rules.receiving_cpus;
        // One loop per rule: the rule is looked at once per batch.
        match &self.rules.policy {
            Rule::None => {
                place(arrivals, backlogs, verdicts, |packet| receiving_cpu(receiving, packet))
            }
            // All queues with one map: it need not be looked up.
            Rule::Rps { maps, map_of_queue } if maps.len() == 1 => {
                let (map, queues) = (&maps[0], map_of_queue.len());
                place(arrivals, backlogs, verdicts, |packet| {
                    if packet.hash.is_none() || usize::from(packet.rx_queue) >= queues {
                        receiving_cpu(receiving, packet)
                    } else {
                        map.cpu(packet.hash)
                    }
                })
            }
            Rule::Rps { maps, map_of_queue } => place(arrivals, backlogs, verdicts, |packet| {
                match map_of_queue.get(usize::from(packet.rx_queue)) {
                    Some(map) if !packet.hash.is_none() => maps[usize::from(*map)].cpu(packet.hash),
                    _ => receiving_cpu(receiving, packet),
                }
            }),
            Rule::Bound(bindings) => place(arrivals, backlogs, verdicts, |packet| {
                bindings.cpu(packet.rx_queue).unwrap_or_else(|| receiving_cpu(receiving, packet))
            }),
        }
    }

    /// The CPU that receives `rx_queue`. A queue number out of range counts as queue 0, as in the
    /// kernel.
    #[must_use]
    pub fn default_cpu(&self, rx_queue: u16) -> CpuId {
        let receiving = &*self.rules.receiving_cpus;
        receiving_cpu(receiving, &Arrival { rx_queue, ..Arrival::default() })
    }
}

#[inline(always)]
fn receiving_cpu(receiving: &[CpuId], packet: &Arrival) -> CpuId {
    receiving.get(usize::from(packet.rx_queue)).copied().unwrap_or(receiving[0])
}

/// Chooses and reserves, packet by packet.
#[inline(always)]
fn place<B: Backlogs>(
    arrivals: &[Arrival],
    backlogs: &mut B,
    verdicts: &mut [Verdict],
    choose: impl Fn(&Arrival) -> CpuId,
) -> usize {
    let verdicts = &mut verdicts[..arrivals.len()];
    for index in 0..arrivals.len() {
        let cpu = choose(&arrivals[index]);
        verdicts[index] = match backlogs.reserve(cpu) {
            Ok(_) => Verdict::deliver(cpu),
            Err(Refusal::Drop(reason)) => Verdict::drop(cpu, reason),
            Err(Refusal::Wait) => return index,
        };
    }
    arrivals.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Backlogs with so many places each.
    struct Places(Vec<u32>, Refusal);

    impl Backlogs for Places {
        fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
            let left = &mut self.0[cpu.index()];
            *left = left.checked_sub(1).ok_or(self.1)?;
            Ok(*left)
        }
    }

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    fn packet(hash: u32, rx_queue: u16) -> Arrival {
        Arrival { hash: FlowHash::from_raw(hash), rx_queue, ..Arrival::default() }
    }

    fn config(policy: Policy) -> SteerConfig {
        SteerConfig {
            policy,
            cpus: "1-2".parse().unwrap(),
            rps_maps: vec![],
            receiving_cpus: vec![cpu(0), cpu(3)],
        }
    }

    fn chosen(config: &SteerConfig, packets: &[Arrival]) -> Vec<u16> {
        let mut verdicts = vec![Verdict::default(); packets.len()];
        let mut places = Places(vec![100; 8], Refusal::Wait);
        let mut steering = Steering::new(config).unwrap();
        assert_eq!(steering.decide(packets, &mut places, &mut verdicts), packets.len());
        verdicts.iter().map(|verdict| verdict.cpu().get()).collect()
    }

    const PACKETS: [(u32, u16); 5] = [(0, 0), (1, 0), (u32::MAX, 0), (u32::MAX, 1), (0, 1)];

    fn packets() -> Vec<Arrival> {
        PACKETS.iter().map(|&(hash, queue)| packet(hash, queue)).collect()
    }

    #[test]
    fn none_leaves_every_packet_where_it_was_received() {
        assert_eq!(chosen(&config(Policy::None), &packets()), [0, 0, 0, 3, 3]);
    }

    #[test]
    fn rps_goes_by_hash_and_without_one_by_queue() {
        assert_eq!(chosen(&config(Policy::Rps), &packets()), [0, 1, 2, 2, 3]);
        let mut config = config(Policy::Rps);
        config.rps_maps = vec![(1, "7".parse().unwrap())];
        assert_eq!(chosen(&config, &packets()), [0, 1, 2, 7, 3]);
    }

    #[test]
    fn bound_goes_by_queue_alone() {
        let policy = Policy::Bound(vec![(1, cpu(5))]);
        assert_eq!(chosen(&config(policy), &packets()), [0, 0, 0, 5, 5]);
    }

    #[test]
    fn a_queue_that_is_not_there_is_not_steered() {
        assert_eq!(chosen(&config(Policy::Rps), &[packet(77, 9)]), [0]);
    }

    #[test]
    fn the_first_that_must_wait_stops_the_batch() {
        let mut steering = Steering::new(&config(Policy::Rps)).unwrap();
        let batch = [packet(1, 0), packet(1, 0), packet(u32::MAX, 0)];
        let mut verdicts = [Verdict::default(); 3];
        let mut places = Places(vec![1; 8], Refusal::Wait);
        assert_eq!(steering.decide(&batch, &mut places, &mut verdicts), 1);
        let mut places = Places(vec![1; 8], Refusal::Drop(DropReason::BacklogFull));
        assert_eq!(steering.decide(&batch, &mut places, &mut verdicts), 3);
        assert_eq!(
            verdicts,
            [
                Verdict::deliver(cpu(1)),
                Verdict::drop(cpu(1), DropReason::BacklogFull),
                Verdict::deliver(cpu(2))
            ]
        );
    }
}
