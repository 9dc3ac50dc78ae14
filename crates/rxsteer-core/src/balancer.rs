//! The state of moves from one interval to the next: the smoothed counts, and from them the cost of packets on each CPU.
//! [`crate::rebalance`] uses it to decide.
//!
//! *Smoothing*: the last interval has a weight of one quarter, and the earlier ones of three quarters, so that random
//! differences average out. If a count differs by more than chance explains, or a cost by a quarter, the new value
//! replaces the old one at once. Then the part of the differences between buckets that chance explains is removed.
//!
//! *Held flows*: a bucket that moved may still load its former CPU, since the order guard holds flows there that always
//! have packets in flight. These packets are missing on the bucket's new CPU.

use crate::balance::{Balance, Counted};
use crate::cpu::CpuId;
use crate::flow::FlowHash;
use crate::rebalance::{CpuCost, Limits, Loads, busiest, rebalance};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// What a CPU did in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLoad {
    /// The CPU.
    pub cpu: CpuId,
    /// The time that it spent on packets of its backlogs, in nanoseconds.
    pub ours_ns: u64,
    /// The packets that it completed in that time.
    pub packets: u64,
    /// The time that it spent on other work: interrupts, receiving, applications.
    pub other_ns: u64,
}

impl CpuLoad {
    /// A CPU whose time is not measured: all packets have the same cost on every CPU.
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
    /// The flow that has more than half of the bucket's packets; [`FlowHash::NONE`] if there is none.
    pub large: FlowHash,
}

/// Writes the reason: `CPU 2 had 143 % of its share, CPU 0 61 %`.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { from, to, from_percent, to_percent, .. } = self;
        write!(f, "CPU {from} had {from_percent} % of its share, CPU {to} {to_percent} %")
    }
}

/// With fewer completed packets than this in an interval, the cost of a packet on a CPU is unknown.
const ENOUGH_PACKETS: f64 = 32.0;

/// If time is measured, no bucket moves while every CPU is busy for less than this share of the interval.
const MIN_BUSY: f64 = 0.05;

/// Decides at each interval which buckets move.
#[derive(Clone, Debug)]
pub struct Balancer {
    limits: Limits,
    buckets: usize,
    /// The counts at the last interval.
    counted: Vec<u32>,
    /// By bucket, and then by CPU id for packets of other rules: the smoothed packets per interval. The last interval has
    /// a weight of one quarter; if it differs by more than chance, it alone counts.
    packets: Vec<f64>,
    /// By CPU id: its time for packets, their number, and its other time, smoothed in the same way. If the cost of a
    /// packet differs by more than [`NEW_COST`], the last interval alone counts.
    times: Vec<[f64; 3]>,
    /// Buckets that moved, and whose packets may not all have followed yet.
    moved: Vec<Moved>,
    is_first: bool,
}

/// A bucket that moved.
#[derive(Clone, Copy, Debug)]
struct Moved {
    bucket: usize,
    /// The CPU where its packets were.
    from: CpuId,
    /// The share of its packets that still goes to that CPU.
    held: f64,
}

/// A CPU that is busy for a larger share of the interval may complete less than it gets.
const FULL: f64 = 0.95;

/// A bucket has followed its move when less than this share of its packets is missing.
const MIN_HELD: f64 = 0.1;

/// The weight of the last interval.
const WEIGHT: f64 = 0.25;

/// A cost that differs from the former one by more than this share is a new one.
const NEW_COST: f64 = 0.25;

impl Balancer {
    /// A balancer without history. `counted` holds the present counts.
    #[must_use]
    pub fn new(balance: &Balance, counted: &Counted) -> Balancer {
        Balancer {
            limits: Limits {
                threshold: f64::from(balance.threshold_percent) / 100.0,
                moves: usize::from(balance.moves),
                chance: 1.0,
            },
            buckets: counted.large.len(),
            counted: counted.packets.clone(),
            packets: vec![0.0; counted.packets.len()],
            times: Vec::new(),
            moved: Vec::new(),
            is_first: true,
        }
    }

