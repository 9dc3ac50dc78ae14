//! What this host and its network interfaces can do, how the kernel itself steers, and changes of these settings.
//!
//! The crate has three separate parts. **Facts** ([`Host`], [`Interface`], [`links`]; [`Topology`], [`InterfaceKnobs`],
//! [`Globals`], [`Load`]) come from sysfs, procfs and netlink. Collecting them requires no privileges and changes
//! nothing. An unknown fact is `None`, never an error, since a container may hide any of them. **Findings** ([`judge`])
//! are derived from facts, by functions that read nothing else, so that tests can use invented hosts. **Changes**
//! ([`change`]) write the kernel's own settings, and undo this. Facts of the second group and changes use a [`Root`]:
//! `/`, or a folder with a recorded tree ([`testing`]). [`peers`] changes the other ends of veths, and restores them.
//!
//! Invariants: collecting facts changes nothing, loads nothing, and does not panic, whatever the kernel answers. Every
//! finding that is not fine has a reason, and every one that blocks `rxsteer run` has a remedy. [`change`] states the
//! invariants of changes.
//!
//! # Files
//!
//! - Facts: `host.rs`, `interface.rs`, `link.rs`, `listing.rs`, `cpus.rs` (sysfs, procfs), `netlink/`; below a root
//!   folder (`root.rs`) also `topology.rs`, `knobs/`, `mask.rs`, `others.rs`
//! - `judge/`: findings from facts alone
//! - `recommend/`: a recommendation from facts and a measurement
//! - `change/`: sets the kernel's own RPS, RFS, XPS: `plan.rs`, `journal.rs`, `write.rs`, `restore.rs`, `verify.rs`,
//!   `persist.rs`
//! - `peers/`: the other ends of veths in their namespaces
//! - `testing.rs`: recorded trees; `testing/facts.rs`: facts of a host
#![forbid(unsafe_code)]

mod attached;
mod btf;
mod capabilities;
pub mod change;
pub mod cpus;
mod drivers;
mod error;
mod files;
mod finding;
mod holder;
mod host;
mod interface;
pub mod judge;
mod kernel_version;
pub mod knobs;
mod link;
mod listing;
mod load;
pub mod mask;
mod netlink;
mod others;
pub mod peers;
mod queues;
mod real_time;
pub mod recommend;
mod root;
mod rss;
mod shown;
mod spreading;
pub mod testing;
mod topology;
mod trial;

pub use attached::{Attached, AttachedMode};
pub use btf::{Btf, TRACEPOINTS, Tracepoint};
pub use capabilities::{Capabilities, Capability};
pub use error::HostError;
pub use finding::{Finding, State, can_run};
pub use holder::Holder;
pub use host::{Host, host_name};
pub use interface::{Interface, Master, Offloads, Peer, XdpFeatures};
pub use judge::{Help, default_policy, help, is_down, may_be_generic, relief, too_few};
pub use kernel_version::KernelVersion;
pub use knobs::{Globals, InterfaceKnobs, Interrupt, RxQueue, TxQueue};
pub use link::{ETHERNET, LOOPBACK, Link, Pattern};
pub use listing::links;
pub use load::{CpuLoad, Load, Ticks};
pub use mask::CpuMask;
pub use others::{Other, Reach, others};
pub use queues::{SteeredQueue, steered_by_kernel};
pub use real_time::RealTime;
pub use root::{Root, Tree};
pub use rss::{Channels, Napi, Rss};
pub use spreading::Spreading;
pub use topology::{CpuPlace, Topology};
pub use trial::Trial;

pub use cpus::default_cpus;
