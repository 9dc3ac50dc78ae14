//! The flows of a run, and the order in which their packets begin and end.

use crate::rng::SeededRng;
use crate::violation::{Fault, FlowName};
use rxsteer_core::{Arrival, CpuId, FlowHash};

/// A packet as backlogs hold it: the flow, and its number among the flow's accepted packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    pub(crate) number: u32,
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) hash: FlowHash,
    pub(crate) rx_queue: u16,
    /// The CPU its last accepted packet went to.
    cpu: CpuId,
    accepted: u32,
    begun: u32,
    completed: u32,
    /// The list with the last packet that began, and the CPU of its worker.
    list: u64,
    list_cpu: CpuId,
}

impl Flow {
    /// A packet of this flow.
    pub(crate) fn arrival(&self, time_ns: u64) -> Arrival {
        Arrival { time_ns, hash: self.hash, rx_queue: self.rx_queue, rule: 0 }
    }

    pub(crate) fn name(&self) -> FlowName {
        FlowName { rx_queue: self.rx_queue, hash: self.hash.get() }
    }
}

/// A list of packets that a worker has in hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    /// Its number in this run.
    pub(crate) id: u64,
    /// The worker's CPU.
    pub(crate) cpu: CpuId,
}

#[derive(Debug)]
pub(crate) struct Flows {
    flows: Vec<Flow>,
    /// By producer its flows, the busiest first.
    of_producer: Vec<Vec<u32>>,
    /// How often a flow's packet was accepted for another CPU than the previous packet.
    pub(crate) moves: u64,
}

impl Flows {
    /// Flows for `queues` RX queues. Each queue belongs to the producer `queue % producers`.
    pub(crate) fn new(rng: &mut SeededRng, queues: u16, producers: u16) -> Flows {
        let most = rng.between(2, 9);
        let count = rng.between(1, 1 << most).max(u32::from(queues));
        // Only some runs have packets without a hash, or of a missing queue, since all such packets of one queue are
        // one flow.
        let (nameless, stray) = (rng.pick(&[0, 0, 8]), rng.pick(&[0, 0, 8]));
        let mut flows = Flows {
            flows: Vec::with_capacity(count as usize),
            of_producer: vec![Vec::new(); usize::from(producers)],
            moves: 0,
        };
        for index in 0..count {
            let rx_queue = match u16::try_from(index) {
                // Each producer gets a flow.
                Ok(queue) if queue < queues => queue,
                _ if rng.chance(stray) => queues,
                _ => rng.below(u32::from(queues)) as u16,
            };
            let before = flows.flows.last().map_or(FlowHash::NONE, |flow| flow.hash);
            let hash = if rng.chance(nameless) {
                FlowHash::NONE
            } else if rng.chance(16) {
                // Some flows also arrive through another queue, as on a router.
                before
            } else {
                FlowHash::computed(rng.bits() as u32)
            };
            flows.add(hash, rx_queue, producers);
        }
        flows
    }

    fn add(&mut self, hash: FlowHash, rx_queue: u16, producers: u16) {
        let index = self.flows.len() as u32;
        self.of_producer[usize::from(rx_queue % producers)].push(index);
        self.flows.push(Flow {
            hash,
            rx_queue,
            cpu: CpuId::NONE,
            accepted: 0,
            begun: 0,
            completed: 0,
            list: 0,
            list_cpu: CpuId::NONE,
        });
    }

    pub(crate) fn get(&self, flow: u32) -> &Flow {
        &self.flows[flow as usize]
    }

