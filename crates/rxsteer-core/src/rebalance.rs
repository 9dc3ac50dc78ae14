//! Decides which buckets move: a pure function from loads to moves. [`crate::balancer`] keeps the state that it needs
//! from one interval to the next.
//!
//! ```text
//!   load of a CPU = other work + cost of a packet there × packets of its buckets
//!
//!       ┌───┐                                       level: all CPUs end here when small buckets flow like water
//!   ────│▒▒▒│─────┬───┬───── level × (1 + threshold)   over the CPUs' other work and large buckets
//!   ┌───┤▒▒▒├─────┤   ├────┐
//!   │   │▒▒▒│     │   │    │ ▒ leaves, as few buckets as bring the CPU down, to the CPU with the least load
//!   └───┴───┴─────┴───┴────┘
//! ```
//!
//! 1. A bucket with more than half of a CPU's share is *large*; it can't be divided. If large buckets (and other work)
//!    lift a CPU above the threshold, the smallest of them moves to the CPU whose load from large buckets is lowest after
//!    the move: longest processing time first (LPT; Graham, "Bounds on multiprocessing timing anomalies", 1969), for the
//!    buckets that need it.
//! 2. From the CPU furthest above its goal, small buckets move to the CPU with the least load: the smallest one that
//!    suffices alone, or else the largest one that the receiver has room for. A CPU whose large bucket alone fills its
//!    share keeps no small ones. Small buckets leave first because the order guard lets small flows move within
//!    milliseconds, while a flow that always has packets in flight can move only when its queue runs empty. If such a
//!    flow is *held* on a CPU that has no idle time, that CPU's large buckets stay, and small ones leave it until its
//!    queue can run empty, to any CPU with free time.
//! 3. Step 1 is kept only if steps 1 and 2 together give lower loads than step 2 alone, compared from the busiest CPU on.
//!    So no call raises the maximum, and repeated calls reach a state without moves.
//!
//! *Hysteresis*: moves begin when a CPU is above its goal by the threshold, and by more than chance explains (three
//! standard deviations of this number of packets). They continue until it is above by half of the threshold. A move that
//! lowers the busier of its two CPUs by less than half of the threshold is not made, unless the receiver stays within half
//! of the threshold above the level.
//!
//! **Sources.** RSS++ (Barbette et al., "RSS++: load and state-aware receive side scaling", CoNEXT 2019): counts by
//! bucket of the indirection table, and moves from overloaded to underloaded CPUs with few transfers. DPDK's distributed
//! software eventdev (drivers/event/dsw): large flows move alone, and only if the receiver keeps room. Open vSwitch's
//! automatic balance of PMD threads (lib/dpif-netdev.c): a change must improve the balance by a threshold. Here moves are
//! compared with the best distribution of indivisible buckets, not with the mean.

use alloc::vec;
use alloc::vec::Vec;

/// A CPU for [`rebalance`]. Its load is `other + cost × packets`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuCost {
    /// The cost of a packet on this CPU; above 0.
    pub cost: f64,
    /// The CPU's load without the packets of its buckets, in the same unit.
    pub other: f64,
    /// The load of flows that the order guard holds here although their buckets belong to other CPUs, in the same unit.
    pub held: f64,
}

/// The loads of one interval.
#[derive(Clone, Copy, Debug)]
pub struct Loads<'a> {
    /// For each bucket, the index of its CPU in `cpus`.
    pub table: &'a [u16],
    /// For each bucket, its packets. For a bucket that must not move, pass 0 here and add its packets to `other`.
    pub packets: &'a [f64],
    /// The CPUs.
    pub cpus: &'a [CpuCost],
    /// The load at which a CPU has no time left; infinite if time is not measured.
    pub capacity: f64,
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How far a CPU may be above its goal, as a share of the level.
    pub threshold: f64,
    /// The largest number of moves.
    pub moves: usize,
    /// The variance that `packets` have by chance, as a share of their number: 1 for counts of one interval, less for
    /// smoothed counts.
    pub chance: f64,
}

