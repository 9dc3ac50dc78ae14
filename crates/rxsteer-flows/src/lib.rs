#![doc = include_str!("../README.md")]
//!
//! # How flows are counted
//!
//! Each CPU counts a flow's packets in a block of its own, so no line of memory goes back and forth
//! between CPUs; which CPUs used a flow is remembered with it, so reading, clearing and freeing visit
//! those and not every CPU there could be. The mechanism is that of Open vSwitch's datapath
//! (ovs-stats: `flow->stats[cpu]` and `cpu_used_mask`), in memory that does not grow with the
//! number of possible CPUs.
//!
//! ```text
//!  writers, one per CPU        index (hash table)      slots: head, block, list of (CPU, block)
//!  FlowWriter::update ───────► key ─► slot ──────────► this CPU's block: packets, bytes, flags, times
//!        │ new flow                                         ▲
//!        ▼                                                  │ sums over the CPUs used
//!  table state: limit, aging, ended ──► FlowTable::collect    FlowTable::{get, for_each}
//! ```
//!
//! What holds:
//!
//! - Every packet that [`FlowWriter::update`] took is in exactly one final record, unless it was cleared.
//! - Totals of a flow never go back between two reads while it is in the table (but by a clear), and packets, bytes, flags and
//!   times of a CPU are as of one moment.
//! - Counting takes no lock, no system call and no memory; a list of packets that brings new flows
//!   takes one lock for the list and one per flow. Where [`FlowTableConfig::max_blocks`] are used up,
//!   CPUs without a block share one for each flow, and its lock.
//! - Memory is bounded by [`FlowTableConfig`]. Under a flood of new flows those of few packets go
//!   first.
#![forbid(unsafe_code)]

mod aging;
mod block;
mod collect;
mod grace;
mod index;
mod lines;
mod mask;
mod pool;
mod record;
mod slots;
mod sync;
mod table;
mod table_state;
mod writer;

pub use mask::{FlowMask, FlowMaskError};
pub use record::{CpuTotals, FlowEnd, FlowPacket, FlowRecord, FlowTotals, SharedTotals};
pub use slots::{FlowSlots, SlotWriter};
pub use table::{FlowTable, FlowTableConfig, FlowTableError, MAX_BLOCKS, MAX_FLOWS};
pub use table_state::FlowCounts;
pub use writer::{FlowWriter, WhenFull};
