//! The userspace receive path of rxsteer: frames are dissected, hashed, steered to CPUs, handed off in lists, and
//! processed by workers, each flow in order.
//!
//! ```text
//!  source ──► Receiver: hash ─► decide ─► lists ══ rings ══► workers ──► Handler ──► Report
//! ```
//!
//! Applications depend on the crate `rxsteer`, whose builder starts this path. Use this crate to control all of
//! it: a [`PipelineConfig`], a [`Handler`] per CPU, and frames for the [`Receiver`]s, or sources for [`run`].
//!
//! ```
//! use rxsteer_user::{FrameInfo, PacketList, Pipeline, PipelineConfig};
//! use rxsteer_user::core::Policy;
//! use rxsteer_user::packet::LinkType;
//!
//! let mut config = PipelineConfig::new(Policy::Rps, "0-1".parse()?);
//! config.check_order = true;
//! let (pipeline, mut receivers) = Pipeline::start(&config, |_cpu| |_list: &PacketList<'_>| {})?;
//! let mut receiver = receivers.remove(0);
//! receiver.netif_receive([(&[0; 60][..], FrameInfo::new(LinkType::Ethernet, 0, 60)); 3]);
//! receiver.finish();
//! let report = pipeline.finish()?;
//! assert_eq!((report.delivered, report.reordered), (3, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//!
//! - `receiver.rs`, `receiver/`: from a source to decisions; `worker.rs`: calls the handlers
//! - `block.rs`: frame memory
//! - `backlog.rs`: the backlog queue from one RX thread to one CPU
//! - `backlogs.rs`: the queues of one RX thread to all CPUs, publishing and kicking
//! - `worker_group.rs`: worker group and take-over
//! - `change.rs`: changes at run time and desired CPUs
//! - `rebalance.rs`: moves of buckets
//! - `flow_stats.rs`: flow statistics on the workers
//! - `packet_clock.rs`, `pace.rs`: time
//! - `config.rs`, `pipeline.rs`: start and end of a run
//! - `order_tracker.rs`: the order check
//! - `count.rs`, `delay_counts.rs`, `rx_report.rs`: counts that others can read
//! - `memory.rs`: checks that memory is available
//! - `forward.rs`: sends packets out again
//! - `printable.rs`: escapes text from outside
//! - `sys.rs`: system calls
//! - `source/`: `live.rs` opens all RX queues of interfaces
//! - `sink/`: outputs per CPU: `spec.rs`, `open.rs`, `write.rs`, `stream.rs`
#![forbid(unsafe_code)]

mod backlog;
mod backlog_progress;
mod backlogs;
pub mod block;
mod change;
mod clock;
mod config;
mod count;
mod delay_counts;
mod flow_stats;
pub mod forward;
mod handler;
mod memory;
mod order_tracker;
mod pace;
mod packet_clock;
mod pipeline;
mod printable;
mod rebalance;
mod receiver;
mod report;
#[cfg(feature = "json")]
mod report_json;
mod rx_report;
pub mod sink;
pub mod source;
pub mod sys;
mod ticks;
mod worker;
mod worker_group;

pub use backlog_progress::{BacklogProgress, BacklogReport};
pub use block::{Block, FrameFlags, FrameInfo, FrameMeta};
pub use change::{ChangeError, FlowRecorder, SteerChange, When};
pub use config::{
    DEFAULT_BACKLOG, DEFAULT_BATCH, MAX_BACKLOG, MAX_BATCH, OnFull, PipelineConfig, PipelineError,
};
pub use count::{Count, DropCounts};
pub use delay_counts::DelayCounts;
pub use flow_stats::FlowStats;
pub use handler::{Handler, Packet, PacketList};
pub use order_tracker::{DistinctFlows, MAX_TRACKED_FLOWS};
pub use pace::{Pace, Speed};
pub use packet_clock::PacketClock;
pub use pipeline::{Control, Pipeline, StillReceiving, run};
pub use printable::{printable, shown};
pub use rebalance::{MAX_MOVES_KEPT, MovedByLoad, MovesByLoad};
pub use receiver::Receiver;
pub use report::{CpuReport, Report};
#[cfg(feature = "json")]
pub use report_json::drops_to_json;
pub use rx_report::RxProgress;
pub use worker_group::WorkerProgress;

pub use rxsteer_core as core;
pub use rxsteer_flows as flows;
pub use rxsteer_flows::WhenFull;
pub use rxsteer_packet as packet;
