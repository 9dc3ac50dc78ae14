//! The cost of flow statistics, with a list of the CPUs that used a flow and with a walk over all possible CPUs.
//!
//! One thread does all operations, as each of the CPUs in turn. So these are the costs of instructions and memory, without
//! cache lines that move between CPUs. The operations are those of the Open vSwitch message: a flow is set up, counts
//! packets, is read, cleared and freed.
//!
//! Source: Tonghao Zhang, net: openvswitch: optimize flow-stats: `cpu_used_mask`.

mod walk;

use rxsteer_core::{CpuId, FlowWords};
use rxsteer_flows::{FlowPacket, FlowSlots, SlotWriter};
use std::time::Instant;
use walk::WalkFlows;

/// How the statistics of a flow find their CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowStore {
    /// The CPUs that used the flow are recorded: `rxsteer-flows`.
    Used,
    /// Every possible CPU is visited, as before the mask.
    AllPossible,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLoad {
    /// The number of possible CPUs, 2 to 8192.
    pub possible: u16,
    /// Whether the last possible CPU uses each flow too; otherwise only the first one does.
    pub on_two_cpus: bool,
    /// The number of flows.
    pub flows: u32,
    /// Packets that a pass counts for each flow on each CPU that uses it.
    pub packets: u32,
    /// How often all operations are repeated. The costs are medians of the passes.
    pub passes: usize,
}

/// Nanoseconds per operation, and what was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowCosts {
    /// Setting up a flow, with its first packet.
    pub set_up_ns: f64,
    /// Counting a packet.
    pub update_ns: f64,
    /// Reading the totals of a flow.
    pub read_ns: f64,
    /// Setting the counts of a flow to zero.
    pub clear_ns: f64,
    /// Freeing a flow.
    pub free_ns: f64,
    /// The packets that the reads of the last pass returned.
    pub read_packets: u64,
}

impl FlowLoad {
    /// The packets that a pass counts: [`FlowCosts::read_packets`] if nothing is lost.
    #[must_use]
    pub fn counted(&self) -> u64 {
        let (cpus, packets) = (1 + u64::from(self.on_two_cpus), u64::from(self.packets));
        // One packet begins the flow on each CPU.
        u64::from(self.flows) * cpus * (packets + 1)
    }

    /// Measures one of the two methods. `None` if there are no passes, if the number of CPUs is out of range, or if the
    /// memory cannot be allocated.
    #[must_use]
    pub fn measure(&self, store: FlowStore) -> Option<FlowCosts> {
        let last = CpuId::new(self.possible.checked_sub(1)?).filter(|cpu| cpu.get() > 0)?;
        match store {
            FlowStore::Used => self.passes(&mut Used::new(self.flows, last)?),
            FlowStore::AllPossible => self.passes(&mut AllPossible {
                flows: WalkFlows::new(self.flows as usize, usize::from(self.possible)),
                last: last.index(),
            }),
        }
    }

    fn passes(&self, store: &mut impl Store) -> Option<FlowCosts> {
        let mut all = [const { Vec::new() }; 5];
        let mut read_packets = 0;
        for _ in 0..self.passes {
            let flows = 0..self.flows;
            let packets = u64::from(self.packets) * (1 + u64::from(self.on_two_cpus));
            let set_up = timed(|| flows.clone().for_each(|flow| store.claim(flow, &packet(1))));
            if self.on_two_cpus {
                // The first packet of a CPU allocates its block, so it is not counted as an update.
                flows.clone().for_each(|flow| store.update(flow, 1, &packet(2)));
            }
            let update = timed(|| {
                for number in 0..u64::from(self.packets) {
                    let packet = packet(3 + number);
                    for flow in flows.clone() {
                        store.update(flow, 0, &packet);
                        if self.on_two_cpus {
                            store.update(flow, 1, &packet);
                        }
                    }
                }
            });
            read_packets = 0;
            let read = timed(|| read_packets = flows.clone().map(|flow| store.read(flow)).sum());
            let clear = timed(|| flows.clone().for_each(|flow| store.clear(flow)));
            let free = timed(|| flows.clone().for_each(|flow| store.free(flow)));
            let each = f64::from(self.flows.max(1));
            let ns =
                [set_up, update / packets.max(1) as f64, read, clear, free].map(|ns| ns / each);
            all.iter_mut().zip(ns).for_each(|(of, ns)| of.push(ns));
        }
        let [set_up_ns, update_ns, read_ns, clear_ns, free_ns] = all.map(median);
        Some(FlowCosts {
            set_up_ns: set_up_ns?,
            update_ns: update_ns?,
            read_ns: read_ns?,
            clear_ns: clear_ns?,
            free_ns: free_ns?,
            read_packets,
        })
    }
}

