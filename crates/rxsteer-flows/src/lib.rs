#![doc = include_str!("../README.md")]
//!
//! # How flows are counted
//!
//! Each CPU counts a flow's packets in a separate block, so no cache line moves back and forth between CPUs. The table
//! records which CPUs used a flow, so reading, clearing and freeing visit only those CPUs. The mechanism is that of Open
//! vSwitch's datapath (ovs-stats: `flow->stats[cpu]` and `cpu_used_mask`), in memory that does not grow with the number
//! of possible CPUs.
//!
//! ```text
//!  writers, one per CPU        index (hash table)      slots: head, block, list of (CPU, block)
//!  FlowWriter::update ───────► key ─► slot ──────────► this CPU's block: packets, bytes, flags, times
//!        │ new flow                                         ▲
//!        ▼                                                  │ sums over the CPUs used
//!  table state: limit, aging, ended ──► FlowTable::collect    FlowTable::{get, for_each}
//! ```
//!
//! Guarantees:
//!
//! - Every packet that [`FlowWriter::update`] accepted is in exactly one final record, unless it was cleared.
//! - While a flow is in the table, its totals never decrease between two reads, except by a clear. The packets,
//!   bytes, flags and times of a CPU are as of one moment.
//! - Counting takes no lock, makes no system call and allocates no memory. A list of packets with new flows takes
//!   one lock for the list and one per flow. When [`FlowTableConfig::max_blocks`] are used up, the CPUs without a
//!   block share one block per flow, and its lock.
//! - Memory is bounded by [`FlowTableConfig`]. Under a flood of new flows, flows of few packets are evicted first.
//!
//! # Files
//!
//! - `block.rs`: one CPU's counts
//! - `slots.rs`: a flow's blocks and CPU list
//! - `index.rs`: from key to slot
//! - `writer.rs`: counting
//! - `table_state.rs`, `aging.rs`: limits and eviction
//! - `grace.rs`, `collect.rs`: removing flows without blocking writers
//! - `lines.rs`, `pool.rs`: memory
//! - `mask.rs`: fields that make a flow
//! - `record.rs`: the record of one flow
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
