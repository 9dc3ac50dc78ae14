//! Other rules for moving buckets, to compare with the policy's own rule ([`rxsteer_core::rebalance`]), and what they
//! achieve: the loads that follow from the true rates of flows, interval by interval.
//!
//! | rule | knows | moves |
//! |---|---|---|
//! | [`Own`] | counts, times | as the policy |
//! | [`Naive`] | counts of the last interval, times | the largest bucket that lowers the busiest CPU, again and again |
//! | [`RssPlusPlus`] | counts of the last interval, times | as published by Barbette et al. |
//! | [`Lpt`] | true rates and speeds | all buckets anew, longest processing time first |

use rxsteer_core::balance::Counted;
use rxsteer_core::{Balance, Balancer, CpuId, CpuLoad, FlowHash, Move};
use std::fmt::Debug;

/// A flow's true rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRate {
    /// The flow.
    pub hash: FlowHash,
    /// Its packets a second.
    pub per_second: f64,
}

/// An interval that ends.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// The simulated time.
    pub now_ns: u64,
    /// The length of the interval.
    pub elapsed_ns: u64,
    /// The CPU of each bucket.
    pub table: &'a [CpuId],
    /// The loads of the CPUs that can have buckets.
    pub loads: &'a [CpuLoad],
    /// What was counted since the start of the run.
    pub counted: &'a Counted,
    /// The true rates of the flows that have begun.
    pub rates: &'a [FlowRate],
    /// By CPU id, the true speed.
    pub speeds: &'a [f64],
}

impl Interval<'_> {
    /// By bucket, the true packets a second.
    #[must_use]
    pub fn bucket_rates(&self) -> Vec<f64> {
        let mut rates = vec![0.0; self.table.len()];
        let log = self.table.len().ilog2();
        for flow in self.rates {
            rates[rxsteer_core::slot::upper_bits(flow.hash.get(), log) as usize] += flow.per_second;
        }
        rates
    }

    /// The busiest CPU's load under `table`, by true rates: packets a second divided by speed.
    #[must_use]
    pub fn busiest(&self, table: &[CpuId]) -> f64 {
        let mut loads = vec![0.0; self.speeds.len()];
        for (cpu, rate) in table.iter().zip(self.bucket_rates()) {
            loads[cpu.index()] += rate / self.speeds[cpu.index()];
        }
        loads.into_iter().fold(0.0, f64::max)
    }

    /// The busiest CPU's load if each *flow* could be placed separately, longest processing time first.
    #[must_use]
    pub fn ideal(&self) -> f64 {
        let mut rates: Vec<f64> = self.rates.iter().map(|flow| flow.per_second).collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        let cpus: Vec<CpuId> = self.loads.iter().map(|load| load.cpu).collect();
        let mut loads = vec![0.0; cpus.len()];
        for rate in rates {
            let after = |at: usize| loads[at] + rate / self.speeds[cpus[at].index()];
            let best = (0..cpus.len()).min_by(|a, b| after(*a).total_cmp(&after(*b)));
            if let Some(best) = best {
                loads[best] = after(best);
            }
        }
        loads.into_iter().fold(0.0, f64::max)
    }
}

/// A rule that moves buckets at the end of each interval.
pub trait Rebalancer: Debug {
    /// The buckets that move now.
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move>;
}

/// The moves of a rule, and their effect.
#[derive(Debug)]
pub struct Traced<R> {
    rule: R,
    /// For each interval: its end, the busiest CPU's load divided by the ideal one after the moves, and the number of
    /// moves.
    pub trace: Vec<(u64, f64, usize)>,
}

impl<R: Rebalancer> Traced<R> {
    /// Traces `rule`.
    pub fn new(rule: R) -> Traced<R> {
        Traced { rule, trace: Vec::new() }
    }
}

impl<R: Rebalancer> Rebalancer for Traced<R> {
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move> {
        let moves = self.rule.moves(interval);
        let mut table = interval.table.to_vec();
        moves.iter().for_each(|one| table[usize::from(one.bucket)] = one.to);
        let share = interval.busiest(&table) / interval.ideal();
        self.trace.push((interval.now_ns, share, moves.len()));
        moves
    }
}

impl Rebalancer for Box<dyn Rebalancer> {
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move> {
        (**self).moves(interval)
    }
}