/// A bucket that moves to another CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// The bucket.
    pub bucket: usize,
    /// The index of the CPU that has it.
    pub from: usize,
    /// The index of the CPU that gets it.
    pub to: usize,
    /// The loads of the two CPUs before the move, as shares of the level.
    pub loads: [f64; 2],
}

/// The moves that even out `loads`: the fewest that bring each CPU below the threshold, as far as the buckets allow. See
/// the module documentation for the rules.
#[must_use]
pub fn rebalance(loads: &Loads<'_>, limits: &Limits) -> Vec<Shift> {
    let before = State::new(loads, limits);
    if before.level.is_nan() || before.level <= 0.0 || limits.moves == 0 {
        return Vec::new();
    }
    let mut small_only = before.clone();
    small_only.relieve();
    let mut all = before.clone();
    if !all.part_large() {
        return small_only.shifts;
    }
    all.relieve();
    if all.is_better_than(&small_only) { all.shifts } else { small_only.shifts }
}

/// The load of the busiest CPU.
pub(crate) fn busiest(loads: &Loads<'_>) -> f64 {
    let mut by_cpu: Vec<f64> = loads.cpus.iter().map(|cpu| cpu.other).collect();
    for (cpu, packets) in loads.table.iter().zip(loads.packets) {
        by_cpu[usize::from(*cpu)] += packets * loads.cpus[usize::from(*cpu)].cost;
    }
    by_cpu.into_iter().fold(0.0, f64::max)
}

/// The level to which `packets` packets fill CPUs whose loads begin at `base`.
#[must_use]
pub fn water_level(packets: f64, base: &[f64], cpus: &[CpuCost]) -> f64 {
    let mut order: Vec<usize> = (0..cpus.len()).collect();
    order.sort_by(|a, b| base[*a].total_cmp(&base[*b]));
    let (mut sum, mut speed, mut level) = (packets, 0.0, 0.0);
    for cpu in order {
        if speed > 0.0 && level <= base[cpu] {
            break;
        }
        sum += base[cpu] / cpus[cpu].cost;
        speed += 1.0 / cpus[cpu].cost;
        level = sum / speed;
    }
    level
}

/// A table that is being changed into another.
#[derive(Clone, Debug)]
struct State<'a> {
    loads: &'a Loads<'a>,
    limits: &'a Limits,
    table: Vec<u16>,
    /// By bucket, whether it is large.
    is_large: Vec<bool>,
    /// By CPU: its rank among equal CPUs, which does not depend on the CPU number; the packets of all its buckets; and
    /// its load without its small buckets.
    rank: Vec<usize>,
    packets: Vec<f64>,
    base: Vec<f64>,
    level: f64,
    shifts: Vec<Shift>,
}

