//! Packets from memory to 1, 2, 4, … workers: how the userspace path scales with CPUs.
//!
//! One thread on CPU 0 receives blocks of frames that are in memory, and steers them; the workers have the CPUs after
//! it. With as many workers as CPUs, one of them shares CPU 0 with that thread. There is no socket and no network, so
//! the result shows the limit of steering and hand-off. It requires no root.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale};
use crate::channels::{self, Channels, spend};
use crate::cpu_use::Snapshot;
use crate::cpus::{online_cpus, pin};
use crate::error::{LabError, Result};
use rxsteer_core::{CpuId, CpuSet, Policy, Slots};
use rxsteer_user::source::memory::MemorySource;
use rxsteer_user::source::synthetic::SyntheticSource;
use rxsteer_user::source::{Fill, Source};
use rxsteer_user::{OnFull, PacketList, PipelineConfig, Speed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Workers;

const METRICS: &[Metric] = &[
    Metric::more("packets done", "1/s"),
    Metric::more("of the workers' time", "%"),
    Metric::more("least of a worker", "% of the mean"),
];

const CHANNELS: &str = "a channel per worker";
const RPS: &str = "rxsteer rps";
const SPARSE: &str = "rxsteer sparse";
const BATCHES_OF_64: &str = "rxsteer rps, batches of 64";
const BATCHES_OF_256: &str = "rxsteer rps, batches of 256";
const TWO_RX_THREADS: &str = "rxsteer rps, 2 RX threads, batches of 256";

/// How rxsteer receives.
struct Receiving {
    policy: Policy,
    /// Packets that are decided on at once, if not the default.
    batch: Option<usize>,
    /// RX threads, each with an RX queue.
    threads: u16,
}

impl Receiving {
    /// For the method with this name; `None` for other methods.
    fn of(name: &str) -> Option<Receiving> {
        let rps = |batch, threads| Receiving { policy: Policy::Rps, batch, threads };
        Some(match name {
            RPS => rps(None, 1),
            BATCHES_OF_64 => rps(Some(64), 1),
            BATCHES_OF_256 => rps(Some(256), 1),
            TWO_RX_THREADS => rps(Some(256), 2),
            SPARSE => Receiving { policy: Policy::Sparse(Slots::default()), ..rps(None, 1) },
            _ => return None,
        })
    }
}

/// The number of flows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flows {
    Many,
    OneForEachWorker,
}

const MANY: u32 = 1000;
const SHORT: Duration = Duration::from_nanos(200);
const LONG: Duration = Duration::from_micros(1);

/// Name, workers, flows, and the work per packet.
#[rustfmt::skip]
const LOADS: [(&str, usize, Flows, Duration); 20] = [
    ("1 worker, 1,000 flows, 1 µs", 1, Flows::Many, LONG),
    ("2 workers, 1,000 flows, 1 µs", 2, Flows::Many, LONG),
    ("4 workers, 1,000 flows, 1 µs", 4, Flows::Many, LONG),
    ("8 workers, 1,000 flows, 1 µs", 8, Flows::Many, LONG),
    ("15 workers, 1,000 flows, 1 µs", 15, Flows::Many, LONG),
    ("16 workers, 1,000 flows, 1 µs", 16, Flows::Many, LONG),
    ("1 worker, 1 flow, 1 µs", 1, Flows::OneForEachWorker, LONG),
    ("2 workers, 2 flows, 1 µs", 2, Flows::OneForEachWorker, LONG),
    ("4 workers, 4 flows, 1 µs", 4, Flows::OneForEachWorker, LONG),
    ("8 workers, 8 flows, 1 µs", 8, Flows::OneForEachWorker, LONG),
    ("15 workers, 15 flows, 1 µs", 15, Flows::OneForEachWorker, LONG),
    ("16 workers, 16 flows, 1 µs", 16, Flows::OneForEachWorker, LONG),
    ("1 worker, 1,000 flows, 200 ns", 1, Flows::Many, SHORT),
    ("2 workers, 1,000 flows, 200 ns", 2, Flows::Many, SHORT),
    ("4 workers, 1,000 flows, 200 ns", 4, Flows::Many, SHORT),
    ("8 workers, 1,000 flows, 200 ns", 8, Flows::Many, SHORT),
    ("12 workers, 1,000 flows, 200 ns", 12, Flows::Many, SHORT),
    ("14 workers, 1,000 flows, 200 ns", 14, Flows::Many, SHORT),
    ("15 workers, 1,000 flows, 200 ns", 15, Flows::Many, SHORT),
    ("16 workers, 1,000 flows, 200 ns", 16, Flows::Many, SHORT),
];

