//! Per-CPU flow statistics with a used-CPU mask.
#![forbid(unsafe_code)]

mod record;

pub use record::{CpuTotals, FlowEnd, FlowPacket, FlowRecord, FlowTotals, SharedTotals};
