//! The method that ovs-stats replaced: a flow has an array of blocks indexed by CPU. Reading, clearing and freeing
//! a flow visit every possible CPU.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one flow on one CPU.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) tcp_flags: AtomicU64,
    pub(crate) last_ns: AtomicU64,
}

/// Flows as `struct sw_flow` was before ovs-stats.
#[derive(Debug)]
pub(crate) struct WalkFlows {
    /// `cpu_possible_mask`.
    possible: Vec<u64>,
    /// `flow->stats[]` of each flow: the number of a block plus 1, where 0 is a null pointer.
    stats: Vec<Box<[u64]>>,
    blocks: Vec<Block>,
    free: Vec<u32>,
}

impl WalkFlows {
    pub(crate) fn new(flows: usize, cpus: usize) -> WalkFlows {
        let mut possible = vec![0_u64; cpus.div_ceil(64)];
        for cpu in 0..cpus {
            possible[cpu / 64] |= 1 << (cpu % 64);
        }
        WalkFlows {
            possible,
            stats: (0..flows).map(|_| vec![0; cpus].into_boxed_slice()).collect(),
            blocks: (0..flows * 2).map(|_| Block::default()).collect(),
            free: (0..flows as u32 * 2).collect(),
        }
    }

    /// `ovs_flow_alloc`: the flow zeroed, with the block of CPU 0.
    pub(crate) fn claim(&mut self, flow: usize) {
        self.stats[flow].fill(0);
        self.add(flow, 0);
    }

    /// The block of another CPU.
    pub(crate) fn add(&mut self, flow: usize, cpu: usize) {
        let block = self.free.pop().expect("two for each flow");
        let of = &self.blocks[block as usize];
        of.packets.store(1, Ordering::Relaxed);
        of.bytes.store(64, Ordering::Relaxed);
        self.stats[flow][cpu] = u64::from(block) + 1;
    }

    /// `ovs_flow_stats_update`, without the lock of the block: a packet of `bytes` with TCP flags at a time.
    pub(crate) fn update(&mut self, flow: usize, cpu: usize, counted: (u64, u64, u64)) {
        let (bytes, flags, time_ns) = counted;
        let Some(block) = (self.stats[flow][cpu] as usize).checked_sub(1) else {
            return self.add(flow, cpu);
        };
        let block = &self.blocks[block];
        // One CPU writes a block.
        let add = |word: &AtomicU64, more| {
            word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&block.packets, 1);
        add(&block.bytes, bytes);
        block.tcp_flags.store(block.tcp_flags.load(Ordering::Relaxed) | flags, Ordering::Relaxed);
        block.last_ns.store(time_ns, Ordering::Relaxed);
    }

    /// `cpumask_next(cpu, cpu_possible_mask)`: the next bit, or one past the last CPU.
    #[inline]
    fn next_cpu(&self, cpu: usize) -> usize {
        let next = cpu + 1;
        let mut word = next / 64;
        let Some(mut bits) = self.possible.get(word).map(|bits| bits & (u64::MAX << (next % 64)))
        else {
            return usize::MAX;
        };
        while bits == 0 {
            word += 1;
            match self.possible.get(word) {
                Some(more) => bits = *more,
                None => return usize::MAX,
            }
        }
        word * 64 + bits.trailing_zeros() as usize
    }

    /// `ovs_flow_stats_get`.
    pub(crate) fn read(&self, flow: usize) -> (u64, u64, u64, u64) {
        let stats = &self.stats[flow];
        let mut sum = (0, 0, 0, 0);
        let mut cpu = 0;
        while cpu < stats.len() {
            if stats[cpu] != 0 {
                let block = &self.blocks[stats[cpu] as usize - 1];
                sum.0 += block.packets.load(Ordering::Relaxed);
                sum.1 += block.bytes.load(Ordering::Relaxed);
                sum.2 |= block.tcp_flags.load(Ordering::Relaxed);
                sum.3 = sum.3.max(block.last_ns.load(Ordering::Relaxed));
            }
            cpu = self.next_cpu(cpu);
        }
        sum
    }

    /// `ovs_flow_stats_clear`.
    pub(crate) fn clear(&self, flow: usize) {
        let stats = &self.stats[flow];
        let mut cpu = 0;
        while cpu < stats.len() {
            if stats[cpu] != 0 {
                let block = &self.blocks[stats[cpu] as usize - 1];
                for word in [&block.packets, &block.bytes, &block.tcp_flags, &block.last_ns] {
                    word.store(0, Ordering::Relaxed);
                }
            }
            cpu = self.next_cpu(cpu);
        }
    }

    /// `flow_free`.
    pub(crate) fn free(&mut self, flow: usize) {
        let mut free = std::mem::take(&mut self.free);
        let stats = &self.stats[flow];
        let mut cpu = 0;
        while cpu < stats.len() {
            if stats[cpu] != 0 {
                free.push(stats[cpu] as u32 - 1);
            }
            cpu = self.next_cpu(cpu);
        }
        self.free = free;
    }
}