/// Frames in memory; they are received repeatedly.
const FRAMES: u64 = 20_480;
/// The most blocks that they fill.
const BLOCKS: usize = 64;

/// A load on this machine.
struct Work {
    workers: usize,
    flows: u32,
    each: Duration,
    /// How often the frames in memory are received.
    rounds: u64,
}

impl Work {
    /// The CPUs of the workers: those after the receiving ones, and then the receiving ones too if there are not
    /// enough.
    fn cpus(&self, receiving: usize) -> Vec<usize> {
        let first = receiving.min(online_cpus().saturating_sub(self.workers));
        (first..first + self.workers).collect()
    }

    fn packets(&self) -> u64 {
        FRAMES * self.rounds
    }

    /// The frames that RX thread `thread` of `threads` receives.
    fn frames(&self, thread: u16, threads: u16) -> Result<MemorySource> {
        let text =
            format!("packets={FRAMES},flows={},size=64,ip=4,protocol=udp,seed=1", self.flows);
        let spec = text.parse().map_err(|why| LabError::Load { why: format!("{why}") })?;
        let mut made = SyntheticSource::new(spec, threads, (thread, threads));
        Ok(MemorySource::load(&mut made, BLOCKS, self.rounds))
    }

    /// Sends every packet to the channel of its worker.
    fn channels(&self, mut source: MemorySource, done: &[AtomicU64]) -> Result<Duration> {
        let started = Instant::now();
        std::thread::scope(|scope| {
            let (mut channels, receivers) = Channels::new(self.workers, true);
            for ((cpu, lists), done) in self.cpus(1).into_iter().zip(receivers).zip(done) {
                scope.spawn(move || channels::work(cpu, lists, self.each, done));
            }
            scope
                .spawn(move || {
                    pin(0)?;
                    loop {
                        let Some((block, fill)) = source.shared_block() else { break };
                        for frame in block.frames() {
                            channels.send(block.bytes_of(frame), frame.wire_len);
                        }
                        channels.flush();
                        if fill == Fill::End {
                            break;
                        }
                    }
                    Ok(())
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(started.elapsed())
    }

    fn rxsteer(
        &self,
        receiving: Receiving,
        mut sources: Vec<MemorySource>,
        done: &Arc<[AtomicU64]>,
    ) -> Result<Duration> {
        let cpus = self.cpus(sources.len());
        let ids = cpus.iter().filter_map(|cpu| CpuId::new(*cpu as u16));
        let Some(set) = CpuSet::new(ids) else {
            return Err(LabError::Load { why: "there is no CPU for a worker".to_owned() });
        };
        let mut config = PipelineConfig::new(receiving.policy, set);
        config.rx_cpus = (0..receiving.threads).filter_map(CpuId::new).collect();
        config.rx_queues = receiving.threads;
        config.batch = receiving.batch.unwrap_or(config.batch);
        // A channel waits, too. This compares the speed, not losses.
        config.on_full = OnFull::Wait;
        let handler = |cpu: CpuId| {
            let (done, each) = (done.clone(), self.each);
            let first = cpus[0];
            move |list: &PacketList<'_>| {
                spend(each, list.len() as u64);
                if let Some(done) = cpu.index().checked_sub(first).and_then(|index| done.get(index))
                {
                    done.fetch_add(list.len() as u64, Ordering::Relaxed);
                }
            }
        };
        let stop = AtomicBool::new(false);
        let started = Instant::now();
        rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, handler, |_, _| {}).map_err(
            |why| LabError::Unreadable { who: "rxsteer".to_owned(), why: why.to_string() },
        )?;
        Ok(started.elapsed())
    }
}

impl Experiment for Workers {
    fn description(&self) -> Description {
        Description {
            name: "workers",
            about: "Packets from memory to 1 to 16 workers that work 200 ns or 1 µs for each: rxsteer's userspace path, and a channel per worker",
            source: "none; a scaling curve of this library",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        None
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let fits = LOADS.iter().filter(|(_, workers, ..)| *workers <= online_cpus());
        let loads = fits.map(|(name, workers, flows, _)| {
            Load::new(name, if *flows == Flows::Many { MANY } else { *workers as u32 })
        });
        loads.take(scale.pick(2, LOADS.len())).collect()
    }

    fn methods(&self, _scale: Scale) -> Vec<Method> {
        let own = [CHANNELS, RPS, SPARSE, BATCHES_OF_64, BATCHES_OF_256, TWO_RX_THREADS];
        own.map(Method::Own).into_iter().chain([Method::OwnAgain(CHANNELS)]).collect()
    }

    fn excluded(&self, method: &Method, load: &Load) -> Option<&'static str> {
        let Method::Own(name) = *method else { return None };
        let threads = usize::from(Receiving::of(name)?.threads);
        let (_, workers, ..) = LOADS.iter().find(|(name, ..)| *name == load.name)?;
        (threads > 1 && workers + threads > online_cpus())
            .then_some("there is no CPU of its own for each RX thread and worker")
    }

    fn measure(&self, method: &Method, load: &Load, scale: Scale) -> Result<Sample> {
        let found = LOADS.iter().find(|(name, ..)| *name == load.name);
        let Some((_, workers, _, each)) = found else {
            return Err(LabError::Load { why: format!("there is no load {}", load.name) });
        };
        // The workers need at least this long.
        let at_least = scale.pick(Duration::from_millis(20), Duration::from_millis(200));
        let packets = at_least.as_nanos() / each.as_nanos() * *workers as u128;
        let work = Work {
            workers: *workers,
            flows: load.flows,
            each: *each,
            rounds: (packets as u64 / FRAMES).max(1),
        };
        let done: Arc<[AtomicU64]> = (0..*workers).map(|_| AtomicU64::new(0)).collect();
        let receiving = match *method {
            Method::Own(name) => Receiving::of(name),
            _ => None,
        };
        let threads = receiving.as_ref().map_or(1, |receiving| receiving.threads);
        let sources = (0..threads).map(|thread| work.frames(thread, threads));
        let mut sources = sources.collect::<Result<Vec<_>>>()?;
        let begin = Snapshot::now()?;
        let took = match receiving {
            Some(receiving) => work.rxsteer(receiving, sources, &done)?,
            None => work.channels(sources.remove(0), &done)?,
        };
        let cpus = begin.until(&Snapshot::now()?);
        let by_worker: Vec<u64> = done.iter().map(|done| done.load(Ordering::Relaxed)).collect();
        let all: u64 = by_worker.iter().sum();
        LabError::check(all == work.packets(), || {
            format!("{all} of {} packets were done", work.packets())
        })?;
        let mean = all as f64 / *workers as f64;
        let least = by_worker.iter().min().copied().unwrap_or(0) as f64;
        let ideal = mean * each.as_secs_f64();
        Ok(Sample {
            values: vec![
                ("packets done", all as f64 / took.as_secs_f64()),
                ("of the workers' time", 100.0 * ideal / took.as_secs_f64()),
                ("least of a worker", 100.0 * least / mean),
            ],
            checks: vec![format!("{all} packets of {} flows were done, each once", load.flows)],
            cpus,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rx_threads_share_the_frames() {
        let work = Work { workers: 2, flows: 100, each: Duration::ZERO, rounds: 3 };
        for name in [RPS, SPARSE, BATCHES_OF_64, BATCHES_OF_256, TWO_RX_THREADS] {
            let receiving = Receiving::of(name).unwrap();
            let threads = receiving.threads;
            let sources = (0..threads).map(|thread| work.frames(thread, threads).unwrap());
            let done: Arc<[AtomicU64]> = (0..2).map(|_| AtomicU64::new(0)).collect();
            work.rxsteer(receiving, sources.collect(), &done).unwrap();
            let all: u64 = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
            assert_eq!(all, work.packets(), "{name}");
        }
    }
}
