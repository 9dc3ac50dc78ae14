#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! | task | item |
//! |---|---|
//! | configure and start | [`PipelineBuilder`]: the policy, the CPUs, and other settings |
//! | process packets | [`Handler`], called with a [`PacketList`]; a [`Packet`] has its bytes, its hash and its key |
//! | receive frames | [`source`] for live interfaces, captures and synthetic traffic, or [`Receiver`] for your own frames |
//! | forward packets | [`forward`]: a filtering bridge between interfaces |
//! | give packets to other programs | [`sink`]: files, pipes and interfaces, one for each CPU |
//! | control a running path | [`Control`]: change the policy, stop a worker; [`FlowRecorder`]: record where applications run |
//! | read the results | [`Report`] |
//! | count flows | [`flows`] |
//!
//! # A probe on live interfaces
//!
//! [`source::open_live`] opens all RX queues of several interfaces, by packet sockets or AF_XDP, and each RX queue has an
//! RX thread. The report, and the counters during the run, show how many packets the kernel dropped because handlers were
//! too slow.
//!
//! ```no_run
//! use rxsteer::source::{LiveOptions, Source, interfaces, open_live};
//! use rxsteer::{CpuSet, PacketList, PipelineBuilder, Policy};
//! use std::collections::HashMap;
//! use std::sync::atomic::Ordering;
//! use std::time::Duration;
//!
//! let interfaces = interfaces([("eth0", 2), ("eth1", 1)])?;   // each with its number of RX threads
//! let mut options = LiveOptions::default();
//! options.promiscuous = true;                   // also what is not for this host
//! let end = options.stop.clone();               // to be set by a signal handler, say
//! let mut live = open_live(&interfaces, &options)?;   // it receives from here on, before the pipeline starts
//! let rx_cpus: CpuSet = "0-2".parse()?;
//! let report = PipelineBuilder::new(Policy::Rps, "3-7".parse()?)
//!     .interfaces(&interfaces, rx_cpus.iter())
//!     .run_watched(
//!         &mut live.sources,
//!         |cpu| {
//!             let mut bytes = HashMap::new();   // a table of this CPU: no lock
//!             move |list: &PacketList<'_>| {
//!                 // Packets without a key are not IP, or cut off.
//!                 for (packet, key) in list.iter().filter_map(|packet| Some((packet, packet.key()?))) {
//!                     // Under rps both directions of a connection come to one handler.
//!                     *bytes.entry((cpu, key.canonical())).or_insert(0_u64) += packet.bytes().len() as u64;
//!                 }
//!             }
//!         },
//!         |receivers, _control| {
//!             let progress: Vec<_> = receivers.iter().map(|receiver| receiver.progress()).collect();
//!             let end = end.clone();
//!             std::thread::spawn(move || {
//!                 while !end.load(Ordering::Relaxed) {
//!                     std::thread::sleep(Duration::from_secs(1));
//!                     let packets: u64 = progress.iter().map(|rx| rx.packets.get()).sum();
//!                     let lost: u64 = progress.iter().map(|rx| rx.kernel_drops.get()).sum();
//!                     println!("{packets} packets, {lost} dropped by the kernel");
//!                 }
//!             });
//!         },
//!     )?;
//! for source in &mut live.sources {
//!     source.take_issues().iter().for_each(|issue| eprintln!("{issue}"));
//! }
//! println!("{} packets, {} dropped here", report.packets, report.drops.total());
//! # end.store(true, Ordering::Relaxed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A handler must not block: it holds kernel memory until it returns. For work that takes long or is asynchronous
//! (tokio), send a copy through a bounded channel with `try_send`, and count a full channel as a drop.
//!
//! # Your own frames
//!
//! To process frames that do not come from a [`source::Source`], give them to a [`Receiver`], one by one or as polled
//! lists.
//!
//! ```
//! use rxsteer::{FrameInfo, LinkType, PacketList, PipelineBuilder, Policy};
//!
//! // One handler per CPU; here each looks at the first byte of its packets.
//! let handler = |_cpu| {
//!     |list: &PacketList<'_>| {
//!         for packet in list.iter() {
//!             let _first_byte = packet.bytes().first();
//!         }
//!     }
//! };
//! let (pipeline, mut receivers) = PipelineBuilder::new(Policy::Rps, "0-1".parse()?).start(handler)?;
//! let mut receiver = receivers.remove(0);
//! let info = FrameInfo::new(LinkType::Ethernet, 0, 60);
//! receiver.netif_rx(&[0; 60], info);                      // one by one, or
//! receiver.netif_receive([(&[0; 60][..], info); 3]);      // as a polled list
//! receiver.finish();                                     // or drop it
//! let report = pipeline.finish()?;
//! assert_eq!((report.packets, report.delivered), (4, 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Flow steering by application, and changes at run time
//!
//! Under `rfs` a flow is processed where its application consumes the data. A handler records that place with
//! [`PacketList::record`], any other thread with a [`FlowRecorder`]. A running receive path can be changed: a change
//! takes effect as a whole or not at all, and each flow stays in order.
//!
//! ```
//! use rxsteer::{CpuId, PacketList, PipelineBuilder, Policy, SteerChange};
//!
//! let builder = PipelineBuilder::new(Policy::Rfs, "0-1".parse()?)
//!     .standby("2-3".parse()?);                 // have workers, though nothing goes there yet
//! let (pipeline, mut receivers) = builder.start(|cpu: CpuId| {
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
//! assert_eq!(report.packets, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Compatibility
//!
//! Configurations, reports and errors are `#[non_exhaustive]`, since new versions add to them. [`Policy`], [`DropReason`]
//! and [`SteerChange`] are not: the compiler reports a new variant or field to a program that lists all of them. Until
//! 1.0, such an addition comes with a new minor version.
#![forbid(unsafe_code)]

mod builder;
pub mod flows;
pub mod forward;
pub mod sink;
pub mod source;

pub use builder::PipelineBuilder;

pub use hdrhistogram::Histogram;
pub use rxsteer_core::counters::SteerCounter;
pub use rxsteer_core::matching::RuleError;
pub use rxsteer_core::policy::Front;
pub use rxsteer_core::{
    Balance, ConfigError, CpuId, CpuSet, CpuSetError, DropReason, Drops, Fallback, FlowHash,
    FlowKey, FlowWords, Move, PacketRule, Policy, PolicyError, QueueName, QueueNameError, Slots,
    SteerConfig, SteerCounts,
};
pub use rxsteer_packet::{
    DissectOptions, Dissection, FlowOfFrame, FrameClass, Hasher, LinkType, Malformed,
    SymmetricHash, Toeplitz, ToeplitzError, TunnelKinds, TunnelKindsError,
};
pub use rxsteer_user::block::MAX_CAPTURED;
pub use rxsteer_user::sys::{allowed_cpus, current_cpu};
pub use rxsteer_user::{
    BacklogProgress, BacklogReport, Block, ChangeError, Control, Count, CpuReport, DEFAULT_BACKLOG,
    DEFAULT_BATCH, DelayCounts, DistinctFlows, DropCounts, FlowRecorder, FrameFlags, FrameInfo,
    FrameMeta, Handler, MAX_BACKLOG, MAX_BATCH, MovedByLoad, MovesByLoad, OnFull, Pace, Packet,
    PacketList, Pipeline, PipelineError, Receiver, Report, RxProgress, Speed, SteerChange,
    StillReceiving, When, WorkerProgress, printable,
};
