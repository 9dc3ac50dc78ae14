//! The pcap format: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-03.html>.
//!
//! Times are in nanoseconds. Numbers are in the byte order of this machine, which the magic number shows.
//!
//! Two fixed-size layouts are written here, because the crates for it do not fit. `pcap-file` 3 is a release candidate.
//! It keeps the writer private, so an output could not be flushed or cut at whole records. `pcap-parser` allocates memory
//! for each packet that it writes.

use crate::block::{FrameMeta, MAX_CAPTURED};
use rxsteer_packet::LinkType;

/// Bytes before the first record.
pub(super) const FILE_HEADER: usize = 24;
/// Bytes of a record in addition to its frame.
pub(super) const RECORD_HEADER: usize = 16;

/// The magic number of files whose times are in nanoseconds.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const NS_PER_S: u64 = 1_000_000_000;

/// The file header of `link` frames: version 2.4, times in UTC, the longest frame that rxsteer accepts.
pub(super) fn file_header(link: LinkType) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[0..4].copy_from_slice(&MAGIC_NANOSECONDS.to_ne_bytes());
    header[4..6].copy_from_slice(&2_u16.to_ne_bytes());
    header[6..8].copy_from_slice(&4_u16.to_ne_bytes());
    header[16..20].copy_from_slice(&(MAX_CAPTURED as u32).to_ne_bytes());
    header[20..24].copy_from_slice(&u32::from(link.number()).to_ne_bytes());
    header
}

/// The record header of a frame. Seconds have 32 bits: later times become the last one that fits, in 2106.
#[inline]
pub(super) fn record_header(meta: &FrameMeta) -> [u8; RECORD_HEADER] {
    let (seconds, nanoseconds) = match u32::try_from(meta.timestamp_ns / NS_PER_S) {
        Ok(seconds) => (seconds, (meta.timestamp_ns % NS_PER_S) as u32),
        Err(_) => (u32::MAX, NS_PER_S as u32 - 1),
    };
    let mut header = [0; RECORD_HEADER];
    let words = [seconds, nanoseconds, meta.captured_len, meta.wire_len];
    for (field, word) in header.chunks_exact_mut(4).zip(words) {
        field.copy_from_slice(&word.to_ne_bytes());
    }
    header
}
