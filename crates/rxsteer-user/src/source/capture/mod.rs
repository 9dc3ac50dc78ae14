//! Capture files as a source of frames.
//!
//! ```text
//!  path ──▶ open.rs ────────▶ container.rs ──▶ window.rs ──▶ pcap.rs   ──▶ replay.rs ──▶ Block
//!           all are checked   gzip, zstd,      a bounded     pcapng.rs     time, queue,
//!           before the start  none             piece of it   one record    share, issues
//!                                                            at a time
//! ```
//!
//! Read are pcap (both byte orders, micro- and nanoseconds, and the "modified" form with longer
//! record headers) and pcapng (all of its packet blocks, any number of sections and interfaces),
//! each as it is or within gzip or zstd, which is known by the content and not by the name.
//!
//! What holds for all of it:
//!
//! - No length in a file makes memory grow beyond [`MAX_RECORD`]; what is longer is skipped as a
//!   stream, or refused. Compressed data are only ever streamed.
//! - Damage ends a file, not the source: what precedes it has been delivered, it is reported with
//!   its byte offset in the file as decompressed, and the next file is read.
//! - An unknown link type or section version is refused by number, once per interface or section,
//!   and the rest of the file goes on.
//!
//! The `pcap-parser` crate reads the file header of pcap and the section and interface blocks of
//! pcapng, and does not show outside this folder. Packet records are read here, because of four
//! things in its version 0.17:
//!
//! - It wants a whole record before it gives the record's length. Here the length is bounded
//!   first, and a record cut short is reported with how much of it is there.
//! - It makes a list of options for every packet.
//! - It does not know the modified form in big-endian order.
//! - It refuses every `if_tsresol` that is a power of 2, and reads `if_tsoffset` as little-endian
//!   whatever the section says, so times are worked out here too.

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
