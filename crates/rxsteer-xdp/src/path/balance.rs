//! Moves of buckets by measured load, under policies with `balance`.
//!
//! ```text
//!   tick:  counts of buckets ─┐
//!          time of ring threads ──► Balancer (rxsteer-core) ──► one store for each bucket that moves
//!          /proc/stat ────────┘
//! ```
//!
//! A bucket's CPU is an entry of the active configuration, and the programs read it for each packet. It can change at
//! any time, since every decision passes the order guard, and every online CPU has a ring.
//!
//! The time of a CPU is that of its ring's thread, in nanoseconds, and everything else that `/proc/stat` counts there.
//! The latter counts ticks, so it is taken over a second. If either cannot be read, buckets stay where they are.

use super::Path;
use crate::abi::{self, GENERATIONS, MAX_BUCKETS};
use crate::buckets::Buckets;
use crate::setup::Settings;
use rxsteer_core::balance::Counted;
use rxsteer_core::{Balance, Balancer, CpuId, CpuLoad, Move};
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// Moves that are kept.
const MOST_SHOWN: usize = 256;

/// The time over which `/proc/stat` is read.
const STAT_OVER: Duration = Duration::from_secs(1);

/// A tick of `/proc/stat` (USER_HZ).
const TICK_NS: u64 = 10_000_000;

/// What is counted between two intervals.
#[derive(Debug)]
pub(super) struct Counting {
    balance: Balance,
    balancer: Balancer,
    since: Instant,
    /// By CPU id: the time of its ring's threads, and the packets that they took.
    rings: Vec<(u64, u64)>,
    /// Readings of `/proc/stat` and of the threads' time, oldest first.
    readings: VecDeque<(Instant, Vec<u64>, Vec<u64>)>,
}

#[cfg(test)]
impl Counting {
    /// Lets the interval be over.
    pub(super) fn end_interval(&mut self) {
        self.since -= Duration::from_secs(20);
    }
}

impl Path {
    /// The buckets, and what moved by load.
    #[must_use]
    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// Sets the table for settings that are about to become active.
    pub(super) fn prepare_buckets(&mut self, settings: &Settings) {
        let Some(balance) = settings.policy.balance() else { return };
        let cpus: Vec<CpuId> = usable(settings).collect();
        if !cpus.is_empty() {
            let old = (!self.buckets.table.is_empty()).then_some(&*self.buckets.table);
            self.buckets.table = balance.next_table(old, &cpus).into();
        }
    }

    /// Ends an interval if it is over, and moves buckets.
    pub(super) fn balance(&mut self) {
        let Some(balance) = self.settings.policy.balance().copied() else {
            self.counting = None;
            self.buckets.problem = None;
            return;
        };
        let interval = Duration::from_millis(balance.interval_ms.into());
        let now = Instant::now();
        match &self.counting {
            Some(counting) if counting.balance == balance => {
                if now - counting.since < interval {
                    return;
                }
            }
            _ => self.counting = None,
        }
        let counted = self.counted(&balance);
        let rings = self.ring_times();
        let stat = (self.read_stat)().and_then(|stat| busy_in(&stat));
        let (Some(rings), Some(stat)) = (rings, stat) else {
            self.counting = None;
            self.buckets.problem = Some(
                "the load can't be measured, so no bucket moves: /proc/stat, or schedstat of the ring threads, can't \
                 be read (in a container: give it the host's PID namespace, or --security-opt systempaths=unconfined)"
                    .to_owned(),
            );
            return;
        };
        self.buckets.problem = None;
        let ran: Vec<u64> = rings.iter().map(|(ran_ns, _)| *ran_ns).collect();
        let Some(counting) = &mut self.counting else {
            let readings = VecDeque::from([(now, stat, ran)]);
            let balancer = Balancer::new(&balance, &counted);
            self.counting = Some(Counting { balance, balancer, since: now, rings, readings });
            return;
        };
        let elapsed = now - counting.since;
        counting.since = now;
        let other = other_share(&counting.readings, (now, &stat, &ran));
        let loads: Vec<CpuLoad> = usable(&self.settings)
            .map(|cpu| {
                let at = |rings: &[(u64, u64)]| rings.get(cpu.index()).copied().unwrap_or_default();
                let ((ran_ns, packets), before) = (at(&rings), at(&counting.rings));
                let share = other.get(cpu.index()).copied().unwrap_or(0.0);
                CpuLoad {
                    cpu,
                    ours_ns: ran_ns.saturating_sub(before.0),
                    packets: packets.saturating_sub(before.1),
                    other_ns: (share * elapsed.as_nanos() as f64) as u64,
                }
            })
            .collect();
        counting.rings = rings;
        counting.readings.push_back((now, stat, ran));
        while counting.readings.get(1).is_some_and(|(at, ..)| now - *at >= STAT_OVER) {
            counting.readings.pop_front();
        }
        let elapsed_ns = elapsed.as_nanos() as u64;
        let moves = counting.balancer.interval(&self.buckets.table, &loads, &counted, elapsed_ns);
        // While a change is under way, the active rules may be others.
        if self.requested.is_none() && self.change.is_none() && !self.is_draining {
            self.move_buckets(&moves);
        }
    }

