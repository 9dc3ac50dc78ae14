//! Moves of buckets during a run, under policies with `balance`.
//!
//! ```text
//!   RX thread, between batches:  packets' time ≥ next?  ──► counts of all threads ──► Balancer ──► a plan with moves
//!                                                                                                 (change.rs)
//! ```
//!
//! Intervals are measured in the packets' receive times. So a replay at full speed balances as often as the recorded
//! traffic would have, and with one RX thread every replay balances in the same way. By default the load of a CPU is the
//! number of packets sent there. The time of handlers differs from run to run, so it counts only if the configuration
//! asks for it ([`measure_load`](crate::PipelineConfig::measure_load)). Then a thread also reads the other load of the
//! CPUs.

use crate::change::Switch;
use crate::worker_group::WorkerProgress;
use rxsteer_core::{Balance, Balancer, CpuId, CpuLoad, Move, OtherWork, Plan};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The number of moves that are kept for reports. Later ones are only counted.
pub const MAX_MOVES_KEPT: usize = 4096;

/// How often the other load of the CPUs is read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

/// If a thread's packets go back in time by more than this, the clock was set back.
const SET_BACK_NS: u64 = 1_000_000_000;

/// A bucket that moved by load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedByLoad {
    /// When it moved, in nanoseconds after the first packet's receive time.
    pub after_ns: u64,
    /// The bucket, both CPUs, and the reason.
    pub bucket: Move,
}

/// All moves of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovesByLoad {
    /// The number of intervals that ended.
    pub intervals: u64,
    /// The number of buckets that moved.
    pub moved: u64,
    /// The first of these moves, up to [`MAX_MOVES_KEPT`].
    pub first: Vec<MovedByLoad>,
}

/// What the RX threads of a pipeline share to move buckets.
#[derive(Debug)]
pub(crate) struct Rebalancing {
    /// When the present interval ends.
    next_ns: AtomicU64,
    /// The workers, if their time counts, and the share of time that their CPU spends on other work, in millionths.
    workers: Vec<(Arc<WorkerProgress>, AtomicU64)>,
    /// Whether an interval ended, so that loads are needed.
    is_used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begin_ns: Option<u64>,
    last_ns: u64,
    balancer: Option<(Balance, Balancer)>,
    /// For each worker, its work until the last interval.
    worked: Vec<(u64, u64)>,
    moves: MovesByLoad,
}

impl Rebalancing {
    /// Uses the time of `workers`; if there are none, the number of packets.
    pub(crate) fn new(workers: Vec<Arc<WorkerProgress>>) -> Arc<Rebalancing> {
        let rebalancing = Arc::new(Rebalancing::without_thread(workers));
        if !rebalancing.workers.is_empty() {
            let shared = Arc::downgrade(&rebalancing);
            // Without this thread only the time of workers counts.
            let _ = std::thread::Builder::new()
                .name("rxsteer-load".to_owned())
                .spawn(move || sample_other_work(&shared));
        }
        rebalancing
    }