    /// Ends an interval of `elapsed_ns`, and returns the buckets that move. `table` has the CPU of each bucket. `cpus`
    /// are the CPUs that may have buckets. A bucket of another CPU does not move: it belongs to a change in progress.
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
        let weight = if self.is_first { 1.0 } else { WEIGHT };
        let held = self.held(table, cpus, counted, elapsed_ns);
        for (bucket, now) in counted.packets.iter().enumerate() {
            let packets = f64::from(now.wrapping_sub(self.counted[bucket]));
            let smooth = &mut self.packets[bucket];
            let difference = packets - *smooth;
            // Four standard deviations of the difference of two counts.
            let is_new = difference * difference > 16.0 * (packets + *smooth);
            *smooth += difference * if is_new { 1.0 } else { weight };
        }
        self.counted.clone_from(&counted.packets);
        // The variance of a weighted mean of counts.
        self.limits.chance *= (1.0 - weight) * (1.0 - weight);
        self.limits.chance += weight * weight;
        let mut costs = self.costs(cpus, weight);
        self.is_first = false;
        if cpus.is_empty() {
            // All CPUs of the map are offline, so there is no CPU to move to.
            return Vec::new();
        }
        let smooth = shrunk(&self.packets[..self.buckets], self.limits.chance);
        let mut buckets = Vec::with_capacity(table.len());
        let mut packets = Vec::with_capacity(table.len());
        let position = |cpu: CpuId| cpus.iter().position(|load| load.cpu == cpu);
        let positions: Vec<Option<usize>> = {
            let highest = table.iter().map(|cpu| cpu.index()).max().unwrap_or(0);
            (0..=highest).map(|id| CpuId::new(id as u16).and_then(position)).collect()
        };
        for (bucket, cpu) in table.iter().enumerate() {
            let at = positions.get(cpu.index()).copied().flatten();
            packets.push(if at.is_some() { smooth[bucket] } else { 0.0 });
            buckets.push(at.unwrap_or(0) as u16);
        }
        for (cost, held) in costs.iter_mut().zip(held) {
            cost.held = held * cost.cost;
        }
        let is_measured = cpus.iter().any(|load| load.ours_ns > 0);
        let capacity = if is_measured { elapsed_ns as f64 } else { f64::INFINITY };
        let loads = Loads { table: &buckets, packets: &packets, cpus: &costs, capacity };
        if is_measured && busiest(&loads) < MIN_BUSY * elapsed_ns as f64 {
            return Vec::new();
        }
        let percent = |share: f64| (share * 100.0 + 0.5) as u32;
        let shifts = rebalance(&loads, &self.limits);
        for shift in &shifts {
            let before = self.moved.iter().position(|moved| moved.bucket == shift.bucket);
            let before = before.map(|at| self.moved.swap_remove(at));
            let from = before.filter(|moved| moved.held > 0.5).map(|moved| moved.from);
            let from = from.unwrap_or(cpus[shift.from].cpu);
            self.moved.push(Moved { bucket: shift.bucket, from, held: 0.0 });
        }
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