    /// Moves buckets at once.
    pub(super) fn move_buckets(&mut self, moves: &[Move]) {
        let first = self.settings.first_bucket();
        let bss = match self.loaded.skel.maps.bss_data.as_deref_mut() {
            Some(bss) => bss,
            None => unreachable!("the programs have variables"),
        };
        let config = &mut bss.steer_configs[(bss.steer_active & 1) as usize];
        for one in moves {
            let bucket = usize::from(one.bucket);
            self.buckets.table[bucket] = one.to;
            abi::set_bucket(&mut config.map[first + bucket], one.to);
            self.buckets.latest.push_front((SystemTime::now(), *one));
        }
        self.buckets.latest.truncate(MOST_SHOWN);
        self.buckets.moved += moves.len() as u64;
    }

    /// What all RX CPUs counted.
    fn counted(&self, balance: &Balance) -> Counted {
        let (cpus, buckets) = (self.loaded.sizes.cpus, u32::from(balance.buckets));
        let mut counted = Counted::new(buckets as usize, cpus as usize);
        for rx_cpu in 0..cpus {
            let row = rx_cpu * (MAX_BUCKETS + cpus);
            let places = (0..buckets).chain(MAX_BUCKETS..MAX_BUCKETS + cpus);
            for (at, place) in places.enumerate() {
                let counts = self.loaded.buckets.get(row + place);
                if counts.packets != 0 {
                    counted.add(at, counts.packets, counts.flow, counts.votes);
                }
            }
        }
        counted
    }

    /// By CPU id: the time that the threads of its rings ran, and the frames that came out of them. `None` if the time of
    /// a thread that got frames cannot be read.
    fn ring_times(&self) -> Option<Vec<(u64, u64)>> {
        let rings = self.loaded.rings.lock();
        let all = rings.all();
        let mut times = vec![(0, 0); self.loaded.sizes.cpus as usize];
        for ring in all {
            let passed = rings.ring_states.get(ring).passed;
            let ran_ns = rings.threads.scheduled(ring).map(|scheduled| scheduled.ran_ns);
            let time = &mut times[(ring / GENERATIONS) as usize];
            time.0 += match (ran_ns, passed) {
                (Some(ran_ns), _) => ran_ns,
                (None, 0) => 0,
                (None, _) => return None,
            };
            time.1 += passed;
        }
        Some(times)
    }
}

/// The CPUs that buckets can be on.
fn usable(settings: &Settings) -> impl Iterator<Item = CpuId> + '_ {
    settings.cpus.iter().filter(|cpu| settings.is_online(*cpu))
}

/// The text of `/proc/stat`.
pub(super) fn read_stat() -> Option<String> {
    std::fs::read_to_string("/proc/stat").ok()
}

/// By CPU id: nanoseconds in which the CPU was not idle, by the text of `/proc/stat`: lines
/// `cpuN user nice system idle iowait irq softirq steal guest …` in ticks (proc_stat(5)); guest time is also in user time.
fn busy_in(stat: &str) -> Option<Vec<u64>> {
    let mut busy = Vec::new();
    for line in stat.lines() {
        let Some((id, ticks)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let Ok(id) = id.parse::<usize>() else { continue };
        let ticks: Vec<u64> =
            ticks.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
            return None;
        };
        if busy.len() <= id.min(usize::from(CpuId::MAX.get())) {
            busy.resize(id.min(usize::from(CpuId::MAX.get())) + 1, 0);
        }
        busy[id] = (user + nice + system + irq + softirq + steal) * TICK_NS;
    }
    (!busy.is_empty()).then_some(busy)
}

/// By CPU id: the share of the time in which it did something else than run its ring's threads, over the readings and
/// the present one.
fn other_share(
    readings: &VecDeque<(Instant, Vec<u64>, Vec<u64>)>,
    (now, stat, ran): (Instant, &[u64], &[u64]),
) -> Vec<f64> {
    let Some((since, stat_then, ran_then)) = readings.front() else { return Vec::new() };
    let over_ns = (now - *since).as_nanos().max(1) as f64;
    let grown = |now: &[u64], then: &[u64], cpu: usize| {
        let at = |values: &[u64]| values.get(cpu).copied().unwrap_or(0);
        at(now).saturating_sub(at(then))
    };
    (0..stat.len())
        .map(|cpu| {
            let other = grown(stat, stat_then, cpu).saturating_sub(grown(ran, ran_then, cpu));
            (other as f64 / over_ns).min(1.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_is_read_by_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 200 4 5 6 7 8\ncpu3 10 0 0 5 5 0 0 0 0 0\nintr 1\n";
        assert_eq!(busy_in(stat), Some(vec![21 * TICK_NS, 0, 0, 10 * TICK_NS]));
        assert_eq!(busy_in("cpu0 1 2\n"), None);
        assert_eq!(busy_in(""), None);
        let now = read_stat().and_then(|stat| busy_in(&stat));
        assert!(now.is_some_and(|busy| busy.iter().any(|ns| *ns > 0)));
    }

    #[test]
    fn other_time_is_what_the_threads_did_not_use() {
        let second = Duration::from_secs(1);
        let now = Instant::now() + second;
        let readings = VecDeque::from([(now - second, vec![0, 500_000_000], vec![0, 0])]);
        let share = other_share(&readings, (now, &[800_000_000, 500_000_000], &[300_000_000, 9]));
        assert_eq!(share, [0.5, 0.0]);
    }
}
