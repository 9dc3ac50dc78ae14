//! The counters of the programs.

use crate::abi::{
    Array, BY_BOUND, BY_HASH, BY_LOCAL, BY_MATCH, BY_PASS, BY_RFS, BY_SLOT, DELAY_BUCKETS,
    GENERATIONS, steer_counters,
};
use crate::load::Sizes;
use crate::rings::Rings;
use rxsteer_core::counters::{LiveCounter, LiveCpuCounter};
use rxsteer_core::{CpuId, ThreadClass};

/// An attached interface: its number in counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// One CPU's counts of one interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxCounts(steer_counters);

impl RxCounts {
    /// The count with this name in the list of counters.
    #[must_use]
    pub fn get(&self, counter: LiveCounter) -> u64 {
        let counts = &self.0;
        match counter {
            LiveCounter::Received => self.received(),
            LiveCounter::Bytes => counts.bytes,
            LiveCounter::Local => counts.by_rule[BY_LOCAL],
            LiveCounter::Bound => counts.by_rule[BY_BOUND],
            LiveCounter::Hashed => counts.by_rule[BY_HASH],
            LiveCounter::InSlots => counts.by_rule[BY_SLOT],
            LiveCounter::Rfs => counts.by_rule[BY_RFS],
            LiveCounter::Matched => counts.by_rule[BY_MATCH] + counts.by_rule[BY_PASS],
            LiveCounter::NotIp => counts.not_ip,
            LiveCounter::Malformed => counts.malformed,
            LiveCounter::Passed => counts.passed,
            LiveCounter::Unnumbered => counts.unnumbered,
            LiveCounter::Redirected => {
                self.received().saturating_sub(counts.passed + counts.flow_limit_drops)
            }
            LiveCounter::PartialChecksums => counts.partial_checksums,
            LiveCounter::RedirectErrors => counts.redirect_errors,
            LiveCounter::FlowLimitDrops => counts.flow_limit_drops,
            LiveCounter::Moves => counts.moves,
            LiveCounter::Deferred => counts.deferred,
            LiveCounter::Batches => counts.batches,
            LiveCounter::Flows => counts.flows,
            LiveCounter::FlowsEnded => counts.flows_ended,
            LiveCounter::FlowPacketsRefused => counts.flow_packets_refused,
            LiveCounter::FlowPacketsEnded => counts.flow_packets_ended,
            LiveCounter::FlowPacketsCleared => counts.flow_packets_cleared,
            LiveCounter::FlowRecordsLost => counts.flow_records_lost,
            LiveCounter::FlowPacketsUnrecorded => counts.flow_packets_unrecorded,
        }
    }
}

impl RxCounts {
    pub(crate) fn of(counts: steer_counters) -> RxCounts {
        RxCounts(counts)
    }

    /// Whether any frame was received.
    pub(crate) fn is_used(&self) -> bool {
        self.received() != 0
    }

    /// Received frames: exactly one rule chose the target of each.
    fn received(&self) -> u64 {
        self.0.by_rule.iter().sum()
    }
}

/// What happened to the frames that were sent to one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    passed: u64,
    alloc_drops: u64,
    lost: u64,
    waiting: u64,
    lost_waiting: u64,
    lost_busy: u64,
    lost_burst: u64,
    thread_ran_ns: u64,
    thread_waited_ns: u64,
    longest_wait_ns: u64,
    per_second: u64,
    class: Option<ThreadClass>,
    delays: Delays,
}

/// By bucket, the sampled frames of this delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delays([u64; DELAY_BUCKETS]);

impl Default for Delays {
    fn default() -> Delays {
        Delays([0; DELAY_BUCKETS])
    }
}

impl CpuCounts {
    /// The counts of both rings of a CPU.
    pub(crate) fn of(rings: &Rings, cpu: u32) -> CpuCounts {
        let in_use = cpu * GENERATIONS + rings.generation(cpu_of(cpu));
        let none = CpuCounts { class: rings.threads.class_of(in_use), ..CpuCounts::default() };
        (cpu * GENERATIONS..(cpu + 1) * GENERATIONS).fold(none, |sum, ring| {
            let state = rings.ring_states.get(ring);
            let (lost, waiting) = rings.lost_and_waiting(ring);
            let waits = rings.waits(ring);
            let mut delays = sum.delays;
            let counted = rings.delays.get(ring).count;
            delays.0.iter_mut().zip(counted).for_each(|(sum, count)| *sum += count);
            CpuCounts {
                passed: sum.passed + state.passed,
                alloc_drops: sum.alloc_drops + state.alloc_drops,
                lost: sum.lost + lost,
                waiting: sum.waiting + waiting,
                lost_waiting: sum.lost_waiting + waits.lost_waiting,
                lost_busy: sum.lost_busy + waits.lost_busy,
                lost_burst: sum.lost_burst + waits.lost_burst,
                thread_ran_ns: sum.thread_ran_ns + waits.ran_ns,
                thread_waited_ns: sum.thread_waited_ns + waits.all_waited_ns(),
                longest_wait_ns: sum.longest_wait_ns.max(waits.longest_wait_ns),
                per_second: sum.per_second + waits.per_second,
                class: sum.class,
                delays,
            }
        })
    }