/// Nanoseconds of `work`.
fn timed(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos() as f64
}

/// The middle value, the higher one of two; `None` without values.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn packet(time_ns: u64) -> FlowPacket {
    let flow = FlowWords::default();
    FlowPacket { flow, time_ns, bytes: 64, tcp_flags: 0x10, ..FlowPacket::default() }
}

/// The operations on flows that are compared. CPU 0 is the first possible CPU, and 1 the last one.
trait Store {
    fn claim(&mut self, flow: u32, packet: &FlowPacket);
    fn update(&mut self, flow: u32, cpu: usize, packet: &FlowPacket);
    /// The number of packets; reads all totals.
    fn read(&self, flow: u32) -> u64;
    fn clear(&self, flow: u32);
    fn free(&mut self, flow: u32);
}

struct Used {
    slots: FlowSlots,
    writers: [SlotWriter; 2],
}

impl Used {
    /// Further blocks that the two writers may keep in reserve.
    const RESERVE: u32 = 1024;

    fn new(flows: u32, last: CpuId) -> Option<Used> {
        let slots = FlowSlots::new(flows, flows.checked_add(Used::RESERVE)?).ok()?;
        Some(Used { slots, writers: [CpuId::new(0)?, last].map(SlotWriter::new) })
    }
}

impl Store for Used {
    fn claim(&mut self, flow: u32, packet: &FlowPacket) {
        self.slots.claim(flow, &self.writers[0], packet);
    }

    fn update(&mut self, flow: u32, cpu: usize, packet: &FlowPacket) {
        self.slots.update(flow, &mut self.writers[cpu], packet);
    }

    fn read(&self, flow: u32) -> u64 {
        std::hint::black_box(self.slots.read(flow)).packets
    }

    fn clear(&self, flow: u32) {
        // It returns whether there is a flow, and there is one.
        self.slots.clear(flow);
    }

    fn free(&mut self, flow: u32) {
        // Blocks go back to the writer that took them.
        self.slots.free(flow, &mut self.writers[1]);
    }
}

struct AllPossible {
    flows: WalkFlows,
    last: usize,
}

impl Store for AllPossible {
    fn claim(&mut self, flow: u32, _: &FlowPacket) {
        self.flows.claim(flow as usize);
    }

    fn update(&mut self, flow: u32, cpu: usize, packet: &FlowPacket) {
        let counted = (u64::from(packet.bytes), u64::from(packet.tcp_flags), packet.time_ns);
        self.flows.update(flow as usize, cpu * self.last, counted);
    }

    fn read(&self, flow: u32) -> u64 {
        std::hint::black_box(self.flows.read(flow as usize)).0
    }

    fn clear(&self, flow: u32) {
        self.flows.clear(flow as usize);
    }

    fn free(&mut self, flow: u32) {
        self.flows.free(flow as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [FlowStore; 2] = [FlowStore::Used, FlowStore::AllPossible];

    #[test]
    fn every_packet_is_read_whatever_the_method() {
        for (possible, on_two_cpus) in [(2, false), (2, true), (65, true), (8192, true)] {
            let load = FlowLoad { possible, on_two_cpus, flows: 50, packets: 3, passes: 4 };
            for store in BOTH {
                let costs = load.measure(store).unwrap();
                assert_eq!(costs.read_packets, load.counted(), "{store:?} {load:?}");
                let all = [
                    costs.set_up_ns,
                    costs.update_ns,
                    costs.read_ns,
                    costs.clear_ns,
                    costs.free_ns,
                ];
                assert!(all.iter().all(|ns| ns.is_finite() && *ns > 0.0), "{store:?} {costs:?}");
            }
        }
    }

    #[test]
    fn what_can_not_be_measured_has_no_costs() {
        let load = FlowLoad { possible: 2, on_two_cpus: true, flows: 9, packets: 1, passes: 1 };
        for store in BOTH {
            for possible in [0, 1, 8193] {
                assert_eq!(FlowLoad { possible, ..load }.measure(store), None, "{possible}");
            }
            assert_eq!(FlowLoad { passes: 0, ..load }.measure(store), None);
        }
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }
}
