//! The output of flow records: one line or row per flow and direction, in the format that the file's ending
//! selects, or as a data set of many files.
//!
//! ```text
//!  FlowRecord ─► Row: addresses masked, hash ─► CSV | JSON lines | Parquet ─► temporary file ─► FILE
//! ```
//!
//! Records are written as they arrive, and none is kept in memory. The file gets its name when it is complete, so a
//! file with that name is always complete. Live records go to file after file ([`files::Files`]), and to a collector by
//! IPFIX ([`ipfix::Ipfix`]).
//!
//! # Files
//!
//! - `collecting.rs`: takes records during a run
//! - `recording.rs`: from workers to `outputs.rs`
//! - `row.rs`, and a file per format (`text.rs`)
//! - `partition.rs`: data sets
//! - `temporary.rs`: a file that appears when it is complete
//! - `files.rs`: rotation
//! - `ipfix.rs`, `ipfix/`: IPFIX
//! - `anonymize.rs`: masks addresses

#![forbid(unsafe_code)]

pub mod anonymize;
pub mod collecting;
mod csv;
pub mod files;
pub mod ipfix;
mod json_lines;
pub mod outputs;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod partition;
pub mod recording;
mod row;
mod target;
pub mod temporary;
mod text;

pub use json_lines::Line;
pub use row::{End, Interface, Row, View};
pub use target::{PartitionBy, Target};

/// The columns of every format, in this order.
pub const COLUMNS: [&str; 19] = [
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
    "vlan",
    "interface",
    "moves",
];

/// Accepts records. The output is complete only after `close`; a sink that is dropped before that leaves no file.
pub trait Sink: Send {
    /// Writes one record.
    fn write(&mut self, row: &Row<'_>) -> anyhow::Result<()>;

    /// Passes all records to the system.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// About how many bytes the files of this sink have or will have for the records so far.
    fn bytes(&self) -> u64;

    /// Writes buffered records and gives the file its name.
    fn close(self: Box<Self>) -> anyhow::Result<()>;

    /// Completes the file after a write has failed, with the complete records in it. Returns their numbers. If there
    /// are none, or if the format does not allow this, no file is left.
    fn salvage(self: Box<Self>) -> Written {
        Written::default()
    }
}

/// Numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records.
    pub records: u64,
    /// The sum of their packets.
    pub packets: u64,
}

impl Written {
    /// Adds one record.
    pub(crate) fn add(&mut self, row: &Row<'_>) {
        self.records += 1;
        self.packets += row.record.totals.packets;
    }
}