    fn without_thread(workers: Vec<Arc<WorkerProgress>>) -> Rebalancing {
        Rebalancing {
            next_ns: AtomicU64::new(0),
            workers: workers.into_iter().map(|worker| (worker, AtomicU64::new(0))).collect(),
            is_used: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Ends the interval if a batch whose first packet was received at `time_ns` comes after it, and publishes moves
    /// through `switch`. `last_ns` is the time of this thread's previous batch.
    #[inline]
    pub(crate) fn advance_to(
        &self,
        time_ns: u64,
        last_ns: &mut u64,
        balance: &Balance,
        switch: &Switch,
    ) {
        let is_set_back = time_ns.saturating_add(SET_BACK_NS) < *last_ns;
        *last_ns = time_ns;
        // ORDER: Relaxed; a thread with an old value reads the new one under the lock.
        if time_ns >= self.next_ns.load(Ordering::Relaxed) || is_set_back {
            self.end_interval(time_ns, is_set_back, balance, switch);
        }
    }

    #[cold]
    fn end_interval(&self, time_ns: u64, is_set_back: bool, balance: &Balance, switch: &Switch) {
        // Another thread already does this, so this one goes on receiving.
        let Ok(mut state) = self.state.try_lock() else { return };
        if time_ns < self.next_ns.load(Ordering::Relaxed) && !is_set_back {
            return;
        }
        let interval_ns = u64::from(balance.interval_ms) * 1_000_000;
        self.next_ns.store(time_ns.saturating_add(interval_ns), Ordering::Relaxed);
        let begin_ns = *state.begin_ns.get_or_insert(time_ns);
        let elapsed_ns = time_ns.saturating_sub(state.last_ns);
        state.last_ns = time_ns;
        let State { balancer, worked, moves, .. } = &mut *state;
        // ORDER: Relaxed; a request without data.
        self.is_used.store(true, Ordering::Relaxed);
        let now: Vec<(u64, u64)> = self.workers.iter().map(|(worker, _)| worker.work()).collect();
        let before = std::mem::replace(worked, now);
        let load = |cpu| {
            let at = self.workers.iter().position(|(worker, _)| worker.cpu == cpu);
            // The first interval has no earlier counts.
            let known = at.and_then(|at| Some((before.get(at)?, worked[at], &self.workers[at].1)));
            let Some((before, now, other)) = known else { return CpuLoad::unmeasured(cpu) };
            // ORDER: Relaxed; the number carries all of the information.
            let other_ns = elapsed_ns / 1000 * other.load(Ordering::Relaxed) / 1000;
            CpuLoad { cpu, ours_ns: now.0 - before.0, packets: now.1 - before.1, other_ns }
        };
        switch.rebalance(|plan| {
            let Some(made) = decide(plan, balancer, load, elapsed_ns) else { return Vec::new() };
            moves.intervals += 1;
            moves.moved += made.len() as u64;
            let room = MAX_MOVES_KEPT - moves.first.len();
            let after_ns = time_ns.saturating_sub(begin_ns);
            let kept = made.iter().take(room);
            moves.first.extend(kept.map(|bucket| MovedByLoad { after_ns, bucket: *bucket }));
            made
        });
    }

    pub(crate) fn moves(&self) -> MovesByLoad {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).moves.clone()
    }
}

/// Reads the other load of CPUs with workers until the pipeline ends. If the kernel does not report it, it counts as
/// none.
fn sample_other_work(shared: &Weak<Rebalancing>) {
    let started = Instant::now();
    let mut other = OtherWork::default();
    loop {
        std::thread::sleep(SAMPLE_INTERVAL);
        let Some(shared) = shared.upgrade() else { return };
        if !shared.is_used.load(Ordering::Relaxed) {
            continue;
        }
        let mut ours_ns = Vec::new();
        for (worker, _) in &shared.workers {
            ours_ns.resize(ours_ns.len().max(worker.cpu.index() + 1), 0);
            ours_ns[worker.cpu.index()] = worker.work().0;
        }
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let now_ns = started.elapsed().as_nanos() as u64;
        let shares = other.read(now_ns, &stat, ours_ns).unwrap_or_default();
        for (worker, millionths) in &shared.workers {
            let share = shares.get(worker.cpu.index()).copied().unwrap_or(0.0);
            millionths.store((share * 1e6) as u64, Ordering::Relaxed);
        }
    }
}

/// The moves at the end of an interval. `None` if an interval only begins: at the start, and after a change of the
/// policy's settings.
fn decide(
    plan: &Plan,
    balancer: &mut Option<(Balance, Balancer)>,
    load: impl Fn(CpuId) -> CpuLoad,
    elapsed_ns: u64,
) -> Option<Vec<Move>> {
    let (Some(balance), Some(counted)) = (plan.config().policy.balance(), plan.bucket_counts())
    else {
        *balancer = None;
        return None;
    };
    match balancer {
        Some((settings, balancer)) if settings == balance => {
            let cpus: Vec<CpuLoad> = plan.bucket_cpus().into_iter().map(load).collect();
            Some(balancer.interval(plan.bucket_table(), &cpus, &counted, elapsed_ns))
        }
        _ => {
            *balancer = Some((*balance, Balancer::new(balance, &counted)));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_group::WorkerGroup;
    use rxsteer_core::{Arrival, FlowHash, Idle, SteerConfig, Steering, Verdict};

    const MS: u64 = 1_000_000;

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    fn workers() -> Vec<Arc<WorkerProgress>> {
        let group = WorkerGroup::new(&"0-1".parse().unwrap(), 1, 1);
        group.slots.iter().map(|slot| slot.progress.clone()).collect()
    }

    /// Steers 64 packets in each of `ms` milliseconds to CPUs 0 and 1, and calls `process` with the packets that each CPU
    /// gets. `spread` is the distance of the packets' hashes. Returns CPU 1's packets by millisecond.
    fn steer(
        rebalancing: &Rebalancing,
        ms: u64,
        spread: u32,
        process: impl Fn([u64; 2]),
    ) -> Vec<u64> {
        let policy = "rps+balance:buckets=256,interval=10ms".parse().unwrap();
        let config = SteerConfig::new(policy, "0-1".parse().unwrap(), vec![cpu(0)]);
        let switch = Switch::new(Plan::new(&config, 1).unwrap(), 1, 1);
        let mut seen = switch.see();
        let mut steering = Steering::of_plan(seen.value().plan.clone(), [0]);
        let (mut counts, mut last_ns) = (Vec::new(), 0);
        for time_ns in (0..ms).map(|ms| ms * MS) {
            let balance = *seen.value().plan.config().policy.balance().unwrap();
            rebalancing.advance_to(time_ns, &mut last_ns, &balance, &switch);
            if switch.has_changed(&seen) {
                seen = switch.see();
                steering.change(&seen.value().plan, &mut Idle::default());
            }
            let mut verdicts = [Verdict::default(); 64];
            let arrivals: Vec<Arrival> = (0..64)
                .map(|n| Arrival {
                    time_ns,
                    hash: FlowHash::from_raw((n * spread) | 1),
                    ..Arrival::default()
                })
                .collect();
            steering.decide(&arrivals, &mut Idle::default(), &mut verdicts);
            let there = verdicts.iter().filter(|verdict| verdict.cpu() == cpu(1)).count() as u64;
            process([64 - there, there]);
            counts.push(there);
        }
        counts
    }

    #[test]
    fn buckets_move_at_the_end_of_intervals() {
        let rebalancing = Rebalancing::without_thread(Vec::new());
        // All flows are of the lower half of the hashes: CPU 0.
        let counts = steer(&rebalancing, 60, 1 << 25, |_| {});
        assert_eq!(counts[..10], [0; 10], "it counts first");
        assert!(counts[30..].iter().all(|count| (30..=34).contains(count)), "{counts:?}");
        let moves = rebalancing.moves();
        assert_eq!((moves.moved as usize, moves.intervals), (moves.first.len(), 5));
        let first = moves.first[0];
        assert_eq!((first.after_ns, first.bucket.from, first.bucket.to), (10 * MS, cpu(0), cpu(1)));
        assert_eq!((first.bucket.from_percent, first.bucket.to_percent), (200, 0));
    }

    #[test]
    fn cpu_whose_handlers_are_slow_gets_fewer_packets_where_time_counts() {
        let workers = workers();
        let rebalancing = Rebalancing::without_thread(workers.clone());
        let counts = steer(&rebalancing, 200, 1 << 26, |packets| {
            for ((worker, packets), each_ns) in workers.iter().zip(packets).zip([2_000, 25_000]) {
                worker.packets.add(packets);
                worker.busy_ns.add(packets * each_ns);
            }
        });
        assert_eq!(counts[..10], [32; 10], "it counts first");
        // 59.3 packets × 2 µs = 4.7 × 25 µs.
        assert!(counts[150..].iter().all(|count| (2..=8).contains(count)), "{counts:?}");
    }

    #[test]
    fn cpu_that_does_other_work_gets_fewer_packets_where_time_counts() {
        let workers = workers();
        let rebalancing = Rebalancing::without_thread(workers.clone());
        let counts = steer(&rebalancing, 200, 1 << 26, |packets| {
            rebalancing.workers[1].1.store(500_000, Ordering::Relaxed);
            for (worker, packets) in workers.iter().zip(packets) {
                worker.packets.add(packets);
                worker.busy_ns.add(packets * 12_000);
            }
        });
        // 52.8 packets × 12 µs = 11.2 × 12 µs + half of a millisecond.
        assert!(counts[150..].iter().all(|count| (6..=16).contains(count)), "{counts:?}");
    }
}
