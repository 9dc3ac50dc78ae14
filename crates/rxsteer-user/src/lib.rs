//! The userspace receive path of rxsteer: frames are dissected, hashed, steered to CPUs, handed over
//! in lists, and processed by workers, each flow in order.
//!
//! ```text
//!  source ──► Receiver: hash ─► decide ─► lists ══ rings ══► workers ──► Handler ──► Report
//! ```
//!
//! A packet application needs three things: a [`PipelineConfig`] (policy and CPUs), a [`Handler`]
//! per CPU, and frames for the [`Receiver`].
//!
//! ```
//! use rxsteer_user::{FrameInfo, Pipeline, PipelineConfig, PacketList};
//! use rxsteer_user::core::{CpuId, Policy};
//! use rxsteer_user::packet::LinkType;
//!
//! let config = PipelineConfig::new(Policy::Rps, "0-1".parse()?);
//! // One handler per CPU; here each counts bytes.
//! let (pipeline, mut receivers) = Pipeline::start(&config, |_cpu: CpuId| {
//!     |list: &PacketList<'_>| {
//!         for packet in list.iter() {
//!             let _first_byte = packet.bytes().first();
//!         }
//!     }
//! })?;
//! let mut receiver = receivers.remove(0);
//! let info = FrameInfo {
//!     timestamp_ns: 0, wire_len: 60, rx_queue: 0, link: LinkType::Ethernet, nic_hash: None,
//! };
//! receiver.netif_rx(&[0; 60], info);                      // one by one, or
//! receiver.netif_receive([(&[0; 60][..], info); 3]);      // as a polled list
//! receiver.finish();                                     // or drop it
//! let report = pipeline.finish()?;
//! assert_eq!((report.packets, report.delivered), (4, 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Frames of captures come from a source, and [`run`] does the rest. A capture loses nothing, so full
//! backlogs wait here; the default is to drop, as a live system does.
//!
//! ```no_run
//! use rxsteer_user::core::{CpuSet, Policy};
//! use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
//! use rxsteer_user::{OnFull, PacketList, PipelineConfig, Speed, run, sys};
//! use std::sync::atomic::AtomicBool;
//!
//! let cpus = sys::allowed_cpus().or(CpuSet::first(1)).unwrap();
//! let mut config = PipelineConfig::new(Policy::Rps, cpus);
//! config.on_full = OnFull::Wait;
//! let source = CaptureSource::open(&["traffic.pcap".into()], CaptureOptions::default())?;
//! let stop = AtomicBool::new(false);
//! let handler = |_cpu| |list: &PacketList<'_>| println!("{} packets", list.len());
//! let report = run(&config, &mut [Box::new(source)], Speed::Max, &stop, handler, |_, _| {})?;
//! println!("{} packets, {} reordered", report.packets, report.reordered);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Under `rfs` a flow is processed where its application consumes the data: a handler says so by
//! [`PacketList::record`], any other thread by a [`FlowRecorder`]. And a running receive path can be
//! changed, in order and as a whole or not at all.
//!
//! ```
//! use rxsteer_user::core::{CpuId, Policy};
//! use rxsteer_user::{PacketList, Pipeline, PipelineConfig, SteerChange};
//!
//! let mut config = PipelineConfig::new(Policy::Rfs, "0-1".parse()?);
//! config.standby = Some("2-3".parse()?);       // has workers, though nothing goes there yet
//! let (pipeline, mut receivers) = Pipeline::start(&config, |cpu: CpuId| {
//!     move |list: &PacketList<'_>| {
//!         for packet in list.iter() {
//!             list.record(packet.hash(), cpu);  // consumed here: its flow may stay
//!         }
//!     }
//! })?;
//! let control = pipeline.control();             // to be used from any thread
//! control.change(&SteerChange {
//!     policy: Some("rfs+sparse:loops=2".parse()?),
//!     cpus: Some("0-3".parse()?),
//!     ..SteerChange::default()
//! })?;
//! let impossible = SteerChange { cpus: Some("9".parse()?), ..SteerChange::default() };
//! assert!(control.change(&impossible).is_err(), "CPU 9 has no worker; nothing has changed");
//! receivers.remove(0).finish();
//! let report = pipeline.finish()?;
//! assert_eq!(report.reordered, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Statistics of each flow, kept apart for each CPU: a table for all, and a writer for each handler.
//!
//! ```
//! use rxsteer_user::core::{CpuId, Policy};
//! use rxsteer_user::flows::{FlowTable, FlowTableConfig};
//! use rxsteer_user::packet::DissectOptions;
//! use rxsteer_user::{FlowStats, PacketList, Pipeline, PipelineConfig, WhenFull};
//!
//! let config = PipelineConfig::new(Policy::Rps, "0-1".parse()?);
//! let table = FlowTable::new(&FlowTableConfig::new(10_000))?;
//! let (pipeline, mut receivers) = Pipeline::start(&config, |cpu: CpuId| {
//!     let writer = table.writer(cpu).expect("one worker for each CPU");
//!     let mut stats = FlowStats::new(writer, DissectOptions::default(), WhenFull::Refuse);
//!     move |list: &PacketList<'_>| stats.record(list)
//! })?;
//! table.for_each(|flow| println!("{}: {} packets", flow.key, flow.totals.packets));
//! table.collect(|flow| println!("over: {}", flow.key)); // to be called now and then
//! receivers.remove(0).finish();
//! let report = pipeline.finish()?;
//! # drop(report);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod backlog;
mod backlogs;
pub mod block;
mod change;
mod clock;
mod config;
mod flow_stats;
mod handler;
mod memory;
mod order_tracker;
mod pace;
mod packet_clock;
mod pipeline;
mod printable;
mod receiver;
mod report;
mod rx_report;
pub mod source;
pub mod sys;
mod worker;
mod worker_group;

pub use block::{Block, FrameInfo, FrameMeta};
pub use change::{ChangeError, FlowRecorder, SteerChange, When};
pub use config::{DEFAULT_BACKLOG, DEFAULT_BATCH, MAX_BACKLOG, PipelineConfig, PipelineError};
pub use flow_stats::FlowStats;
pub use handler::{Handler, Packet, PacketList};
pub use order_tracker::{DistinctFlows, MAX_TRACKED_FLOWS};
pub use pace::{Pace, Speed};
pub use packet_clock::PacketClock;
pub use pipeline::{Control, Pipeline, StillReceiving, run};
pub use printable::{printable, shown};
pub use receiver::{MAX_BATCH, OnFull, Receiver};
pub use report::{CpuReport, Report};
pub use rx_report::{BacklogReport, RxProgress};
pub use worker::WorkerReport;

pub use rxsteer_core as core;
pub use rxsteer_flows as flows;
pub use rxsteer_flows::WhenFull;
pub use rxsteer_packet as packet;
