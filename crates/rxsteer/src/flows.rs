//! Statistics of each flow, counted separately on each CPU: one table, and a writer for each handler.
//!
//! ```
//! use rxsteer::flows::{FlowStats, FlowTable, FlowTableConfig, WhenFull};
//! use rxsteer::{CpuId, PacketList, PipelineBuilder, Policy};
//!
//! let table = FlowTable::new(&FlowTableConfig::new(10_000))?;
//! let builder = PipelineBuilder::new(Policy::Rps, "0-1".parse()?);
//! let (pipeline, mut receivers) = builder.start(|cpu: CpuId| {
//!     let writer = table.writer(cpu).expect("one worker for each CPU");
//!     let mut stats = FlowStats::new(writer, WhenFull::Refuse);
//!     move |list: &PacketList<'_>| stats.record(list)
//! })?;
//! table.for_each(|flow| println!("{}: {} packets", flow.key, flow.totals.packets));
//! table.collect(|flow| println!("over: {}", flow.key)); // to be called now and then
//! receivers.remove(0).finish();
//! let report = pipeline.finish()?;
//! # drop(report);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use rxsteer_flows::{
    CpuTotals, FlowCounts, FlowEnd, FlowMask, FlowMaskError, FlowPacket, FlowRecord, FlowTable,
    FlowTableConfig, FlowTableError, FlowTotals, FlowWriter, SharedTotals, WhenFull,
};
pub use rxsteer_user::FlowStats;
