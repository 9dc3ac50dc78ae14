//! The output of flow records: one line or row per flow and direction, in the format that the file's ending
//! selects, or as a data set of many files.
//!
//! ```text
//!  FlowRecord ─► Row: addresses masked, hash ─► CSV | JSON lines | Parquet ─► temporary file ─► FILE
//! ```
//!
//! Records are written as they arrive, and none is kept in memory. The file gets its name when it is complete, so
//! a file with that name is always complete.

#![forbid(unsafe_code)]

pub mod anonymize;
pub mod collecting;
mod csv;
mod json_lines;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod partition;
pub mod recording;
mod row;
mod target;
pub mod temporary;

pub use json_lines::Line;
pub use row::{End, Row, View};
pub use target::{PartitionBy, Target};

/// The columns of every format, in this order.
pub const COLUMNS: [&str; 16] = [
    "src",
    "dst",
    "protocol",
    "src_port",
    "dst_port",
    "packets",
    "bytes",
    "tcp_flags",
    "first_ns",
    "last_ns",
    "cpus",
    "per_cpu",
    "shared_packets",
    "shared_bytes",
    "end_reason",
    "hash",
];

/// Takes records. The output is complete only after `close`; a sink that is dropped before that leaves nothing
/// behind.
pub trait Sink: Send {
    /// Writes one record.
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()>;

    /// Writes buffered records and gives the file its name.
    fn close(self: Box<Self>) -> anyhow::Result<()>;
}
