//! Loads the programs: sets the sizes of the maps, and loads everything that a later change may need. This file attaches
//! nothing to an interface.

use crate::abi::{
    self, Array, CONFIG_FLUSHING, GENERATIONS, LINE_BYTES, LINE_WORDS, MAX_BUCKETS, MAX_CPUS, Mode,
    OpenSteerSkel, SETS_LOG, SPARSE_ROW, SteerSkel, SteerSkelBuilder, WAYS,
};
use crate::abi::{PARSE_INNER, steer_bucket, steer_counters, steer_pair, steer_ring, steer_row};
use crate::flows::Lines;
use crate::grace::Grace;
use crate::libbpf_log::{self, Refusal};
use crate::rings::{Rings, SharedRings, try_ring};
use crate::rules::RuleMaps;
use crate::setup::{
    MAX_FLOW_LIMIT_BUCKETS, MAX_INTERFACES, MAX_SLOTS, Settings, SettingsError, Setup,
};
use crate::threads::Threads;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapHandle, MapMut, MapType, OpenMapMut, PrintLevel, ProgramInput};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use rxsteer_core::{CpuId, DevFlow, PacketRule, SockFlowTable};
use rxsteer_packet::SymmetricHash;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Duration;
use thiserror::Error;

/// Why the programs could not be loaded; nothing was attached.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A size is out of range; holds what it is, its value, and the maximum.
    #[error("{0}: {1} is more than the in-kernel path has room for ({2})")]
    TooLarge(&'static str, u64, u64),
    /// The kernel refused a program or map.
    #[error(
        "the kernel refused the BPF programs: {0}. It requires a kernel with BTF, and the capabilities CAP_BPF, \
         CAP_NET_ADMIN and CAP_PERFMON ('rxsteer check' says what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// The kernel's verifier refused a program.
    #[error(
        "the kernel refused the BPF program {0}; 'rxsteer check --kernel-log' shows its whole answer"
    )]
    Program(Refusal),
    /// A process without capabilities cannot change the maps. A running instance has dropped its capabilities.
    #[error(
        "a running instance has no capabilities, and this kernel does not let such a process change its own BPF \
         maps ({0}). Use Linux 5.19 or newer, or set kernel.unprivileged_bpf_disabled to 0"
    )]
    NeedsCapabilities(#[source] std::io::Error),
    /// The kernel does not report where applications run; holds the missing tracepoint.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A tracepoint could not be attached.
    #[error(
        "the tracepoint {0} could not be attached: {1} ('rxsteer check' says what this kernel has)"
    )]
    Tracepoint(&'static str, #[source] libbpf_rs::Error),
    /// A map could not be used.
    #[error("a BPF map could not be used: {0}")]
    Map(#[from] std::io::Error),
}

impl From<libbpf_rs::Error> for LoadError {
    fn from(error: libbpf_rs::Error) -> LoadError {
        LoadError::Refused(error)
    }
}

/// The loaded programs, and the maps that user space reads.
pub(crate) struct Loaded {
    pub(crate) skel: SteerSkel<'static>,
    pub(crate) rings: SharedRings,
    pub(crate) lines: Lines,
    /// Indexed by configuration (only those that can be active) and flow table.
    pub(crate) rows: Array<steer_row>,
    pub(crate) counts: Array<steer_counters>,
    pub(crate) buckets: Array<steer_bucket>,
    pub(crate) rules: RuleMaps,
    pub(crate) hash: SymmetricHash,
    pub(crate) sizes: Sizes,
    /// Jiffies a second.
    pub(crate) hz: u32,
    /// A tracepoint that rfs needs and this kernel lacks.
    pub(crate) missing_tracepoint: Option<&'static str>,
}

impl Loaded {
    /// Whether this kernel has what `settings` need.
    pub(crate) fn can_decide_by(&self, settings: &Settings) -> Result<(), SettingsError> {
        let Some(missing) = self.missing_tracepoint else { return Ok(()) };
        let is_rfs = |rule: &&PacketRule| rule.action.policy().is_some_and(|own| own.rfs);
        let rule = || settings.packet_rules.iter().find(is_rfs);
        let follows = match &settings.policy {
            policy if policy.is_rfs() => policy.to_string(),
            _ => match rule() {
                Some(rule) => format!("the rule '{rule}'"),
                None => return Ok(()),
            },
        };
        Err(SettingsError::NoTracepoint(follows, missing))
    }
}

/// The sizes of all tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The highest possible CPU id plus one.
    pub(crate) cpus: u32,
    pub(crate) flow_log: u32,
    pub(crate) tables: u32,
    pub(crate) interfaces: u32,
    sock_log: u32,
    chains_log: u32,
    limit_lines: u32,
}