impl<'a> State<'a> {
    fn new(loads: &'a Loads<'a>, limits: &'a Limits) -> State<'a> {
        let cpus = loads.cpus;
        let other: Vec<f64> = cpus.iter().map(|cpu| cpu.other).collect();
        let share = water_level(loads.packets.iter().sum(), &other, cpus);
        let mut rank = vec![usize::MAX; cpus.len()];
        let mut packets = vec![0.0; cpus.len()];
        for (bucket, cpu) in loads.table.iter().map(|cpu| usize::from(*cpu)).enumerate() {
            packets[cpu] += loads.packets[bucket];
            rank[cpu] = rank[cpu].min(bucket);
        }
        let cost = |bucket: usize| cpus[usize::from(loads.table[bucket])].cost;
        let is_large = (0..loads.table.len())
            .map(|bucket| loads.packets[bucket] * cost(bucket) > share / 2.0)
            .collect();
        let mut state = State {
            loads,
            limits,
            table: loads.table.to_vec(),
            is_large,
            rank,
            packets,
            base: other,
            level: 0.0,
            shifts: Vec::new(),
        };
        for (bucket, cpu) in loads.table.iter().enumerate() {
            if state.is_large[bucket] {
                let cpu = usize::from(*cpu);
                state.base[cpu] += loads.packets[bucket] * cpus[cpu].cost;
            }
        }
        state.set_level();
        state
    }

    fn set_level(&mut self) {
        let small = (0..self.table.len()).filter(|bucket| !self.is_large[*bucket]);
        let small = small.map(|bucket| self.loads.packets[bucket]).sum();
        self.level = water_level(small, &self.base, self.loads.cpus);
    }

    fn load(&self, cpu: usize) -> f64 {
        let CpuCost { cost, other, .. } = self.loads.cpus[cpu];
        other + cost * self.packets[cpu]
    }

    /// Whether flows are held on a CPU that may not have the time to release them.
    fn is_stuck(&self, cpu: usize) -> bool {
        let held = self.loads.cpus[cpu].held;
        held > 0.0 && self.load(cpu) + held > self.enough()
    }

    /// The load at which a CPU's queue runs empty from time to time.
    fn enough(&self) -> f64 {
        self.loads.capacity * (1.0 - self.limits.threshold)
    }

    /// The goal of a CPU: the level, or the load of its large buckets and other work if that is higher.
    fn goal(&self, cpu: usize) -> f64 {
        self.level.max(self.base[cpu])
    }

    fn margin(&self) -> f64 {
        self.level * self.limits.threshold / 2.0
    }

    /// Compares the loads of both states, from the highest to the lowest. Returns whether the first that differ by more
    /// than the margin are lower here, and none before them is higher.
    fn is_better_than(&self, other: &State<'_>) -> bool {
        let sorted = |state: &State<'_>| {
            let mut loads: Vec<f64> = state.cpus().map(|cpu| state.load(cpu)).collect();
            loads.sort_by(|a, b| b.total_cmp(a));
            loads
        };
        for (ours, theirs) in sorted(self).into_iter().zip(sorted(other)) {
            if ours > theirs {
                return false;
            }
            if ours < theirs - self.margin() {
                return true;
            }
        }
        false
    }

    fn cpus(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.loads.cpus.len()
    }

    /// The CPU among `cpus` with the least `value`; the first by rank among equal ones.
    fn least(
        &self,
        cpus: impl Iterator<Item = usize>,
        value: impl Fn(usize) -> f64,
    ) -> Option<usize> {
        let order = |a: &usize, b: &usize| {
            value(*a).total_cmp(&value(*b)).then(self.rank[*a].cmp(&self.rank[*b]))
        };
        cpus.min_by(order)
    }

    fn shift(&mut self, bucket: usize, to: usize) {
        let from = usize::from(self.table[bucket]);
        let loads = [from, to].map(|cpu| self.load(cpu) / self.level);
        let packets = self.loads.packets[bucket];
        self.packets[from] -= packets;
        self.packets[to] += packets;
        if self.is_large[bucket] {
            self.base[from] -= packets * self.loads.cpus[from].cost;
            self.base[to] += packets * self.loads.cpus[to].cost;
        }
        self.table[bucket] = to as u16;
        self.shifts.push(Shift { bucket, from, to, loads });
    }