    /// The scheduling class of its ring's thread, whichever process set it; `None` when it cannot be read.
    #[must_use]
    pub fn thread_class(&self) -> Option<ThreadClass> {
        self.class
    }

    /// How many sampled frames (one of 256) had each delay, measured from the program at the interface to the program in
    /// the ring's thread. There are four buckets for each power of two of nanoseconds, as in `bpf/steer_delay.h`; the last
    /// one also has all longer delays.
    #[must_use]
    pub fn delays(&self) -> &[u64] {
        &self.delays.0
    }

    /// Whether any frame was ever sent to the CPU.
    pub(crate) fn is_used(&self) -> bool {
        self.passed + self.lost + self.waiting != 0
    }

    /// The count with this name in the list of counters.
    #[must_use]
    pub fn get(&self, counter: LiveCpuCounter) -> u64 {
        match counter {
            LiveCpuCounter::Delivered => self.passed.saturating_sub(self.alloc_drops),
            LiveCpuCounter::AllocDrops => self.alloc_drops,
            LiveCpuCounter::Lost => self.lost,
            LiveCpuCounter::Waiting => self.waiting,
            LiveCpuCounter::LostWaiting => self.lost_waiting,
            LiveCpuCounter::LostBusy => self.lost_busy,
            LiveCpuCounter::LostBurst => self.lost_burst,
            LiveCpuCounter::ThreadRan => self.thread_ran_ns,
            LiveCpuCounter::ThreadWaited => self.thread_waited_ns,
            LiveCpuCounter::LongestWait => self.longest_wait_ns,
            LiveCpuCounter::Rate => self.per_second,
        }
    }
}

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// For each receiving CPU and interface that received a frame.
    pub received: Vec<(CpuId, DeviceId, RxCounts)>,
    /// For each processing CPU that a frame was ever sent to.
    pub processed: Vec<(CpuId, CpuCounts)>,
}

impl Counters {
    /// What the maps hold now.
    pub(crate) fn of(counts: &Array<steer_counters>, rings: &Rings, sizes: Sizes) -> Counters {
        let (cpus, interfaces) = (sizes.cpus, sizes.interfaces);
        let rows = (0..cpus).flat_map(|cpu| (0..interfaces).map(move |device| (cpu, device)));
        let received = rows.filter_map(|(cpu, device)| {
            let counts = RxCounts::of(counts.get(cpu * interfaces + device));
            counts.is_used().then(|| (cpu_of(cpu), DeviceId(device as u16), counts))
        });
        let processed = (0..cpus).filter_map(|cpu| {
            let counts = CpuCounts::of(rings, cpu);
            counts.is_used().then(|| (cpu_of(cpu), counts))
        });
        Counters { received: received.collect(), processed: processed.collect() }
    }

    /// The sum over all CPUs and interfaces.
    #[must_use]
    pub fn total(&self, counter: LiveCounter) -> u64 {
        self.received.iter().map(|(_, _, counts)| counts.get(counter)).sum()
    }

    /// The sum over all processing CPUs.
    #[must_use]
    pub fn cpu_total(&self, counter: LiveCpuCounter) -> u64 {
        self.processed.iter().map(|(_, counts)| counts.get(counter)).sum()
    }

    /// Frames that a full ring refused.
    #[must_use]
    pub fn ring_full_drops(&self) -> u64 {
        self.cpu_total(LiveCpuCounter::Lost).saturating_sub(self.total(LiveCounter::RedirectErrors))
    }

    /// Dropped frames, for any reason. When no frame is under way, received = passed + delivered + dropped.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let lost = [LiveCpuCounter::Lost, LiveCpuCounter::AllocDrops];
        let lost: u64 = lost.into_iter().map(|counter| self.cpu_total(counter)).sum();
        lost + self.total(LiveCounter::FlowLimitDrops)
    }
}

pub(crate) fn cpu_of(id: u32) -> CpuId {
    u16::try_from(id).ok().and_then(CpuId::new).unwrap_or(CpuId::MAX)
}