impl Sizes {
    pub(crate) fn of(setup: &Setup) -> Result<Sizes, LoadError> {
        let cpus = u32::from(setup.possible.highest().get()) + 1;
        let limit = |what, value: u64, most: u64| {
            if value > most { Err(LoadError::TooLarge(what, value, most)) } else { Ok(()) }
        };
        limit("possible CPUs", u64::from(cpus), u64::from(MAX_CPUS))?;
        limit("interfaces", u64::from(setup.interfaces), u64::from(MAX_INTERFACES))?;
        let flow_cnt = setup.flow_cnt.clamp(WAYS, 1 << 30).next_power_of_two();
        let slots = u64::from(flow_cnt) * u64::from(setup.tables.max(1));
        limit("flow table slots (RX queues times --flow-cnt)", slots, MAX_SLOTS)?;
        let most_entries = rxsteer_core::limits::MAX_SOCK_FLOW_ENTRIES;
        limit("sock flow entries", u64::from(setup.sock_flow_entries), u64::from(most_entries))?;
        Ok(Sizes {
            cpus,
            flow_log: flow_cnt.ilog2(),
            tables: setup.tables.max(1),
            interfaces: setup.interfaces.max(1),
            sock_log: setup.sock_flow_entries.max(LINE_WORDS).next_power_of_two().ilog2(),
            chains_log: (cpus * SPARSE_ROW * 8).next_power_of_two().max(LINE_WORDS).ilog2(),
            limit_lines: MAX_FLOW_LIMIT_BUCKETS / LINE_BYTES,
        })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.tables << self.flow_log
    }
}

