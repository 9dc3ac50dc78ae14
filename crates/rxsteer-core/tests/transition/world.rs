//! The core with backlogs that a test completes by hand, and the order of every flow.

use crate::reference::backlogs::BacklogSet;
use rxsteer_core::{
    Arrival, CpuId, CpuSet, FlowHash, Plan, Policy, Refusal, SteerConfig, Steering, Verdict,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Flows that a map of two CPUs splits: the first goes to the first CPU, the others to the second.
pub(super) const LOW: u32 = 0x0000_0011;
pub(super) const HIGH: u32 = 0xf000_0022;
pub(super) const THIRD: u32 = 0xf000_0033;

pub(super) struct World {
    pub(super) steering: Steering,
    pub(super) backlogs: BacklogSet,
    /// Indexed by CPU: the packets under way, as flow and number.
    pub(super) queues: Vec<VecDeque<(u32, u32)>>,
    /// For each flow, how many packets were sent and how many are completed.
    flows: HashMap<u32, [u32; 2]>,
}

pub(super) fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

pub(super) fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

impl World {
    /// CPU 0 receives. Positions begin just below their wrap.
    pub(super) fn new(policy: Policy, map: &str, flow_cnt: u32) -> World {
        World::with_limit(policy, map, flow_cnt, 1000, Refusal::Wait)
    }

    pub(super) fn with_limit(
        policy: Policy,
        map: &str,
        flow_cnt: u32,
        limit: u32,
        refusal: Refusal,
    ) -> World {
        let config = SteerConfig {
            possible: CpuSet::first(8),
            flow_cnt: Some(flow_cnt),
            ..SteerConfig::new(policy, cpus(map), vec![cpu(0)])
        };
        World {
            steering: Steering::new(&config).unwrap(),
            backlogs: BacklogSet::new(8, limit, u32::MAX - 1, refusal),
            queues: vec![VecDeque::new(); 8],
            flows: HashMap::new(),
        }
    }

    /// The verdict for the flow's next packet; `None` when it must wait.
    pub(super) fn verdict(&mut self, flow: u32) -> Option<Verdict> {
        let arrival = Arrival { hash: FlowHash::from_raw(flow), ..Arrival::default() };
        let mut verdict = [Verdict::default()];
        let decided = self.steering.decide(&[arrival], &mut self.backlogs, &mut verdict);
        if decided == 1 && !verdict[0].is_drop() {
            let [sent, _] = self.flows.entry(flow).or_default();
            self.queues[verdict[0].cpu().index()].push_back((flow, *sent));
            *sent += 1;
        }
        (decided == 1).then_some(verdict[0])
    }

    /// Sends the flow's next packet and returns its CPU.
    pub(super) fn send(&mut self, flow: u32) -> u16 {
        let verdict = self.verdict(flow).expect("there is room");
        assert!(!verdict.is_drop());
        verdict.cpu().get()
    }

    pub(super) fn complete(&mut self, cpu: usize, count: u32) {
        for _ in 0..count {
            let (flow, number) = self.queues[cpu].pop_front().expect("that many are under way");
            let [_, completed] = self.flows.get_mut(&flow).unwrap();
            assert_eq!(number, *completed, "flow {flow:#x} is reordered on CPU {cpu}");
            *completed += 1;
        }
        self.backlogs.complete(cpu, count);
    }

    pub(super) fn complete_all(&mut self) {
        for cpu in 0..self.queues.len() {
            self.complete(cpu, self.queues[cpu].len() as u32);
        }
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut SteerConfig)) {
        let plan: &Plan = self.steering.plan();
        let mut config = plan.config().clone();
        change(&mut config);
        let next = Arc::new(plan.next(&config).unwrap());
        self.steering.change(&next, &mut self.backlogs);
    }

    pub(super) fn change_map(&mut self, map: &str) {
        self.change(|config| config.cpus = cpus(map));
    }

    /// Changes the size, and returns whether the flow table has that size now.
    pub(super) fn resize(&mut self, flow_cnt: u32) -> bool {
        self.change(|config| config.flow_cnt = Some(flow_cnt));
        self.slots() == Some(flow_cnt)
    }

    /// The number of slots of the flow table in use; `None` without a table.
    pub(super) fn slots(&mut self) -> Option<u32> {
        let arrival = Arrival { hash: FlowHash::from_raw(LOW), ..Arrival::default() };
        self.steering.explain(&arrival, &mut self.backlogs).flow.map(|slot| slot.entries)
    }

    pub(super) fn record(&self, flow: u32, at: u16) {
        self.steering.plan().sock_flows().record(FlowHash::from_raw(flow), cpu(at));
    }

    pub(super) fn is_drained(&mut self) -> bool {
        self.steering.is_drained(&mut self.backlogs)
    }
}
