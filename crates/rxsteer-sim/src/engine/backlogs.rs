//! The backlogs: one queue per CPU, shared by all producers, as in the kernel. Each producer numbers its own
//! packets in the queue. A packet is completed when its processing has ended.
//!
//! Invariants:
//! - Room is reserved when the decision is made. The packet becomes visible when its list is spliced.
//! - One CPU at a time works on a queue, also when the queue's own CPU goes offline or comes back.

use super::packet::Packet;
use rxsteer_core::{Backlogs, CpuId, DropReason, Refusal};
use std::collections::VecDeque;

/// The queue of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The packet being processed, then the packets that wait.
    pub(crate) packets: VecDeque<Packet>,
    /// The room taken by packets that wait and by reservations.
    pub(crate) waiting: u32,
    /// Whether the first of `packets` is being processed: 1 or 0.
    pub(crate) in_work: u32,
    /// By producer, the numbers of packets reserved and completed so far.
    counts: Box<[(u32, u32)]>,
}

impl Backlog {
    /// Whether packets wait that a CPU may process now.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.in_work == 0 && !self.packets.is_empty()
    }
}

/// All backlogs, by CPU id.
#[derive(Debug)]
pub(crate) struct BacklogSet {
    pub(crate) of_cpu: Vec<Backlog>,
    pub(crate) max_backlog: u32,
}

impl BacklogSet {
    pub(crate) fn new(cpus: usize, producers: usize, max_backlog: u32, first: u32) -> BacklogSet {
        let backlog =
            || Backlog { counts: vec![(first, first); producers].into(), ..Backlog::default() };
        BacklogSet { of_cpu: (0..cpus).map(|_| backlog()).collect(), max_backlog }
    }

    /// Records that a packet with room in the CPU's queue is processed.
    #[inline]
    pub(crate) fn complete(&mut self, cpu: usize, producer: u16) {
        let (_, completed) = &mut self.of_cpu[cpu].counts[usize::from(producer)];
        *completed = completed.wrapping_add(1);
    }

    /// The number of packets that have room or are being processed.
    pub(crate) fn under_way(&self) -> u64 {
        let counts = self.of_cpu.iter().flat_map(|backlog| &backlog.counts);
        counts.map(|(reserved, completed)| u64::from(reserved.wrapping_sub(*completed))).sum()
    }
}

/// The backlogs as one producer sees them.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) backlogs: &'a mut BacklogSet,
    pub(crate) producer: u16,
}

impl Backlogs for Seen<'_> {
    #[inline]
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        let backlog = &mut self.backlogs.of_cpu[cpu.index()];
        if backlog.waiting >= self.backlogs.max_backlog {
            return Err(Refusal::Drop(DropReason::BacklogFull));
        }
        backlog.waiting += 1;
        let (reserved, _) = &mut backlog.counts[usize::from(self.producer)];
        let position = *reserved;
        *reserved = position.wrapping_add(1);
        Ok(position)
    }

    #[inline]
    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool {
        let (_, completed) = self.backlogs.of_cpu[cpu.index()].counts[usize::from(producer)];
        completed.wrapping_sub(position.wrapping_add(1)) as i32 >= 0
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.backlogs.of_cpu[cpu.index()].counts[usize::from(self.producer)].0
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        (self.backlogs.of_cpu[cpu.index()].waiting, self.backlogs.max_backlog)
    }

    fn producer(&self) -> u16 {
        self.producer
    }
}
