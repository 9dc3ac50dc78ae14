//! The in-kernel receive path: XDP and CPUMAP programs that steer the frames of live interfaces. User space loads,
//! reconfigures and observes them.
//!
//! ```text
//!   NIC ─► XDP program: which CPU? ─► CPUMAP ring ─► that CPU's kernel thread ─► stack, sockets, routing
//! ```
//!
//! The programs are in `src/bpf`; start with `steer.bpf.c`. In this folder, `path.rs` defines `Path`, the handle of the
//! thread that owns the path. The other files:
//! - `setup.rs` defines the configuration, `check.rs` checks it, and `compile.rs` compiles it for the programs.
//! - `rings.rs` manages the CPUMAP entries, and `threads.rs` their kernel threads. `waits.rs` finds why a ring lost frames.
//! - `grace.rs` waits until running programs have ended. `gro.rs` finds how long GRO may hold frames.
//! - `live.rs` reads the counters, and `flows.rs` the counts of each flow. `recorder.rs` makes flow records of these.
//! - `view.rs` answers the queries of other threads while the owner continues.
//! - `libbpf_log.rs` finds the kernel's message when it refuses a program.
//! - `abi.rs` is the boundary between Rust and C.
//!
//! Everything here needs the feature `bpf` (clang to build, libelf and zlib to link).

#[cfg(feature = "bpf")]
mod abi;
#[cfg(feature = "bpf")]
mod buckets;
#[cfg(feature = "bpf")]
mod check;
#[cfg(feature = "bpf")]
mod compile;
#[cfg(feature = "bpf")]
mod explain;
#[cfg(feature = "bpf")]
mod flows;
#[cfg(feature = "bpf")]
mod grace;
#[cfg(feature = "bpf")]
mod gro;
#[cfg(feature = "bpf")]
mod latest;
#[cfg(feature = "bpf")]
mod libbpf_log;
#[cfg(feature = "bpf")]
mod live;
#[cfg(feature = "bpf")]
mod load;
#[cfg(feature = "bpf")]
mod path;
#[cfg(feature = "bpf")]
mod recorder;
#[cfg(feature = "bpf")]
mod rings;
#[cfg(feature = "bpf")]
mod rules;
#[cfg(feature = "bpf")]
mod setup;
#[cfg(feature = "bpf")]
#[doc(hidden)]
pub mod testing;
#[cfg(feature = "bpf")]
mod threads;
#[cfg(feature = "bpf")]
mod view;
#[cfg(feature = "bpf")]
mod waits;

#[cfg(feature = "bpf")]
pub use crate::{
    abi::{MAX_CPUS, Mode},
    buckets::Buckets,
    explain::{FlowExplained, LiveDecision},
    flows::{CpuShare, FlowStatistics, LiveFlow, Unrecorded},
    latest::Latest,
    libbpf_log::Refusal,
    live::{Counters, CpuCounts, DeviceId, RxCounts},
    load::{LoadError, memory_of, try_to_load},
    path::{AttachError, LinkState, Path, Progress},
    recorder::{FlowRecorder, RecordEnd, RecordedFlow, Timeouts},
    setup::{
        DEFAULT_QUEUE_SIZE, MAX_FLOW_LIMIT_BUCKETS, MAX_INTERFACES, MAX_QUEUE_SIZE, MAX_SLOTS,
        MIN_QUEUE_SIZE, Settings, SettingsError, Setup,
    },
    threads::ThreadsError,
    view::View,
};