/// The buckets that differ between two tables.
fn between(before: &[CpuId], after: &[CpuId]) -> Vec<Move> {
    let large = FlowHash::NONE;
    let moves = (0..).zip(before.iter().zip(after)).filter(|(_, (from, to))| from != to);
    let one = |(bucket, (from, to)): (u16, (&CpuId, &CpuId))| Move {
        bucket,
        from: *from,
        to: *to,
        from_percent: 0,
        to_percent: 0,
        large,
    };
    moves.map(one).collect()
}

/// The policy's own rule.
#[derive(Debug)]
pub struct Own(Balancer);

impl Own {
    /// With the settings of the policy, for CPUs with ids below `cpus`.
    #[must_use]
    pub fn new(balance: &Balance, cpus: usize) -> Own {
        Own(Balancer::new(balance, &Counted::new(usize::from(balance.buckets), cpus)))
    }
}

impl Rebalancer for Own {
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move> {
        let Interval { table, loads, counted, elapsed_ns, .. } = *interval;
        self.0.interval(table, loads, counted, elapsed_ns)
    }
}

/// No bucket moves: `rps`, with as many entries as there are buckets.
#[derive(Debug)]
pub struct Never;

impl Rebalancer for Never {
    fn moves(&mut self, _interval: &Interval<'_>) -> Vec<Move> {
        Vec::new()
    }
}

/// With full knowledge: longest processing time first over all buckets, by true rates and speeds, whenever these change.
#[derive(Debug, Default)]
pub struct Lpt {
    known: Vec<f64>,
}

impl Rebalancer for Lpt {
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move> {
        let rates = interval.bucket_rates();
        let mut known = rates.clone();
        known.extend(interval.speeds);
        if known == self.known {
            return Vec::new();
        }
        self.known = known;
        let mut order: Vec<usize> = (0..rates.len()).collect();
        order.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]));
        let cpus: Vec<CpuId> = interval.loads.iter().map(|load| load.cpu).collect();
        let mut loads = vec![0.0; cpus.len()];
        let mut table = interval.table.to_vec();
        for bucket in order {
            let after = |at: usize| loads[at] + rates[bucket] / interval.speeds[cpus[at].index()];
            let best = (0..cpus.len()).min_by(|a, b| after(*a).total_cmp(&after(*b)));
            if let Some(best) = best {
                loads[best] = after(best);
                table[bucket] = cpus[best];
            }
        }
        between(interval.table, &table)
    }
}

/// Loads by CPU and bucket, as shares of a CPU, from the counts of one interval.
#[derive(Debug, Default)]
struct Measured {
    counted: Vec<u32>,
    cpus: Vec<CpuId>,
    /// By CPU, its load.
    loads: Vec<f64>,
    /// By bucket, its load on its present CPU, and the index of that CPU.
    buckets: Vec<f64>,
    at: Vec<usize>,
}

impl Measured {
    fn take(&mut self, interval: &Interval<'_>) {
        let packets = |bucket: usize| {
            let before = self.counted.get(bucket).copied().unwrap_or(0);
            f64::from(interval.counted.packets[bucket].wrapping_sub(before))
        };
        let packets: Vec<f64> = (0..interval.table.len()).map(packets).collect();
        self.counted.clone_from(&interval.counted.packets);
        self.cpus = interval.loads.iter().map(|load| load.cpu).collect();
        let elapsed = interval.elapsed_ns.max(1) as f64;
        let busy = |load: &CpuLoad| (load.ours_ns + load.other_ns) as f64 / elapsed;
        self.loads = interval.loads.iter().map(busy).collect();
        let index = |cpu: &CpuId| self.cpus.iter().position(|other| other == cpu).unwrap_or(0);
        self.at = interval.table.iter().map(index).collect();
        let mut of_cpu = vec![0.0; self.cpus.len()];
        for (at, packets) in self.at.iter().zip(&packets) {
            of_cpu[*at] += packets;
        }
        let share = |(at, packets): (&usize, &f64)| {
            if of_cpu[*at] > 0.0 { self.loads[*at] * packets / of_cpu[*at] } else { 0.0 }
        };
        self.buckets = self.at.iter().zip(&packets).map(share).collect();
    }

    fn table(&self, at: &[usize]) -> Vec<CpuId> {
        at.iter().map(|at| self.cpus[*at]).collect()
    }
}

/// Moves buckets as long as a move lowers the busiest CPU's load: no threshold, no limit, no memory of earlier
/// intervals.
#[derive(Debug, Default)]
pub struct Naive(Measured);