    /// By CPU, the packets that arrived there although their buckets belong to other CPUs, because the order guard holds
    /// their flows.
    ///
    /// They are missing on the new CPUs of the moved buckets. They are on the former CPU of their bucket, unless that CPU
    /// is idle from time to time: there the guard holds no flow for long. If time is not measured, the completed packets
    /// are unknown, and none counts as held.
    fn held(
        &mut self,
        table: &[CpuId],
        cpus: &[CpuLoad],
        counted: &Counted,
        elapsed_ns: u64,
    ) -> Vec<f64> {
        let mut held = vec![0.0; cpus.len()];
        let position = |cpu: CpuId| cpus.iter().position(|load| load.cpu == cpu);
        let is_full =
            |load: &CpuLoad| (load.ours_ns + load.other_ns) as f64 > FULL * elapsed_ns as f64;
        self.moved.retain(|moved| {
            let from = position(moved.from);
            table[moved.bucket] != moved.from && from.is_some_and(|from| is_full(&cpus[from]))
        });
        if self.moved.is_empty() || cpus.iter().all(|load| load.ours_ns == 0) {
            return held;
        }
        let sent = |at: usize| {
            let counts = counted.packets.get(at).zip(self.counted.get(at));
            counts.map_or(0.0, |(now, before)| f64::from(now.wrapping_sub(*before)))
        };
        // By CPU: how many more packets its buckets got than it completed.
        let of_buckets = |load: &CpuLoad| {
            let here = (0..table.len()).filter(|bucket| table[*bucket] == load.cpu);
            here.map(sent).sum::<f64>() + sent(self.buckets + load.cpu.index())
        };
        let missing: Vec<f64> =
            cpus.iter().map(|load| of_buckets(load) - load.packets as f64).collect();
        for (load, missing) in cpus.iter().zip(&missing) {
            let mut moved: Vec<&mut Moved> =
                self.moved.iter_mut().filter(|moved| table[moved.bucket] == load.cpu).collect();
            // On a full CPU packets are missing because they wait in its queue.
            if !is_full(load) {
                let is_chance = missing * missing <= 16.0 * (missing + load.packets as f64);
                let all: f64 = moved.iter().map(|moved| sent(moved.bucket)).sum();
                let share = if is_chance { 0.0 } else { (missing / all.max(1.0)).clamp(0.0, 1.0) };
                moved.iter_mut().for_each(|moved| moved.held = share);
            }
            for moved in moved {
                if let Some(from) = position(moved.from) {
                    held[from] += moved.held * sent(moved.bucket);
                }
            }
        }
        let may_be_held = |moved: &Moved| {
            moved.held > MIN_HELD
                || position(table[moved.bucket]).is_some_and(|to| is_full(&cpus[to]))
        };
        self.moved.retain(may_be_held);
        for (held, missing) in held.iter_mut().zip(missing).filter(|(held, _)| **held > 0.0) {
            *held = held.max(-missing);
        }
        held
    }

    /// The cost of a packet and the other work on each CPU.
    fn costs(&mut self, cpus: &[CpuLoad], weight: f64) -> Vec<CpuCost> {
        for load in cpus {
            if self.times.len() <= load.cpu.index() {
                self.times.resize(load.cpu.index() + 1, [0.0; 3]);
            }
            let now = [load.ours_ns as f64, load.packets as f64, load.other_ns as f64];
            let times = &mut self.times[load.cpu.index()];
            // A cost is time divided by packets, so this compares costs.
            let (cost_now, cost_before) = (now[0] * times[1], times[0] * now[1]);
            let is_new = now[1] >= ENOUGH_PACKETS
                && (cost_now - cost_before).abs() > NEW_COST * cost_now.min(cost_before);
            let weight = if is_new { 1.0 } else { weight };
            for (smooth, now) in times.iter_mut().zip(now) {
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
            CpuCost { cost, other: other + cost * elsewhere.unwrap_or(0.0), held: 0.0 }
        };
        cpus.iter().map(cost).collect()
    }
}

/// Removes from the counts of buckets the part of their differences that chance explains.
///
/// The buckets with the largest counts are chosen to move, and some of these counts are large by chance. Without this
/// correction, the moved buckets have less load than expected. Each count moves towards the mean of the typical counts,
/// by the share of their variance that is due to chance (James and Stein, "Estimation with quadratic loss", 1961, as an
/// empirical Bayes estimate). Counts far from the median, those of large flows, do not change; neither do empty buckets.
fn shrunk(counts: &[f64], chance: f64) -> Vec<f64> {
    let mut sorted: Vec<f64> = counts.iter().copied().filter(|count| *count > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let is_like_most =
        |count: f64| count > 0.0 && (count - median) * (count - median) <= 25.0 * (median + 1.0);
    let (mut number, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for count in counts.iter().copied().filter(|count| is_like_most(*count)) {
        number += 1.0;
        sum += count;
        squares += count * count;
    }
    let mean = sum / f64::max(number, 1.0);
    let variance = squares / f64::max(number, 1.0) - mean * mean;
    let real = if variance > 0.0 { (1.0 - mean * chance / variance).max(0.0) } else { 0.0 };
    let shrink = |count: &f64| match is_like_most(*count) {
        true => mean + (count - mean) * real,
        false => *count,
    };
    counts.iter().map(shrink).collect()
}
