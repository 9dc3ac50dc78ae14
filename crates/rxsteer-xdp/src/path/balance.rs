//! Moves buckets by measured load, under policies with `balance`.
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
//! A CPU's load is the run time of its ring's thread, in nanoseconds, plus all other time that `/proc/stat` counts there.
//! `/proc/stat` counts ticks, so its value is averaged over a second. If either cannot be read, buckets stay where they are.

use super::Path;
use crate::abi::{self, GENERATIONS, MAX_BUCKETS};
use crate::buckets::Buckets;
use crate::setup::Settings;
use rxsteer_core::balance::Counted;
use rxsteer_core::{Balance, Balancer, CpuId, CpuLoad, Move, OtherWork};
use std::time::{Duration, Instant, SystemTime};

/// The number of moves that are kept for the status.
const MAX_SHOWN: usize = 256;

/// What is counted between two intervals.
#[derive(Debug)]
pub(super) struct Counting {
    balance: Balance,
    balancer: Balancer,
    since: Instant,
    /// By CPU id: the run time of its rings' threads, and the packets that they took.
    rings: Vec<(u64, u64)>,
    /// The time of CPUs that the rings' threads did not use.
    other: OtherWork,
    started: Instant,
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
        let stat = (self.read_stat)();
        // If anything can't be read, counting begins again.
        let mut counting = self.counting.take();
        let (mut other, started) = match &mut counting {
            Some(counting) => (std::mem::take(&mut counting.other), counting.started),
            None => (OtherWork::default(), now),
        };
        let shares = rings.as_ref().zip(stat).and_then(|(rings, stat)| {
            let ran = rings.iter().map(|(ran_ns, _)| *ran_ns).collect();
            other.read((now - started).as_nanos() as u64, &stat, ran)
        });
        let (Some(rings), Some(shares)) = (rings, shares) else {
            self.buckets.problem = Some(
                "the load can't be measured, so no bucket moves: /proc/stat, or schedstat of the ring threads, can't \
                 be read (in a container: give it the host's PID namespace, or --security-opt systempaths=unconfined)"
                    .to_owned(),
            );
            return;
        };
        self.buckets.problem = None;
        let Some(mut counting) = counting else {
            let balancer = Balancer::new(&balance, &counted);
            self.counting = Some(Counting { balance, balancer, since: now, rings, other, started });
            return;
        };
        let elapsed = now - counting.since;
        counting.since = now;
        let loads: Vec<CpuLoad> = usable(&self.settings)
            .map(|cpu| {
                let at = |rings: &[(u64, u64)]| rings.get(cpu.index()).copied().unwrap_or_default();
                let ((ran_ns, packets), before) = (at(&rings), at(&counting.rings));
                let share = shares.get(cpu.index()).copied().unwrap_or(0.0);
                CpuLoad {
                    cpu,
                    ours_ns: ran_ns.saturating_sub(before.0),
                    packets: packets.saturating_sub(before.1),
                    other_ns: (share * elapsed.as_nanos() as f64) as u64,
                }
            })
            .collect();
        (counting.rings, counting.other) = (rings, other);
        let elapsed_ns = elapsed.as_nanos() as u64;
        let moves = counting.balancer.interval(&self.buckets.table, &loads, &counted, elapsed_ns);
        self.counting = Some(counting);
        // While a change is under way, the active rules may not be those of the settings.
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
        self.buckets.latest.truncate(MAX_SHOWN);
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

    /// By CPU id: the run time of its rings' threads, and the frames that they took from the rings. `None` if the time of
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