impl Rebalancer for Naive {
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move> {
        let measured = &mut self.0;
        measured.take(interval);
        let mut loads = measured.loads.clone();
        let mut at = measured.at.clone();
        // Each move lowers the busiest CPU's load, so this ends; the bound is for rounding errors.
        for _ in 0..at.len() {
            let order = |a: &usize, b: &usize| loads[*a].total_cmp(&loads[*b]);
            let Some(busiest) = (0..loads.len()).max_by(order) else { break };
            let Some(least) = (0..loads.len()).min_by(order) else { break };
            let gap = loads[busiest] - loads[least];
            let fits = (0..at.len())
                .filter(|bucket| at[*bucket] == busiest && measured.buckets[*bucket] > 0.0)
                .filter(|bucket| measured.buckets[*bucket] < gap)
                .max_by(|a, b| measured.buckets[*a].total_cmp(&measured.buckets[*b]));
            let Some(bucket) = fits else { break };
            loads[busiest] -= measured.buckets[bucket];
            loads[least] += measured.buckets[bucket];
            at[bucket] = least;
        }
        between(interval.table, &measured.table(&at))
    }
}

/// The rule of "RSS++: load and state-aware receive side scaling" (Barbette et al., CoNEXT 2019, section 4),
/// reimplemented from the paper and its authors' program (tbarbette/fastclick, vendor/nicscheduler/methods, commits
/// 30cd637 and 59fe578). A CPU is over- or underloaded if it differs from the mean by more than half of the threshold.
/// The largest bucket of the most overloaded CPU goes to the most underloaded one that has room. The rule makes up to
/// ten runs with different allowances, and uses the one with the least squared imbalance.
#[derive(Debug, Default)]
pub struct RssPlusPlus(Measured);

impl RssPlusPlus {
    /// The program's default threshold, as a share of a CPU.
    const THRESHOLD: f64 = 0.02;
    const RUNS: u32 = 10;

    /// One run: the CPUs of the buckets, and the remaining squared imbalance.
    fn solve(&self, mean: f64, allowance: f64) -> (Vec<usize>, f64) {
        let measured = &self.0;
        let mut at = measured.at.clone();
        let mut loads = measured.loads.clone();
        let mut stacks: Vec<Vec<usize>> = vec![Vec::new(); loads.len()];
        let mut order: Vec<usize> = (0..at.len()).collect();
        order.sort_by(|a, b| measured.buckets[*a].total_cmp(&measured.buckets[*b]));
        order.into_iter().for_each(|bucket| stacks[at[bucket]].push(bucket));
        let limit = Self::THRESHOLD / 2.0;
        let under: Vec<usize> = (0..loads.len()).filter(|cpu| mean - loads[*cpu] > limit).collect();
        let mut over: Vec<usize> =
            (0..loads.len()).filter(|cpu| loads[*cpu] - mean > limit).collect();
        while let Some(place) =
            (0..over.len()).max_by(|a, b| loads[over[*a]].total_cmp(&loads[over[*b]]))
        {
            let from = over[place];
            let bucket = stacks[from].pop();
            let Some(bucket) = bucket.filter(|_| loads[from] - mean > limit) else {
                over.swap_remove(place);
                continue;
            };
            let load = measured.buckets[bucket];
            let room = |cpu: &&usize| load < mean - loads[**cpu] + allowance;
            let to = under.iter().filter(room).min_by(|a, b| loads[**a].total_cmp(&loads[**b]));
            if let Some(to) = to.filter(|_| load > 0.0) {
                loads[from] -= load;
                loads[*to] += load;
                at[bucket] = *to;
            }
        }
        let squares = loads.iter().map(|load| (load - mean) * (load - mean)).sum();
        (at, squares)
    }
}

impl Rebalancer for RssPlusPlus {
    fn moves(&mut self, interval: &Interval<'_>) -> Vec<Move> {
        self.0.take(interval);
        let mean = self.0.loads.iter().sum::<f64>() / self.0.loads.len().max(1) as f64;
        let mut best: Option<(Vec<usize>, f64)> = None;
        let mut allowance = -Self::THRESHOLD / 2.0;
        for run in 0..Self::RUNS {
            let solved = self.solve(mean, allowance);
            if best.as_ref().is_none_or(|best| solved.1 < best.1) {
                best = Some(solved);
            }
            allowance = Self::THRESHOLD / 2.0 * 1.5f64.powi(run as i32);
        }
        match best {
            Some((at, _)) => between(interval.table, &self.0.table(&at)),
            None => Vec::new(),
        }
    }
}
