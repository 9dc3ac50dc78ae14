//! Which buckets move: a pure function from loads to moves, and the state that it needs from one interval to the next
//! ([`Balancer`]).
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
//!    lift a CPU above the threshold, the smallest of them goes where it raises large buckets least: longest processing
//!    time first (LPT; Graham, "Bounds on multiprocessing timing anomalies", 1969), for the buckets that need it.
//! 2. From the CPU furthest above its goal, small buckets go to the CPU with the least load: the smallest one that
//!    suffices alone, or else the largest one that the receiver has room for. A CPU whose large bucket alone fills its
//!    share keeps no others: its small buckets leave it. The order guard moves small flows within milliseconds, but
//!    a flow that always has packets under way only when its queue runs empty; this is why small ones leave first.
//! 3. Step 1 is kept only if steps 1 and 2 together give lower loads than step 2 alone, compared from the busiest CPU
//!    on. So no call raises the maximum, and calls come to rest.
//!
//! *Hysteresis*: moves begin when a CPU is above its goal by the threshold, and by more than chance explains (three
//! standard deviations of as many packets); they go on until it is above by half of the threshold. A move that lowers
//! the busier of its two CPUs by less than half of the threshold does not pay, unless the receiver stays below that.
//!
//! **Sources.** RSS++ (Barbette et al., "RSS++: load and state-aware receive side scaling", CoNEXT 2019): counts by
//! bucket of the indirection table, and moves from overloaded to underloaded CPUs that keep transfers few. DPDK's
//! distributed software eventdev (drivers/event/dsw): large flows are moved alone, and only if the receiver keeps
//! room. Open vSwitch's automatic balance of PMD threads (lib/dpif-netdev.c): a change must improve by a threshold.
//! Here moves are judged against the best that is possible with undividable buckets, not against the mean.

use crate::balance::{Balance, Counted};
use crate::cpu::CpuId;
use crate::flow::FlowHash;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// A CPU to [`rebalance`] over. Its load is `other + cost × packets`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuCost {
    /// What a packet costs here; above 0.
    pub cost: f64,
    /// What the CPU has to do beside the packets of its buckets, in the same unit.
    pub other: f64,
}

/// The loads of one interval.
#[derive(Clone, Copy, Debug)]
pub struct Loads<'a> {
    /// For each bucket, the index of its CPU in `cpus`.
    pub table: &'a [u16],
    /// For each bucket, its packets; for a bucket that must not move, also count them in `other`, and 0 here.
    pub packets: &'a [f64],
    /// The CPUs.
    pub cpus: &'a [CpuCost],
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How far a CPU may lie above its goal, as a share of the goal.
    pub threshold: f64,
    /// The most moves.
    pub moves: usize,
}

/// A bucket that goes to another CPU.
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

/// The moves that even out `loads`: fewest that bring each CPU below the threshold, as far as buckets allow. See the
/// head of this file for the rules.
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

