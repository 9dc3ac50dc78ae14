//! Queries of other threads while the owner of the path continues: counters and flows. `explain.rs` finds where a
//! flow is, and why.
//!
//! A [`View`] reads the maps through its own mappings, and has the state that the owner published last ([`Known`]).
//! The only data that both threads change is the account of lost frames (`SharedRings`).

use crate::abi::{
    self, Array, Shared, Variable, steer_candidates, steer_counters, steer_ended,
    steer_hash_active, steer_line, steer_rule_hits, steer_shadow, steer_sparse_slot,
};
use crate::buckets::Buckets;
use crate::flows::{EndedFlows, EndedLine, FlowStatistics, Lines, LiveFlow};
use crate::grace::Grace;
use crate::latest::Latest;
use crate::live::{Counters, DeviceId, cpu_of};
use crate::load::{LoadError, Loaded, Sizes};
use crate::rings::SharedRings;
use crate::rules::hits_of;
use crate::setup::Settings;
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rxsteer_core::CpuId;
use rxsteer_core::matching::PacketRule;
use rxsteer_packet::SymmetricHash;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;

/// The state that the owner of a path last published to its views.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) settings: Settings,
    /// Whether frames are unguarded.
    pub(crate) is_unguarded: bool,
    /// The attached interfaces.
    pub(crate) devices: Vec<KnownDevice>,
    /// Where buckets are, and what moved.
    pub(crate) buckets: Buckets,
    /// The rules before the policy, each with its counter.
    pub(crate) rules: Vec<(PacketRule, u16)>,
}

/// An attached interface with its flow tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownDevice {
    pub(crate) id: DeviceId,
    pub(crate) ifindex: u32,
    pub(crate) name: String,
    pub(crate) first_table: u32,
    pub(crate) queues: u32,
}

impl Known {
    pub(crate) fn of(settings: &Settings) -> Known {
        Known {
            settings: settings.clone(),
            is_unguarded: false,
            devices: Vec::new(),
            buckets: Buckets::default(),
            rules: Vec::new(),
        }
    }
}

/// A path, as another thread sees it.
pub struct View {
    pub(crate) known: Latest<Known>,
    pub(crate) rings: SharedRings,
    pub(crate) lines: Lines,
    counts: Array<steer_counters>,
    hits: Array<steer_rule_hits>,
    shadows: Array<steer_shadow>,
    pub(crate) socks: Array<steer_line>,
    pub(crate) sparse: Array<steer_sparse_slot>,
    pub(crate) hash_actives: Array<steer_hash_active>,
    pub(crate) candidates: Array<steer_candidates>,
    pub(crate) hash: SymmetricHash,
    pub(crate) sizes: Sizes,
    pub(crate) hz: u32,
    clock: OwnedFd,
    /// The upper half of the jiffies that `clock` last read.
    upper: Variable,
    grace: Grace,
    pub(crate) ended: EndedFlows,
    /// The ring buffer with the final counts of flows.
    records: RingBuffer<'static>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("known", &self.known.get()).finish_non_exhaustive()
    }
}

impl View {
    pub(crate) fn new(
        loaded: &Loaded,
        grace: Grace,
        known: Latest<Known>,
        ended: EndedFlows,
    ) -> Result<View, LoadError> {
        let maps = &loaded.skel.maps;
        let mut records = RingBufferBuilder::new();
        let taken = ended.clone();
        records.add(&maps.steer_ended, move |bytes| {
            if let Ok(record) = bytemuck::try_pod_read_unaligned::<steer_ended>(bytes) {
                taken.push(EndedLine::from(record));
            }
            0
        })?;
        Ok(View {
            known,
            rings: loaded.rings.clone(),
            lines: Lines::of(&loaded.skel)?,
            counts: Array::new(&maps.steer_counts)?,
            hits: Array::new(&maps.steer_hits)?,
            shadows: Array::new(&maps.steer_shadows)?,
            socks: Array::new(&maps.steer_socks)?,
            sparse: Array::new(&maps.steer_sparse)?,
            hash_actives: Array::new(&maps.steer_hash_actives)?,
            candidates: Array::new(&maps.steer_candidate_sets)?,
            upper: Variable::new(&maps.bss, offset_of!(Shared, steer_jiffies_now) + 4)?,
            hash: loaded.hash.clone(),
            sizes: loaded.sizes,
            hz: loaded.hz,
            clock: loaded.skel.progs.steer_clock.as_fd().try_clone_to_owned()?,
            grace,
            ended,
            records: records.build()?,
        })
    }

