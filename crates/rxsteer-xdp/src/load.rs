//! Loading the programs: sizes are set, everything a later change may need is loaded, and nothing is
//! attached to an interface yet.

use crate::abi::{
    self, Array, BANKS, MAX_CPUS, Mode, OpenSteerSkel, SPARSE_ROW, SteerSkel, SteerSkelBuilder,
    WAYS,
};
use crate::abi::{
    steer_counters, steer_dst, steer_flow, steer_line, steer_pair, steer_slot, steer_sparse_slot,
};
use crate::rings::Rings;
use crate::setup::{MAX_FLOW_LIMIT_BUCKETS, MAX_INTERFACES, MAX_SLOTS, Setup};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, MapMut, OpenMapMut, ProgramInput};
use rxsteer_core::{DevFlow, SockFlowTable};
use rxsteer_packet::SymmetricHash;
use std::mem::MaybeUninit;
use std::time::Duration;
use thiserror::Error;

/// Why the programs could not be loaded; nothing was attached.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A size is out of range; holds what, how much, and the most.
    #[error("{0}: {1} is more than the in-kernel path has room for ({2})")]
    TooLarge(&'static str, u64, u64),
    /// The kernel refused a program or map.
    #[error(
        "the kernel refused the BPF programs: {0}. It takes Linux 5.19 or newer with BTF, and the capabilities \
         CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON ('rxsteer check' says what is missing)"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// A tracepoint could not be attached.
    #[error(
        "the tracepoint {0} could not be attached: {1} ('rxsteer check' says what this kernel has)"
    )]
    Tracepoint(&'static str, #[source] libbpf_rs::Error),
    /// Generic mode does not work here.
    #[error(
        "this kernel hands the frames of a CPUMAP on wrongly in generic mode, with their Ethernet header still \
         in front, so that IP refuses them. Some were lost until that was noticed; now all are let pass. Steer in \
         native mode, or not at all"
    )]
    GenericBroken,
    /// A map could not be made use of.
    #[error("a BPF map could not be used: {0}")]
    Map(#[from] std::io::Error),
}

impl From<libbpf_rs::Error> for LoadError {
    fn from(error: libbpf_rs::Error) -> LoadError {
        LoadError::Refused(error)
    }
}

/// The loaded programs and what is read of their maps.
pub(crate) struct Loaded {
    pub(crate) skel: SteerSkel<'static>,
    pub(crate) rings: Rings,
    pub(crate) slots: Array<steer_slot>,
    pub(crate) flows: Array<steer_flow>,
    pub(crate) socks: Array<steer_line>,
    pub(crate) counts: Array<steer_counters>,
    pub(crate) sparse: Array<steer_sparse_slot>,
    pub(crate) hash: SymmetricHash,
    pub(crate) sizes: Sizes,
    /// Jiffies a second.
    pub(crate) hz: u32,
    /// A tracepoint that rfs takes and this kernel has not.
    pub(crate) no_wishes: Option<&'static str>,
}

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Highest possible CPU id plus one.
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
        let most_entries = rxsteer_core::config::MAX_SOCK_FLOW_ENTRIES;
        limit("sock flow entries", u64::from(setup.sock_flow_entries), u64::from(most_entries))?;
        Ok(Sizes {
            cpus,
            flow_log: flow_cnt.ilog2(),
            tables: setup.tables.max(1),
            interfaces: setup.interfaces.max(1),
            sock_log: setup.sock_flow_entries.max(16).next_power_of_two().ilog2(),
            chains_log: (cpus * SPARSE_ROW * 8).next_power_of_two().ilog2().max(4),
            limit_lines: MAX_FLOW_LIMIT_BUCKETS / 64,
        })
    }

    fn slots(&self) -> u32 {
        self.tables << self.flow_log
    }
}

/// The programs, with the constants and table sizes that `setup` asks for; not loaded yet.
pub(crate) fn open(
    setup: &Setup,
    sizes: &Sizes,
    hash: &SymmetricHash,
) -> Result<OpenSteerSkel<'static>, LoadError> {
    // The object lives as long as the process: there is one.
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = SteerSkelBuilder::default().open(storage)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.steer_cpus = sizes.cpus;
        rodata.steer_sources = sizes.cpus;
        rodata.steer_flow_log = sizes.flow_log;
        rodata.steer_sock_mask = (1 << sizes.sock_log) - 1;
        rodata.steer_wish_mask = SockFlowTable::wish_mask(setup.possible.highest());
        rodata.steer_chains_log = sizes.chains_log;
        rodata.steer_devices_max = sizes.interfaces;
        rodata.steer_limit_lines = sizes.limit_lines;
        rodata.steer_inner = u8::from(setup.inner);
        rodata.steer_flow_stats = u8::from(setup.flow_stats);
        rodata.steer_generic = u8::from(setup.mode == Mode::Generic);
        rodata.steer_words = abi::hash_words(hash.words());
        if setup.drop_on_arrival {
            rodata.steer_cpumap_verdict = XDP_DROP;
        }
    }
    open.progs.steer_misplaced.set_autoload(setup.mode == Mode::Generic);
    let dsts = sizes.cpus * BANKS;
    let maps = &mut open.maps;
    let size = |map: &mut OpenMapMut<'_>, entries: u32| map.set_max_entries(entries);
    size(&mut maps.steer_slots, sizes.slots())?;
    if !setup.flow_stats {
        // The guard alone: eight slots on a line rather than one, so that more of them stay in the cache.
        maps.steer_slots.set_value_size(size_of::<DevFlow>() as u32)?;
    }
    size(&mut maps.steer_flows, if setup.flow_stats { sizes.slots() } else { 1 })?;
    size(&mut maps.steer_moved, if setup.flow_stats { sizes.slots().max(1024) } else { 1 })?;
    size(&mut maps.steer_socks, (1 << sizes.sock_log) / 16)?;
    size(&mut maps.steer_sparse, sizes.cpus * SPARSE_ROW)?;
    size(&mut maps.steer_chains, (1 << sizes.chains_log) / 16)?;
    size(&mut maps.steer_hash_actives, sizes.cpus)?;
    size(&mut maps.steer_pairs, dsts * sizes.cpus)?;
    size(&mut maps.steer_tails, sizes.cpus * dsts.div_ceil(16))?;
    size(&mut maps.steer_dsts, dsts)?;
    size(&mut maps.steer_counts, sizes.cpus * sizes.interfaces)?;
    size(&mut maps.steer_limiters, sizes.cpus)?;
    size(&mut maps.steer_limit_bytes, sizes.cpus * sizes.limit_lines)?;
    size(&mut maps.steer_ring_0, sizes.cpus)?;
    size(&mut maps.steer_ring_1, sizes.cpus)?;
    Ok(open)
}