    /// Accepted packets of all flows.
    pub(crate) fn accepted(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.accepted)).sum()
    }

    pub(crate) fn find(&self, name: FlowName) -> Option<u32> {
        self.flows.iter().position(|flow| flow.name() == name).map(|index| index as u32)
    }

    pub(crate) fn of_producer(&self, producer: usize) -> &[u32] {
        &self.of_producer[producer]
    }

    /// A flow of the producer; busy flows are more frequent.
    pub(crate) fn pick(&self, rng: &mut SeededRng, producer: usize) -> u32 {
        let own = &self.of_producer[producer];
        own[rng.skewed(own.len() as u32) as usize]
    }

    /// Accepts a packet of `flow`, for which the backlog to `cpu` has room.
    pub(crate) fn accept(&mut self, flow: u32, cpu: CpuId) -> Packet {
        let state = &mut self.flows[flow as usize];
        self.moves += u64::from(state.cpu != cpu && state.cpu != CpuId::NONE);
        state.cpu = cpu;
        state.accepted += 1;
        Packet { flow, number: state.accepted - 1 }
    }

    /// A worker has taken the packet into `list`.
    pub(crate) fn begin(&mut self, packet: Packet, list: List) -> Result<(), Fault> {
        let flow = &mut self.flows[packet.flow as usize];
        // Every accepted packet begins at some time, so any packet but the next one has overtaken another.
        if packet.number != flow.begun {
            return Err(Fault::Overtakes {
                flow: flow.name(),
                number: packet.number,
                cpu: list.cpu,
                earlier: flow.begun,
            });
        }
        // All packets in hand are in the list of the last of them, since each of them passed this check.
        if flow.completed != flow.begun && flow.list != list.id {
            return Err(Fault::Beside {
                flow: flow.name(),
                number: packet.number,
                cpu: list.cpu,
                earlier: flow.completed,
                other: flow.list_cpu,
            });
        }
        flow.begun += 1;
        (flow.list, flow.list_cpu) = (list.id, list.cpu);
        Ok(())
    }

    /// The packet is completed, or it is lost and counted.
    pub(crate) fn complete(&mut self, packet: Packet) -> Result<(), Fault> {
        let flow = &mut self.flows[packet.flow as usize];
        if packet.number != flow.completed || flow.completed == flow.begun {
            return Err(Fault::EndsEarly {
                flow: flow.name(),
                number: packet.number,
                earlier: flow.completed,
            });
        }
        flow.completed += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_flow() -> Flows {
        let mut flows = Flows { flows: vec![], of_producer: vec![vec![]], moves: 0 };
        flows.add(FlowHash::from_raw(7), 0, 1);
        flows
    }

    fn list(id: u64) -> List {
        List { id, cpu: CpuId::new(id as u16).unwrap() }
    }

    #[test]
    fn one_after_the_other_is_in_order() {
        let mut flows = one_flow();
        let cpu = CpuId::new(1).unwrap();
        let packets: Vec<_> = (0..3).map(|_| flows.accept(0, cpu)).collect();
        flows.begin(packets[0], list(1)).unwrap();
        flows.begin(packets[1], list(1)).unwrap();
        flows.complete(packets[0]).unwrap();
        flows.complete(packets[1]).unwrap();
        flows.begin(packets[2], list(2)).unwrap();
        flows.complete(packets[2]).unwrap();
        assert_eq!(flows.moves, 0);
        flows.accept(0, CpuId::new(2).unwrap());
        assert_eq!(flows.moves, 1);
    }

    #[test]
    fn each_way_to_be_out_of_order_is_found() {
        let mut flows = one_flow();
        let packets: Vec<_> = (0..3).map(|_| flows.accept(0, CpuId::MAX)).collect();
        assert!(matches!(flows.begin(packets[1], list(1)), Err(Fault::Overtakes { .. })));
        assert!(matches!(flows.complete(packets[0]), Err(Fault::EndsEarly { .. })));
        flows.begin(packets[0], list(1)).unwrap();
        assert!(matches!(flows.begin(packets[1], list(2)), Err(Fault::Beside { .. })));
        flows.begin(packets[1], list(1)).unwrap();
        assert!(matches!(flows.complete(packets[1]), Err(Fault::EndsEarly { .. })));
    }
}
