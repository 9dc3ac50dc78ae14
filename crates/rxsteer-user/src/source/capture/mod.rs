//! Capture files as a source of frames.
//!
//! ```text
//!  path ──▶ open.rs ────────▶ container.rs ──▶ window.rs ──▶ pcap.rs   ──▶ replay.rs ──▶ Block
//!           all are checked   gzip, zstd,      a bounded     pcapng.rs     time, queue,
//!           before the start  none             piece of it   one record    share, issues
//!                                                            at a time
//! ```
//!
//! It reads pcap (both byte orders, micro- and nanoseconds, and the "modified" form with longer record headers) and
//! pcapng (all packet blocks, any number of sections and interfaces). Both can be uncompressed, or compressed with gzip
//! or zstd. The content determines the format, not the name.
//!
//! Invariants:
//!
//! - No length in a file makes memory grow beyond [`MAX_RECORD`]. A longer record is skipped as a stream, or refused.
//!   Compressed data are only streamed.
//! - Damage ends a file, not the source. The frames before it are delivered, the damage is reported with its byte offset
//!   in the decompressed file, and the next file is read.
//! - An unknown link type or section version is reported by number, once per interface or section, and the rest of the
//!   file is read.
//!
//! The `pcap-parser` crate reads the file header of pcap and the section and interface blocks of pcapng. Other modules do
//! not see it. Packet records are read here, because of four properties of its version 0.17:
//!
//! - It needs a whole record before it returns the record's length. Here the length is checked first, and a truncated
//!   record is reported with the number of bytes present.
//! - It makes a list of options for every packet.
//! - It does not support the modified form in big-endian order.
//! - It refuses every `if_tsresol` that is a power of 2, and always reads `if_tsoffset` as little-endian. So times are
//!   computed here, too.

mod container;
mod damage;
mod interface;
mod open;
mod order;
mod pcap;
mod pcapng;
mod queues;
mod record;
mod replay;
mod window;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use container::Compression;
pub use open::{CaptureOptions, OpenError};
pub use queues::{MAX_RX_QUEUES, RxQueues};
pub use replay::CaptureSource;
pub use window::MAX_RECORD;
