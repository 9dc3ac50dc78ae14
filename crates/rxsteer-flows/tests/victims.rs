//! Which flow makes room for a new one: the documented order, on lists of one packet.

use proptest::prelude::*;
use rxsteer_core::{CpuId, FlowKey};
use rxsteer_flows::{FlowEnd, FlowPacket, FlowTable, FlowTableConfig, WhenFull};
use std::collections::VecDeque;

/// The number of packets that makes a flow established.
const ESTABLISHED: u64 = 4;
/// Established flows that may stay for one new flow because they had packets since their last turn.
const CHANCES: u32 = 32;

fn key(flow: u8) -> FlowKey {
    FlowKey { ip_version: 4, src_port: flow.into(), ..FlowKey::default() }
}

/// Flows with their packet counts; established flows also with the count at their last turn.
#[derive(Default)]
struct Model {
    young: VecDeque<(u8, u64)>,
    old: VecDeque<(u8, u64, u64)>,
}

impl Model {
    /// Counts a packet. Returns the flow that is evicted for it.
    fn packet(&mut self, flow: u8, max_flows: usize) -> Option<(u8, u64)> {
        let young = self.young.iter_mut().find(|young| young.0 == flow).map(|young| &mut young.1);
        let old = self.old.iter_mut().find(|old| old.0 == flow).map(|old| &mut old.1);
        if let Some(packets) = young.or(old) {
            *packets += 1;
            return None;
        }
        let full = self.young.len() + self.old.len() == max_flows;
        let gone = full.then(|| self.victim());
        self.young.push_back((flow, 1));
        gone
    }

    fn victim(&mut self) -> (u8, u64) {
        while let Some((flow, packets)) = self.young.pop_front() {
            if packets < ESTABLISHED {
                return (flow, packets);
            }
            self.old.push_back((flow, packets, packets));
        }
        for chances in (0..=CHANCES).rev() {
            let (flow, packets, seen) = self.old.pop_front().expect("the table is full");
            if packets == seen || chances == 0 {
                return (flow, packets);
            }
            self.old.push_back((flow, packets, packets));
        }
        unreachable!("without a chance left one goes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn flow_that_goes_is_the_models(
        // Fewer than 64, so that no share is reserved for young flows.
        max_flows in 1..50usize,
        flows in prop::collection::vec((0..80u8, 1..6usize), 1..400),
    ) {
        let table = FlowTable::new(&FlowTableConfig::new(max_flows as u32)).unwrap();
        let mut writer = table.writer(CpuId::new(0).unwrap()).unwrap();
        let mut model = Model::default();
        for (flow, packets) in flows {
            for _ in 0..packets {
                let packet = FlowPacket { flow: key(flow).into(), ..FlowPacket::default() };
                prop_assert_eq!(writer.update(&[packet]), 1);
                let mut gone = Vec::new();
                table.collect(|record| {
                    assert_eq!(record.end, Some(FlowEnd::Evicted));
                    gone.push((record.key.src_port as u8, record.totals.packets));
                });
                let expected: Vec<_> = model.packet(flow, max_flows).into_iter().collect();
                prop_assert_eq!(gone, expected);
            }
        }
    }
}

/// However many packets of a new flow a list contains, the flow evicts one other flow.
#[test]
fn new_flow_takes_one_place() {
    let table = FlowTable::new(&FlowTableConfig::new(10)).unwrap();
    let mut writer = table.writer(CpuId::new(0).unwrap()).unwrap();
    let packet = |flow| FlowPacket { flow: key(flow).into(), ..FlowPacket::default() };
    (0..10).for_each(|flow| assert_eq!(writer.update(&[packet(flow)]), 1));
    assert_eq!(writer.update(&[packet(20); 64]), 64);
    let alternating: Vec<_> = (0..64).map(|at| packet(30 + at % 2)).collect();
    assert_eq!(writer.update(&alternating), 64);
    assert_eq!((table.counts().live, table.counts().evicted), (10, 3));
}

/// Flows that ended take memory until they are collected, and that memory is limited. Beyond the limit, packets of
/// new flows are refused and counted as refused, while packets of existing flows are still counted.
#[test]
fn without_a_collector_new_flows_are_refused_at_last() {
    let table = FlowTable::new(&FlowTableConfig::new(10)).unwrap();
    let mut writer = table.writer(CpuId::new(0).unwrap()).unwrap();
    let packet = |flow: u16| FlowPacket {
        flow: FlowKey { src_port: flow, ..key(0) }.into(),
        ..FlowPacket::default()
    };
    let mut flow = 0;
    while writer.update(&[packet(flow)]) == 1 {
        flow += 1;
    }
    let list = [packet(flow - 1), packet(flow), packet(flow - 1), packet(flow + 1)];
    assert_eq!(writer.update(&list), 1, "up to the new flow");
    assert_eq!(writer.update_all(list.iter().copied(), WhenFull::Refuse), 2);
    assert_eq!(table.get(&list[0].flow.key()).unwrap().totals.packets, 4);
    let counts = table.counts();
    assert_eq!((counts.live, counts.refused, counts.created), (10, 2, flow.into()));
    let mut records = 0;
    table.collect(|_| records += 1);
    assert_eq!(records, counts.evicted);
    assert_eq!(writer.update_all(list.iter().copied(), WhenFull::Refuse), 0, "there is room again");
}