/// The programs with the constants and table sizes of `setup`, not loaded yet. `has` reports whether the kernel has a
/// tracepoint: a program for a missing one cannot be loaded.
pub(crate) fn open(
    setup: &Setup,
    sizes: &Sizes,
    hash: &SymmetricHash,
    has: impl Fn(&str) -> bool,
) -> Result<OpenSteerSkel<'static>, LoadError> {
    // The object is leaked: there is one, and it lives as long as the process.
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = SteerSkelBuilder::default().open(storage)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.steer_cpus = sizes.cpus;
        rodata.steer_rx_cpus = sizes.cpus;
        rodata.steer_flow_log = sizes.flow_log;
        rodata.steer_sock_mask = (1 << sizes.sock_log) - 1;
        rodata.steer_sock_cpu_mask = SockFlowTable::sock_cpu_mask(setup.possible.highest());
        rodata.steer_chains_log = sizes.chains_log;
        rodata.steer_devices_max = sizes.interfaces;
        rodata.steer_limit_lines = sizes.limit_lines;
        rodata.steer_rfs_namespace = setup.rfs_namespace.unwrap_or(0);
        let inner = if setup.inner { PARSE_INNER } else { 0 };
        rodata.steer_parse_options = inner | setup.key_tunnels.bits();
        rodata.steer_flow_stats = u8::from(setup.flow_stats);
        rodata.steer_generic = u8::from(setup.mode == Mode::Generic);
        if setup.drop_on_arrival {
            rodata.steer_cpumap_verdict = libbpf_sys::XDP_DROP;
        }
    }
    if let Some(bss) = open.maps.bss_data.as_deref_mut() {
        bss.steer_words = abi::hash_words(hash.words());
    }
    let [receives, sends, closes] = SOCKET_TRACEPOINTS.map(has);
    open.progs.steer_receives.set_autoload(receives);
    open.progs.steer_sends.set_autoload(sends);
    open.progs.steer_closes.set_autoload(closes);
    let ring_count = sizes.cpus * GENERATIONS;
    let maps = &mut open.maps;
    let size = |map: &mut OpenMapMut<'_>, entries: u32| map.set_max_entries(entries);
    size(&mut maps.steer_slots, sizes.slots())?;
    if !setup.flow_stats {
        // Without statistics a slot has only the guard's state. Eight slots share a cache line, so more of them stay in
        // the cache.
        maps.steer_slots.set_value_size(size_of::<DevFlow>() as u32)?;
    }
    size(&mut maps.steer_flows, if setup.flow_stats { sizes.slots() } else { 1 })?;
    size(&mut maps.steer_rows, CONFIG_FLUSHING * sizes.tables)?;
    size(&mut maps.steer_matchers, CONFIG_FLUSHING)?;
    size(&mut maps.steer_hits, sizes.cpus)?;
    size(&mut maps.steer_ended, ended_bytes(setup))?;
    size(&mut maps.steer_socks, (1 << sizes.sock_log) / LINE_WORDS)?;
    size(&mut maps.steer_sparse, sizes.cpus * SPARSE_ROW)?;
    size(&mut maps.steer_buckets, sizes.cpus * (MAX_BUCKETS + sizes.cpus))?;
    size(&mut maps.steer_shadows, sizes.cpus * sizes.cpus)?;
    size(&mut maps.steer_chains, (1 << sizes.chains_log) / LINE_WORDS)?;
    size(&mut maps.steer_hash_actives, sizes.cpus)?;
    size(&mut maps.steer_candidate_sets, sizes.cpus << SETS_LOG)?;
    size(&mut maps.steer_pairs, ring_count * sizes.cpus)?;
    size(&mut maps.steer_tails, sizes.cpus * ring_count.div_ceil(LINE_WORDS))?;
    size(&mut maps.steer_rings, ring_count)?;
    size(&mut maps.steer_sents, sizes.cpus * ring_count)?;
    size(&mut maps.steer_delay_counts, ring_count)?;
    size(&mut maps.steer_counts, sizes.cpus * sizes.interfaces)?;
    size(&mut maps.steer_limiters, sizes.cpus)?;
    size(&mut maps.steer_limit_bytes, sizes.cpus * sizes.limit_lines)?;
    size(&mut maps.steer_ring_0, sizes.cpus)?;
    size(&mut maps.steer_ring_1, sizes.cpus)?;
    Ok(open)
}

/// The memory in bytes for the maps of `setup`, without the rings. Loads nothing.
///
/// # Errors
/// [`LoadError`]: a size is out of range.
pub fn memory_of(setup: &Setup) -> Result<u64, LoadError> {
    let hash = SymmetricHash::new(setup.secret);
    let mut open = open(setup, &Sizes::of(setup)?, &hash, |_| true)?;
    let maps = open.open_object_mut().maps_mut();
    let of_map = |map: OpenMapMut<'_>| {
        // A hash table's element also holds its key and some words of the kernel.
        let of_element = match map.map_type() {
            MapType::Hash | MapType::LpmTrie => u64::from(map.key_size() + map.value_size() + 64),
            // The entries of a ring buffer are bytes.
            MapType::RingBuf => 1,
            _ => u64::from(map.value_size()),
        };
        u64::from(map.max_entries()) * of_element
    };
    Ok(maps.map(of_map).sum())
}

/// Loads the programs for `setup`.
pub(crate) fn load(setup: &Setup) -> Result<Loaded, LoadError> {
    let loaded = load_on(setup, tracepoints())?;
    go_on_without_capabilities(&loaded, setup.possible.lowest())?;
    Ok(loaded)
}

/// Loads the programs as [`Path::load`](crate::Path::load) does, tries the operations of a running instance, and
/// unloads everything. It attaches nothing.
///
/// # Errors
/// [`LoadError`].
pub fn try_to_load(setup: &Setup) -> Result<(), LoadError> {
    load(setup).map(|_| ())
}

