//! The pcap format: a file header, then records.
//!
//! ```text
//!  header 24 bytes │ seconds, fraction, captured, original: 16 bytes │ frame │ …
//!                    ("modified": 8 bytes more)
//! ```

use super::damage::Halt;
use super::interface::Interface;
use super::order::Order;
use super::queues::Queues;
use super::record::{Frame, Step, Time};
use super::window::Window;
use crate::block::MAX_CAPTURED;
use pcap_parser::pcap::parse_pcap_header;

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const MODIFIED_RECORD_HEADER: usize = 24;
/// The bits of the link type field that hold the link type. The others describe frame checksums.
const LINK_BITS: u32 = 0x03ff_ffff;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// A pcap file being read.
#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    record_header: usize,
    ns_per_fraction: u64,
    minor_version: u16,
    interface: Interface,
}

impl Pcap {
    /// Reads the file header.
    pub(super) fn open(window: &mut Window, queues: &mut Queues) -> Result<Pcap, Halt> {
        window
            .need(FILE_HEADER)
            .map_err(|missing| Halt::cut(0, "the file header", FILE_HEADER as u64, missing))?;
        let mut header = [0; FILE_HEADER];
        header.copy_from_slice(window.take(FILE_HEADER));
        let (order, magic) = magic_of(&header);
        // The library does not support the modified form in big-endian order, whose file header is the same.
        let plain = match order {
            Order::Little => MICROSECONDS.to_le_bytes(),
            Order::Big => MICROSECONDS.to_be_bytes(),
        };
        header[..4].copy_from_slice(&plain);
        let (_, header) = parse_pcap_header(&header)
            .map_err(|_| Halt::damage(0, "the file header is not that of a pcap file"))?;
        if header.version_major != 2 {
            let (major, minor) = (header.version_major, header.version_minor);
            let what =
                format!("version {major}.{minor} of the pcap format is not supported, 2.x is");
            return Err(Halt::damage(4, what));
        }
        let link_number = header.network.0 as u32 & LINK_BITS;
        Ok(Pcap {
            order,
            record_header: if magic == MODIFIED { MODIFIED_RECORD_HEADER } else { RECORD_HEADER },
            ns_per_fraction: if magic == NANOSECONDS { 1 } else { 1000 },
            minor_version: header.version_minor,
            interface: Interface::new(link_number, queues.of_new_interface(), 20),
        })
    }

    /// Reads the next record.
    #[inline]
    pub(super) fn next<'a>(&mut self, window: &'a mut Window) -> Result<Step<'a>, Halt> {
        let offset = window.offset();
        if let Err(missing) = window.need(self.record_header) {
            if missing.is_clean_end() {
                return Ok(Step::End);
            }
            let need = self.record_header as u64;
            return Err(Halt::cut(offset, "a packet record's header", need, missing));
        }
        let header = window.data();
        let seconds = u64::from(self.order.u32(header, 0));
        let fraction = u64::from(self.order.u32(header, 4));
        let (captured, wire_len) =
            self.lengths(self.order.u32(header, 8), self.order.u32(header, 12));
        if captured as usize > MAX_CAPTURED {
            return Err(too_long(offset, captured));
        }
        let length = self.record_header + captured as usize;
        window
            .need(length)
            .map_err(|missing| Halt::cut(offset, "a packet record", length as u64, missing))?;
        let Some(link) = self.interface.link else {
            window.take(length);
            return Ok(Step::LeftOut(self.interface.report_once("the file")));
        };
        Ok(Step::Frame(Frame {
            // Both numbers have 32 bits: the latest time is in 2106, or 4000 seconds later.
            time: Time::At(seconds * 1_000_000_000 + fraction * self.ns_per_fraction),
            wire_len,
            link,
            rx_queue: self.interface.rx_queue,
            bytes: &window.take(length)[self.record_header..],
        }))
    }

    /// Captured and original length. Before version 2.3 they were in reverse order, and some programs still wrote them so
    /// in 2.3.
    #[inline]
    fn lengths(&self, first: u32, second: u32) -> (u32, u32) {
        if self.minor_version < 4 && (self.minor_version < 3 || first > second) {
            (second, first)
        } else {
            (first, second)
        }
    }
}

#[cold]
pub(super) fn too_long(offset: u64, captured: u32) -> Halt {
    let what = format!(
        "a packet claims {captured} captured bytes, more than the {MAX_CAPTURED} that any may \
         have: the file is damaged here"
    );
    Halt::damage(offset, what)
}

fn magic_of(header: &[u8; FILE_HEADER]) -> (Order, u32) {
    let little = Order::Little.u32(header, 0);
    if matches!(little, MICROSECONDS | NANOSECONDS | MODIFIED) {
        (Order::Little, little)
    } else {
        (Order::Big, Order::Big.u32(header, 0))
    }
}