    fn buckets_of(&self, cpu: usize, large: bool) -> impl Iterator<Item = usize> + '_ {
        (0..self.table.len()).filter(move |bucket| {
            usize::from(self.table[*bucket]) == cpu
                && self.is_large[*bucket] == large
                && self.loads.packets[*bucket] > 0.0
        })
    }

    /// Step 1: large buckets leave CPUs that they lift above the threshold. Returns whether one did.
    fn part_large(&mut self) -> bool {
        let most = self.limits.moves;
        while self.shifts.len() < most {
            let over = self.level * (1.0 + self.limits.threshold);
            let lifted = self.cpus().filter(|cpu| {
                self.base[*cpu] > over
                    && !self.is_stuck(*cpu)
                    && self.buckets_of(*cpu, true).next().is_some()
            });
            let Some(from) = self.least(lifted, |cpu| -self.base[cpu]) else { break };
            let packets = |bucket: &usize| self.loads.packets[*bucket];
            let smallest =
                self.buckets_of(from, true).min_by(|a, b| packets(a).total_cmp(&packets(b)));
            let Some(bucket) = smallest else { break };
            let packets = packets(&bucket);
            let after = |cpu: usize| self.base[cpu] + packets * self.loads.cpus[cpu].cost;
            let others =
                self.cpus().filter(|cpu| *cpu != from && self.loads.cpus[*cpu].held == 0.0);
            let Some(to) = self.least(others, after) else { break };
            if after(to) >= self.base[from] - self.margin() {
                break;
            }
            self.shift(bucket, to);
            self.set_level();
        }
        !self.shifts.is_empty()
    }

    /// Whether the CPU is above its goal by more than the threshold, and by more than chance.
    fn is_over(&self, cpu: usize) -> bool {
        if self.is_stuck(cpu) {
            return true;
        }
        let (load, goal) = (self.load(cpu), self.goal(cpu));
        let excess = (load - goal) / self.loads.cpus[cpu].cost;
        let chance = 9.0 * self.packets[cpu] * self.limits.chance;
        // The threshold is a share of the level: a CPU with much other work must not keep buckets because of that work.
        load > goal + self.level * self.limits.threshold && excess * excess > chance
    }

    /// Step 2: small buckets leave CPUs that are above their goals.
    fn relieve(&mut self) {
        // The result of step 1 is always followed up.
        if self.shifts.is_empty() && !self.cpus().any(|cpu| self.is_over(cpu)) {
            return;
        }
        let mut is_done = vec![false; self.loads.cpus.len()];
        while self.shifts.len() < self.limits.moves {
            let over =
                self.cpus().filter(|cpu| !is_done[*cpu] && self.excess(*cpu) > self.margin());
            let Some(from) = self.least(over, |cpu| -self.excess(cpu)) else { break };
            match self.best(from) {
                Some((bucket, to)) => self.shift(bucket, to),
                None => is_done[from] = true,
            }
        }
    }

    /// How far the CPU is above its goal, or above the load at which it releases held flows.
    fn excess(&self, cpu: usize) -> f64 {
        let load = self.load(cpu);
        match self.is_stuck(cpu) {
            true => load + self.loads.cpus[cpu].held - self.enough() + self.margin(),
            false => load - self.goal(cpu),
        }
    }

    /// The best small bucket to leave `from`, and where it goes.
    fn best(&self, from: usize) -> Option<(usize, usize)> {
        let cpus = self.loads.cpus;
        let mean = self.loads.packets.iter().sum::<f64>() / self.table.len() as f64;
        let others = self.cpus().filter(|cpu| *cpu != from && self.loads.cpus[*cpu].held == 0.0);
        let to = self.least(others, |cpu| self.load(cpu) + mean * cpus[cpu].cost)?;
        let receiver = self.load(to);
        let excess = self.excess(from);
        let (load, room) = match self.is_stuck(from) {
            true => (self.load(from) + self.loads.cpus[from].held, self.enough() - receiver),
            false => (self.load(from), self.level + self.margin() - receiver),
        };
        // Larger is better, in this order: the receiver has room; the bucket suffices; then its size.
        let mut best: Option<(bool, bool, f64, usize)> = None;
        for bucket in self.buckets_of(from, false) {
            let packets = self.loads.packets[bucket];
            let (less, more) = (packets * cpus[from].cost, packets * cpus[to].cost);
            let fits = more <= room;
            let suffices = fits && less >= excess;
            let busier = (load - less).max(receiver + more);
            if !fits && busier > load - self.margin() {
                continue;
            }
            let size = match (fits, suffices) {
                (true, false) => less,
                (true, true) => -less,
                (false, _) => -busier,
            };
            let is_better = best.is_none_or(|(best_fits, best_suffices, best_size, _)| {
                (fits, suffices).cmp(&(best_fits, best_suffices)).then(size.total_cmp(&best_size))
                    == core::cmp::Ordering::Greater
            });
            if is_better {
                best = Some((fits, suffices, size, bucket));
            }
        }
        best.map(|(_, _, _, bucket)| (bucket, to))
    }
}

#[cfg(all(test, not(loom)))]
#[path = "rebalance_tests.rs"]
mod tests;