/// Creates a ring, deletes it, and waits for a grace period, in a thread that has dropped its capabilities.
fn go_on_without_capabilities(loaded: &Loaded, cpu: CpuId) -> Result<(), LoadError> {
    let ring = MapHandle::try_from(&loaded.skel.maps.steer_ring_0)?;
    let program = loaded.skel.progs.steer_cpumap.as_fd();
    let grace = Grace::new()?;
    let tried = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, sets)?;
            try_ring(&ring, cpu, program)?;
            grace.wait()
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the trial ended early")))
    });
    tried.map_err(LoadError::NeedsCapabilities)
}

/// Reports which tracepoints this kernel has, according to its type information (BTF). If BTF cannot be read, every
/// tracepoint counts as present, and loading reports the failure.
pub(crate) fn tracepoints() -> impl Fn(&str) -> bool {
    let btf = Btf::from_vmlinux();
    move |name| {
        let name = format!("btf_trace_{name}");
        btf.as_ref().map_or(true, |btf| btf.type_by_name::<Typedef<'_>>(&name).is_some())
    }
}

/// Loads the programs on a kernel that `has` these tracepoints. Without the tracepoints of sockets (Linux 6.3),
/// everything but rfs works.
pub(crate) fn load_on(setup: &Setup, has: impl Fn(&str) -> bool) -> Result<Loaded, LoadError> {
    let sizes = Sizes::of(setup)?;
    let hash = SymmetricHash::new(setup.secret);
    let open = open(setup, &sizes, &hash, &has)?;
    let (result, log) = libbpf_log::during(PrintLevel::Warn, || open.load());
    let mut skel = result.map_err(|error| match Refusal::of(&log) {
        // The kernel gives no log to a process that may not load any program.
        Some(refusal) if error.kind() != ErrorKind::PermissionDenied || refusal.has_log() => {
            LoadError::Program(refusal)
        }
        _ => LoadError::Refused(error),
    })?;
    let hz = match setup.hz {
        Some(hz) => hz,
        None => ticks_a_second(measure(&skel)?),
    };
    let ids = [map_id(&skel.maps.steer_ring_0)?, map_id(&skel.maps.steer_ring_1)?];
    if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
        bss.steer_map_ids = ids;
        bss.steer_flow_idle_after = FLOW_IDLE_AFTER_S * hz;
        bss.steer_flow_idle_least = hz;
        // GRO flushes everything at the end of a busy poll only if a jiffy is longer than that.
        bss.steer_flushes_fully = u32::from(hz < 1000 && !setup.as_with_short_ticks);
    }
    let maps = &skel.maps;
    let rings = Rings::new(
        [MapHandle::try_from(&maps.steer_ring_0)?, MapHandle::try_from(&maps.steer_ring_1)?],
        Threads::new(ids, sizes.cpus * GENERATIONS),
        Array::<steer_ring>::new(&maps.steer_rings)?,
        Array::<steer_pair>::new(&maps.steer_pairs)?,
        Array::new(&maps.steer_tails)?,
        Array::new(&maps.steer_delay_counts)?,
    );
    Ok(Loaded {
        rings: SharedRings::new(rings),
        lines: Lines::of(&skel)?,
        rows: Array::new(&maps.steer_rows)?,
        counts: Array::new(&maps.steer_counts)?,
        buckets: Array::new(&maps.steer_buckets)?,
        rules: RuleMaps::new(
            &maps.steer_matchers,
            &maps.steer_hits,
            &maps.steer_nets,
            &maps.steer_tunnels,
        )?,
        hash,
        sizes,
        hz,
        missing_tracepoint: SOCKET_TRACEPOINTS.into_iter().find(|name| !has(name)),
        skel,
    })
}

/// The tracepoints of sockets, for receive, send and close.
pub(crate) const SOCKET_TRACEPOINTS: [&str; 3] =
    ["sock_recv_length", "sock_send_length", "inet_sock_set_state"];

/// Room for the final counts of some 4000 flows. The reader empties the ring buffer ten times a second.
const ENDED_BYTES: u32 = 1 << 20;

/// The size of the ring buffer with the final counts of flows. It is larger with flow records, where none should be lost.
fn ended_bytes(setup: &Setup) -> u32 {
    match (setup.flow_stats, setup.flow_records) {
        (false, _) => 4096,
        (true, false) => ENDED_BYTES,
        (true, true) => 8 * ENDED_BYTES,
    }
}