/// A table on its way to another.
#[derive(Clone, Debug)]
struct State<'a> {
    loads: &'a Loads<'a>,
    limits: &'a Limits,
    table: Vec<u16>,
    /// By bucket, whether it is large.
    is_large: Vec<bool>,
    /// By CPU: the order in which equal ones are taken, which does not depend on their numbers; packets of all its
    /// buckets; and load without its small buckets.
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
        let CpuCost { cost, other } = self.loads.cpus[cpu];
        other + cost * self.packets[cpu]
    }

    /// What a CPU should have: the level, or its large buckets and other work where these are more.
    fn goal(&self, cpu: usize) -> f64 {
        self.level.max(self.base[cpu])
    }

    fn margin(&self) -> f64 {
        self.level * self.limits.threshold / 2.0
    }

    fn max(&self) -> f64 {
        self.cpus().map(|cpu| self.load(cpu)).fold(0.0, f64::max)
    }

    /// Whether the loads, from the highest to the lowest, are below the other ones at the first place that differs by
    /// more than the margin, and above them nowhere before.
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
                self.base[*cpu] > over && self.buckets_of(*cpu, true).next().is_some()
            });
            let Some(from) = self.least(lifted, |cpu| -self.base[cpu]) else { break };
            let packets = |bucket: &usize| self.loads.packets[*bucket];
            let smallest =
                self.buckets_of(from, true).min_by(|a, b| packets(a).total_cmp(&packets(b)));
            let Some(bucket) = smallest else { break };
            let packets = packets(&bucket);
            let after = |cpu: usize| self.base[cpu] + packets * self.loads.cpus[cpu].cost;
            let others = self.cpus().filter(|cpu| *cpu != from);
            let Some(to) = self.least(others, after) else { break };
            if after(to) >= self.base[from] - self.margin() {
                break;
            }
            self.shift(bucket, to);
            self.set_level();
        }
        !self.shifts.is_empty()
    }

    /// Whether the CPU is above its goal by the threshold, and by more than chance.
    fn is_over(&self, cpu: usize) -> bool {
        let (load, goal) = (self.load(cpu), self.goal(cpu));
        let excess = (load - goal) / self.loads.cpus[cpu].cost;
        load > goal * (1.0 + self.limits.threshold) && excess * excess > 9.0 * self.packets[cpu]
    }

    /// Step 2: small buckets leave CPUs that are above their goals.
    fn relieve(&mut self) {
        // What step 1 did is to be followed up in any case.
        if self.shifts.is_empty() && !self.cpus().any(|cpu| self.is_over(cpu)) {
            return;
        }
        let mut is_done = vec![false; self.loads.cpus.len()];
        while self.shifts.len() < self.limits.moves {
            let enough = 1.0 + self.limits.threshold / 2.0;
            let over = self
                .cpus()
                .filter(|cpu| !is_done[*cpu] && self.load(*cpu) > self.goal(*cpu) * enough);
            let Some(from) = self.least(over, |cpu| self.goal(cpu) - self.load(cpu)) else { break };
            match self.best(from) {
                Some((bucket, to)) => self.shift(bucket, to),
                None => is_done[from] = true,
            }
        }
    }

    /// The best small bucket to leave `from`, and where it goes.
    fn best(&self, from: usize) -> Option<(usize, usize)> {
        let cpus = self.loads.cpus;
        let mean = self.loads.packets.iter().sum::<f64>() / self.table.len() as f64;
        let others = self.cpus().filter(|cpu| *cpu != from);
        let to = self.least(others, |cpu| self.load(cpu) + mean * cpus[cpu].cost)?;
        let (load, receiver) = (self.load(from), self.load(to));
        let excess = load - self.goal(from);
        let room = self.level + self.margin() - receiver;
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

/// What a CPU did in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLoad {
    /// The CPU.
    pub cpu: CpuId,
    /// The time that it spent on packets of its backlogs, in nanoseconds.
    pub ours_ns: u64,
    /// The packets that it completed in that time.
    pub packets: u64,
    /// The time that it spent on anything else: interrupts, receiving, applications.
    pub other_ns: u64,
}

impl CpuLoad {
    /// A CPU whose time is not measured: all packets cost the same everywhere.
    #[must_use]
    pub fn unmeasured(cpu: CpuId) -> CpuLoad {
        CpuLoad { cpu, ours_ns: 0, packets: 0, other_ns: 0 }
    }
}

/// A bucket that moves, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The bucket.
    pub bucket: u16,
    /// The CPU that has it.
    pub from: CpuId,
    /// The CPU that gets it.
    pub to: CpuId,
    /// The load of `from` before the move, in percent of its fair share.
    pub from_percent: u32,
    /// The load of `to` before the move, in percent of its fair share.
    pub to_percent: u32,
    /// The flow that has more than half of the bucket's packets; [`FlowHash::NONE`] without one.
    pub large: FlowHash,
}

/// Why: `CPU 2 had 143 % of its share, CPU 0 61 %`.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { from, to, from_percent, to_percent, .. } = self;
        write!(f, "CPU {from} had {from_percent} % of its share, CPU {to} {to_percent} %")
    }
}

/// Fewer completed packets than this in an interval do not tell what a packet costs on a CPU.
const ENOUGH_PACKETS: f64 = 32.0;

/// Where time is measured, a CPU that is busy for less than this share of the interval is left alone.
const LEAST_BUSY: f64 = 0.05;

/// Decides at each interval which buckets move.
#[derive(Clone, Debug)]
pub struct Balancer {
    limits: Limits,
    buckets: usize,
    /// The counts at the last interval.
    counted: Vec<u32>,
    /// By bucket, and then by CPU id for packets of other rules, packets in an interval: half of it the last one, the
    /// other half those before.
    packets: Vec<f64>,
    /// By CPU id, its time for packets, their number, and its other time, in the same way.
    times: Vec<[f64; 3]>,
    is_first: bool,
}

