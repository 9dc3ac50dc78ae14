//! Backlogs whose packets the test completes explicitly.

use rxsteer_core::{Backlogs, CpuId, Refusal};

/// One producer's queues to CPUs 0 and up.
#[derive(Clone, Debug)]
pub(crate) struct BacklogSet {
    backlogs: Vec<Backlog>,
    limit: u32,
    refusal: Refusal,
}

#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// All positions before this one are completed.
    completed: u32,
    tail: u32,
}

impl BacklogSet {
    /// Empty queues to `cpus` CPUs, of at most `limit` packets each, whose positions begin at `start`. A full
    /// queue returns `refusal`.
    pub(crate) fn new(cpus: usize, limit: u32, start: u32, refusal: Refusal) -> BacklogSet {
        let backlog = Backlog { completed: start, tail: start };
        BacklogSet { backlogs: vec![backlog; cpus], limit, refusal }
    }

    /// How many packets are under way to `cpu`.
    pub(crate) fn under_way(&self, cpu: usize) -> u32 {
        self.backlogs[cpu].tail.wrapping_sub(self.backlogs[cpu].completed)
    }

    /// Completes the next packets of `cpu`: at most `count`, and at most those under way.
    pub(crate) fn complete(&mut self, cpu: usize, count: u32) {
        let count = count.min(self.under_way(cpu));
        let backlog = &mut self.backlogs[cpu];
        backlog.completed = backlog.completed.wrapping_add(count);
    }
}

impl BacklogSet {
    /// `count` packets of other flows go to `cpu` and are completed.
    pub(crate) fn pass(&mut self, cpu: usize, count: u32) {
        let backlog = &mut self.backlogs[cpu];
        backlog.completed = backlog.completed.wrapping_add(count);
        backlog.tail = backlog.tail.wrapping_add(count);
    }
}

impl Backlogs for BacklogSet {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        if self.under_way(cpu.index()) >= self.limit {
            return Err(self.refusal);
        }
        let backlog = &mut self.backlogs[cpu.index()];
        let position = backlog.tail;
        backlog.tail = position.wrapping_add(1);
        Ok(position)
    }

    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool {
        assert_eq!(producer, 0, "there is but one");
        self.backlogs[cpu.index()].completed.wrapping_sub(position.wrapping_add(1)) as i32 >= 0
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.backlogs[cpu.index()].tail
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        (self.under_way(cpu.index()), self.limit)
    }
}