/// After this idle time, another flow may take a flow's line. If no line is free, one second is enough.
const FLOW_IDLE_AFTER_S: u32 = 60;

fn map_id(map: &MapMut<'_>) -> Result<u32, LoadError> {
    Ok(libbpf_rs::MapInfo::new(map.as_fd())?.info.id)
}

/// How many measurements are made to find the number of jiffies a second, and how long each takes.
const MEASUREMENTS: usize = 5;
const MEASURED_FOR: Duration = Duration::from_millis(80);

/// Jiffies, and the nanoseconds in which they passed.
fn measure(skel: &SteerSkel<'_>) -> Result<[(u64, u64); MEASUREMENTS], LoadError> {
    let read = || -> Result<(u64, u64), LoadError> {
        skel.progs.steer_clock.test_run(ProgramInput::default())?;
        Ok(skel
            .maps
            .bss_data
            .as_deref()
            .map_or((0, 0), |bss| (bss.steer_jiffies_now, bss.steer_ktime_now)))
    };
    let mut measured = [(0, 0); MEASUREMENTS];
    for one in &mut measured {
        let (jiffies, ns) = read()?;
        std::thread::sleep(MEASURED_FOR);
        let (later_jiffies, later_ns) = read()?;
        *one = (later_jiffies.wrapping_sub(jiffies), later_ns.saturating_sub(ns).max(1));
    }
    Ok(measured)
}

/// Jiffies a second. Single measurements may be wrong: a virtual machine that was stopped catches up on its jiffies later,
/// so one measurement has too few, and the next too many. The result is the median. If it is near a usual value of
/// CONFIG_HZ, it is rounded to that value.
fn ticks_a_second(mut measured: [(u64, u64); MEASUREMENTS]) -> u32 {
    const USUAL: [u32; 4] = [100, 250, 300, 1000];
    let rate = |(jiffies, ns): (u64, u64)| jiffies as f64 * 1e9 / ns as f64;
    measured.sort_by(|one, other| rate(*one).total_cmp(&rate(*other)));
    let median = rate(measured[MEASUREMENTS / 2]);
    let away = |hz: u32| (f64::from(hz) - median).abs() / f64::from(hz);
    let nearest = USUAL.into_iter().min_by(|one, other| away(*one).total_cmp(&away(*other)));
    // At 100 jiffies a second, one jiffy more or less is an eighth of the jiffies in a measurement.
    match nearest.filter(|hz| away(*hz) < 0.15) {
        Some(hz) => hz,
        None => (median.round() as u32).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each measurement is a number of jiffies in a number of milliseconds.
    fn ticks(measured: [(u64, u64); MEASUREMENTS]) -> u32 {
        ticks_a_second(measured.map(|(jiffies, ms)| (jiffies, ms * 1_000_000)))
    }

    #[test]
    fn hz_is_the_median_of_measurements() {
        assert_eq!(ticks([(20, 80); 5]), 250);
        assert_eq!(ticks([(20, 80), (21, 80), (20, 80), (19, 80), (20, 81)]), 250);
        assert_eq!(ticks([(24, 80); 5]), 300);
        assert_eq!(ticks([(8, 80), (9, 80), (8, 81), (7, 80), (9, 80)]), 100);
        assert_eq!(ticks([(80, 80), (79, 80), (81, 80), (80, 80), (80, 80)]), 1000);
        // The machine was stopped, and caught up in the next measurement.
        assert_eq!(ticks([(20, 80), (0, 80), (80, 80), (20, 80), (20, 81)]), 250);
        assert_eq!(ticks([(8, 80), (80, 80), (8, 80), (60, 80), (8, 80)]), 100);
        // No jiffy at all: the result must not be 0, since it is used as a divisor.
        assert_eq!(ticks([(0, 80); 5]), 1);
        // A value that no distribution's kernel uses.
        assert_eq!(ticks([(40, 80), (41, 80), (40, 80), (40, 80), (39, 80)]), 500);
        assert_eq!(ticks_a_second([(0, 1); 5]), 1);
    }
}