impl Balancer {
    /// A balancer that has seen nothing. `counted` is what is counted so far.
    #[must_use]
    pub fn new(balance: &Balance, counted: &Counted) -> Balancer {
        Balancer {
            limits: Limits {
                threshold: f64::from(balance.threshold_percent) / 100.0,
                moves: usize::from(balance.moves),
            },
            buckets: counted.large.len(),
            counted: counted.packets.clone(),
            packets: vec![0.0; counted.packets.len()],
            times: Vec::new(),
            is_first: true,
        }
    }

    /// Ends an interval of `elapsed_ns`, and says which buckets move. `table` has the CPU of each bucket, `cpus` the
    /// CPUs that may have buckets. A bucket of another CPU does not move: it belongs to a change under way.
    pub fn interval(
        &mut self,
        table: &[CpuId],
        cpus: &[CpuLoad],
        counted: &Counted,
        elapsed_ns: u64,
    ) -> Vec<Move> {
        if table.len() != self.buckets || counted.packets.len() != self.packets.len() {
            return Vec::new();
        }
        let weight = if self.is_first { 1.0 } else { 0.5 };
        for (bucket, now) in counted.packets.iter().enumerate() {
            let packets = f64::from(now.wrapping_sub(self.counted[bucket]));
            self.packets[bucket] += (packets - self.packets[bucket]) * weight;
        }
        self.counted.clone_from(&counted.packets);
        let costs = self.costs(cpus, weight);
        self.is_first = false;
        let mut buckets = Vec::with_capacity(table.len());
        let mut packets = Vec::with_capacity(table.len());
        let position = |cpu: CpuId| cpus.iter().position(|load| load.cpu == cpu);
        let positions: Vec<Option<usize>> = {
            let highest = table.iter().map(|cpu| cpu.index()).max().unwrap_or(0);
            (0..=highest).map(|id| CpuId::new(id as u16).and_then(position)).collect()
        };
        for (bucket, cpu) in table.iter().enumerate() {
            let at = positions.get(cpu.index()).copied().flatten();
            packets.push(if at.is_some() { self.packets[bucket] } else { 0.0 });
            buckets.push(at.unwrap_or(0) as u16);
        }
        let loads = Loads { table: &buckets, packets: &packets, cpus: &costs };
        let is_measured = cpus.iter().any(|load| load.ours_ns > 0);
        let busiest = State::new(&loads, &self.limits).max();
        if is_measured && busiest < LEAST_BUSY * elapsed_ns as f64 {
            return Vec::new();
        }
        let percent = |share: f64| (share * 100.0 + 0.5) as u32;
        let shifts = rebalance(&loads, &self.limits);
        shifts
            .into_iter()
            .map(|shift| Move {
                bucket: shift.bucket as u16,
                from: cpus[shift.from].cpu,
                to: cpus[shift.to].cpu,
                from_percent: percent(shift.loads[0]),
                to_percent: percent(shift.loads[1]),
                large: counted.large[shift.bucket],
            })
            .collect()
    }

    /// What a packet costs on each CPU, and what each CPU does besides.
    fn costs(&mut self, cpus: &[CpuLoad], weight: f64) -> Vec<CpuCost> {
        for load in cpus {
            if self.times.len() <= load.cpu.index() {
                self.times.resize(load.cpu.index() + 1, [0.0; 3]);
            }
            let now = [load.ours_ns as f64, load.packets as f64, load.other_ns as f64];
            for (smooth, now) in self.times[load.cpu.index()].iter_mut().zip(now) {
                *smooth += (now - *smooth) * weight;
            }
        }
        let all = |part: usize| -> f64 {
            cpus.iter().map(|load| self.times[load.cpu.index()][part]).sum()
        };
        let mean = if all(0) > 0.0 && all(1) > 0.0 { all(0) / all(1) } else { 1.0 };
        let cost = |load: &CpuLoad| {
            let [ns, packets, other] = self.times[load.cpu.index()];
            let is_known = packets >= ENOUGH_PACKETS && ns > 0.0;
            let cost = if is_known { ns / packets } else { mean };
            let elsewhere = self.packets.get(self.buckets + load.cpu.index()).copied();
            CpuCost { cost, other: other + cost * elsewhere.unwrap_or(0.0) }
        };
        cpus.iter().map(cost).collect()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "rebalance_tests.rs"]
mod tests;