    /// All present counts. This waits for a grace period (some milliseconds) to find lost frames. If frames are under way,
    /// it waits for a second one, to find whether the last frames were lost.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.rings.lock().check_losses();
        // The lock is not held during the wait, so the owner of the path can continue.
        if self.grace.wait().is_ok() {
            let short = {
                let rings = self.rings.lock();
                rings.check_losses();
                rings.short()
            };
            // If the wait fails, the frames count as waiting.
            if !short.is_empty() && self.grace.wait().is_ok() {
                self.rings.lock().find_lost(short);
            }
        }
        Counters::of(&self.counts, &self.rings.lock(), self.sizes)
    }

    /// Where buckets are, and which moved by load, under policies with `balance`.
    #[must_use]
    pub fn buckets(&self) -> Buckets {
        self.known.get().buckets.clone()
    }

    /// The rules before the policy, and how many packets each has matched since it was set.
    #[must_use]
    pub fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        let of =
            |(rule, counter): &(PacketRule, u16)| (rule.clone(), hits_of(&self.hits, *counter));
        self.known.get().rules.iter().map(of).collect()
    }

    /// How many frames would have been sent to each CPU in shadow mode, since the path was loaded. Frames without a flow
    /// are not counted.
    #[must_use]
    pub fn shadow(&self) -> Vec<(CpuId, u64)> {
        let cpus = self.sizes.cpus;
        let frames =
            |cpu| (0..cpus).map(|rx_cpu| self.shadows.get(rx_cpu * cpus + cpu).frames).sum::<u64>();
        let all = (0..cpus).map(|cpu| (cpu_of(cpu), frames(cpu)));
        all.filter(|(_, frames)| *frames != 0).collect()
    }

    /// The `most` counted flows with the most packets, and sums over all counted flows.
    #[must_use]
    pub fn flows(&self, most: usize) -> FlowStatistics {
        let known = self.known.get();
        let log = self.sizes.flow_log;
        let tables = known.devices.iter().flat_map(|device| {
            let tables = device.first_table..device.first_table + device.queues;
            tables.map(|table| table << log..(table + 1) << log)
        });
        self.lines.largest(tables, most, self.idle_s(self.jiffies() as u32))
    }

    /// Clears the statistics of all flows: everything counted before this returns is discarded, and everything counted
    /// afterwards is new. Counters are not changed.
    ///
    /// # Errors
    /// When the wait for a grace period fails. A packet under way may then be counted either before or after the clear.
    pub fn clear_flows(&self) -> std::io::Result<()> {
        self.lines.clear();
        self.grace.wait()
    }

    /// Takes the programs' records of flows that ended out of the ring buffer. The caller must do this about ten times a
    /// second: the buffer has room for some 4000 records (eight times as many with `Setup::flow_records`). Several threads
    /// may do it.
    pub fn take_records(&self) {
        let _reading = self.ended.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // The callback never fails.
        let _ = self.records.consume();
    }

    /// The `most` flows that ended last, oldest first, with their numbers, which count from 1 since the path was loaded.
    /// Reading removes no flow: at most 1000 are kept, for 5 minutes after their end.
    #[must_use]
    pub fn ended(&self, most: usize) -> Vec<(u64, LiveFlow)> {
        self.take_records();
        let idle_s = self.idle_s(self.jiffies() as u32);
        let lines = self.ended.latest(most).into_iter();
        lines.map(|(number, line)| (number, line.shown(idle_s(line.slot.last_seen)))).collect()
    }

    /// Converts the time of a line to seconds ago.
    pub(crate) fn idle_s(&self, now: u32) -> impl Fn(u32) -> f64 {
        let hz = f64::from(self.hz);
        move |then| f64::from((now.wrapping_sub(then) as i32).max(0)) / hz
    }

    /// The kernel's jiffies.
    pub(crate) fn jiffies(&self) -> u64 {
        let lower = abi::run_program(self.clock.as_fd()).unwrap_or(0);
        u64::from(self.upper.get()) << 32 | u64::from(lower)
    }
}
