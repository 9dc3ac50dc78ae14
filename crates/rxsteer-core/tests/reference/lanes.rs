//! Backlogs whose packets are completed by hand.

use rxsteer_core::{Backlogs, CpuId, Refusal};

/// One producer's queues to CPUs 0 and up.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    limit: u32,
    refusal: Refusal,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    /// All before this position are completed.
    completed: u32,
    tail: u32,
}

impl Lanes {
    /// Empty queues to `cpus` CPUs, of at most `limit` packets each, whose positions begin at
    /// `start`. A full one answers `refusal`.
    pub(crate) fn new(cpus: usize, limit: u32, start: u32, refusal: Refusal) -> Lanes {
        let lane = Lane { completed: start, tail: start };
        Lanes { lanes: vec![lane; cpus], limit, refusal }
    }

    /// How many packets are under way to `cpu`.
    pub(crate) fn under_way(&self, cpu: usize) -> u32 {
        self.lanes[cpu].tail.wrapping_sub(self.lanes[cpu].completed)
    }

    /// Completes the next packets of `cpu`, as many as there are, but at most `count`.
    pub(crate) fn complete(&mut self, cpu: usize, count: u32) {
        let count = count.min(self.under_way(cpu));
        let lane = &mut self.lanes[cpu];
        lane.completed = lane.completed.wrapping_add(count);
    }
}

impl Lanes {
    /// So many packets of others go to `cpu` and are completed.
    #[allow(dead_code, reason = "not every test has such a stretch")]
    pub(crate) fn pass(&mut self, cpu: usize, count: u32) {
        let lane = &mut self.lanes[cpu];
        lane.completed = lane.completed.wrapping_add(count);
        lane.tail = lane.tail.wrapping_add(count);
    }
}

impl Backlogs for Lanes {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        if self.under_way(cpu.index()) >= self.limit {
            return Err(self.refusal);
        }
        let lane = &mut self.lanes[cpu.index()];
        let position = lane.tail;
        lane.tail = position.wrapping_add(1);
        Ok(position)
    }

    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool {
        assert_eq!(producer, 0, "there is but one");
        self.lanes[cpu.index()].completed.wrapping_sub(position.wrapping_add(1)) as i32 >= 0
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.lanes[cpu.index()].tail
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        (self.under_way(cpu.index()), self.limit)
    }
}