/// Loads the programs for `setup`.
pub(crate) fn load(setup: &Setup) -> Result<Loaded, LoadError> {
    let btf = Btf::from_vmlinux();
    // Where types can't be read, loading says so.
    let has = |name: &str| {
        let name = format!("btf_trace_{name}");
        btf.as_ref().map_or(true, |btf| btf.type_by_name::<Typedef<'_>>(&name).is_some())
    };
    load_on(setup, has)
}

/// Loads them on a kernel that `has` these tracepoints. Without those that tell of applications (Linux 6.3)
/// there is no rfs, and all else.
pub(crate) fn load_on(setup: &Setup, has: impl Fn(&str) -> bool) -> Result<Loaded, LoadError> {
    let sizes = Sizes::of(setup)?;
    let hash = SymmetricHash::new(setup.secret);
    let mut open = open(setup, &sizes, &hash)?;
    let [receives, sends, closes] = WISH_TRACEPOINTS.map(&has);
    open.progs.steer_receives.set_autoload(receives);
    open.progs.steer_sends.set_autoload(sends);
    open.progs.steer_closes.set_autoload(closes);
    let mut skel = open.load()?;
    let hz = measure_hz(&skel)?;
    let ids = [map_id(&skel.maps.steer_ring_0)?, map_id(&skel.maps.steer_ring_1)?];
    if let Some(bss) = skel.maps.bss_data.as_deref_mut() {
        bss.steer_map_ids = ids;
        bss.steer_flow_idle_after = FLOW_IDLE_AFTER_S * hz;
        // GRO flushes all it holds at the end of a busy poll only where a jiffy is longer than that.
        bss.steer_flushes_fully = u32::from(hz < 1000 && !setup.as_with_short_ticks);
    }
    let maps = &skel.maps;
    let rings = Rings::new(
        [MapHandle::try_from(&maps.steer_ring_0)?, MapHandle::try_from(&maps.steer_ring_1)?],
        Array::<steer_dst>::new(&maps.steer_dsts)?,
        Array::<steer_pair>::new(&maps.steer_pairs)?,
        Array::new(&maps.steer_tails)?,
    );
    Ok(Loaded {
        rings,
        slots: Array::new(&maps.steer_slots)?,
        flows: Array::new(&maps.steer_flows)?,
        socks: Array::new(&maps.steer_socks)?,
        counts: Array::new(&maps.steer_counts)?,
        sparse: Array::new(&maps.steer_sparse)?,
        hash,
        sizes,
        hz,
        no_wishes: WISH_TRACEPOINTS.into_iter().find(|name| !has(name)),
        skel,
    })
}

/// What tells of applications: that one receives, sends, closes.
pub(crate) const WISH_TRACEPOINTS: [&str; 3] =
    ["sock_recv_length", "sock_send_length", "inet_sock_set_state"];

/// What the CPUMAP program says of a frame that is to end there.
const XDP_DROP: u32 = 1;

/// A flow that sent nothing for so long gives its slot to one that does.
const FLOW_IDLE_AFTER_S: u32 = 60;

fn map_id(map: &MapMut<'_>) -> Result<u32, LoadError> {
    use std::os::fd::AsFd;
    Ok(libbpf_rs::MapInfo::new(map.as_fd())?.info.id)
}

/// Jiffies a second, by two looks at both clocks.
fn measure_hz(skel: &SteerSkel<'_>) -> Result<u32, LoadError> {
    const USUAL: [u32; 4] = [100, 250, 300, 1000];
    let look = || -> Result<(u64, u64), LoadError> {
        skel.progs.steer_clock.test_run(ProgramInput::default())?;
        Ok(skel
            .maps
            .bss_data
            .as_deref()
            .map_or((0, 0), |bss| (bss.steer_jiffies_now, bss.steer_ktime_now)))
    };
    // A machine that stands still for a moment makes a look say less, never more.
    let mut measured = 0.0f64;
    for _ in 0..3 {
        let (jiffies, ns) = look()?;
        std::thread::sleep(Duration::from_millis(80));
        let (later_jiffies, later_ns) = look()?;
        let rate = (later_jiffies - jiffies) as f64 * 1e9 / (later_ns - ns).max(1) as f64;
        measured = measured.max(rate);
    }
    let nearest = USUAL.into_iter().min_by_key(|hz| (f64::from(*hz) - measured).abs() as u64);
    Ok(nearest.unwrap_or(100))
}
