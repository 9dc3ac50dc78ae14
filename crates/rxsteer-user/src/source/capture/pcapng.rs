//! The pcapng format: blocks, gathered in sections.
//!
//! ```text
//!  section header │ interface 0 │ interface 1 │ packet │ packet │ … │ section header │ …
//!
//!  each block:  kind │ length │ content, padded to 4 bytes │ length again
//! ```

use super::damage::{Damage, Halt};
use super::interface::{Interface, Ticks};
use super::order::Order;
use super::pcap::too_long;
use super::queues::Queues;
use super::record::{Frame, Step, Time};
use super::window::{MAX_RECORD, Window};
use crate::block::MAX_CAPTURED;
use crate::source::IssueKind;
use pcap_parser::pcapng::{
    InterfaceDescriptionBlock, OptionCode, PcapNGOption, parse_interfacedescriptionblock_be,
    parse_interfacedescriptionblock_le, parse_sectionheaderblock,
};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// The kind and length at the start of a block.
const FRONT: usize = 8;
/// The length at the end of a block.
const BACK: usize = 4;
/// The interface, the time and the two lengths, before the bytes of a packet.
const PACKET_HEAD: usize = 20;

/// The largest number of interfaces in a section.
const MAX_INTERFACES: usize = 65_536;

/// A pcapng file being read.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    /// The interfaces of the current section.
    interfaces: Vec<Interface>,
    section: Section,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// No section has begun.
    None,
    Known,
    /// A section of an unknown version: only the lengths of its blocks are read.
    Unknown,
}

/// The start of a block.
#[derive(Clone, Copy)]
struct Front {
    offset: u64,
    kind: u32,
    length: u32,
}

impl Front {
    fn name(self) -> &'static str {
        match self.kind {
            SECTION_HEADER => "a section header block",
            INTERFACE => "an interface description block",
            OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET => "a packet block",
            _ => "a block",
        }
    }

    #[cold]
    fn damaged(self, why: &str) -> Halt {
        Halt::damage(self.offset, format!("{} is damaged: {why}", self.name()))
    }
}

impl Pcapng {
    pub(super) fn new() -> Pcapng {
        Pcapng { order: Order::Little, interfaces: Vec::new(), section: Section::None }
    }

    /// Reads the next block.
    #[inline]
    pub(super) fn next<'a>(
        &mut self,
        window: &'a mut Window,
        queues: &mut Queues,
    ) -> Result<Step<'a>, Halt> {
        let Some(front) = self.front(window)? else { return Ok(Step::End) };
        match (front.kind, self.section) {
            (SECTION_HEADER, _) => self.section_header(front, window),
            (ENHANCED_PACKET | OBSOLETE_PACKET, Section::Known) => self.packet(front, window),
            (SIMPLE_PACKET, Section::Known) => self.simple_packet(front, window),
            (INTERFACE, Section::Known) => self.interface(front, window, queues),
            (_, Section::None) => {
                Err(front.damaged("the file does not begin with a section header"))
            }
            (kind, section) => {
                self.skip(front, window)?;
                let is_packet = matches!(kind, ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET);
                let left_out = is_packet && section == Section::Unknown;
                Ok(if left_out { Step::LeftOut(None) } else { Step::Other })
            }
        }
    }

    /// Reads the kind and length of the next block; `None` at the end. The window does not move.
    #[inline]
    fn front(&mut self, window: &mut Window) -> Result<Option<Front>, Halt> {
        let offset = window.offset();
        if let Err(missing) = window.need(FRONT) {
            if missing.is_clean_end() {
                return Ok(None);
            }
            return Err(Halt::cut(offset, "the front of a block", FRONT as u64, missing));
        }
        // The kind of a section header has the same value in both byte orders.
        let mut front = Front { offset, kind: self.order.u32(window.data(), 0), length: 0 };
        if front.kind == SECTION_HEADER {
            self.order = byte_order(front, window)?;
        }
        front.length = self.order.u32(window.data(), 4);
        let least = self.least_length(front);
        if front.length < least || !front.length.is_multiple_of(4) {
            let length = front.length;
            let why = format!("its length is {length}, not a multiple of 4 from {least} on");
            return Err(front.damaged(&why));
        }
        Ok(Some(front))
    }

    #[inline]
    fn least_length(&self, front: Front) -> u32 {
        match front.kind {
            SECTION_HEADER => 28,
            _ if self.section == Section::Unknown => (FRONT + BACK) as u32,
            INTERFACE => 20,
            OBSOLETE_PACKET | ENHANCED_PACKET => (FRONT + PACKET_HEAD + BACK) as u32,
            SIMPLE_PACKET => 16,
            _ => (FRONT + BACK) as u32,
        }
    }

    /// Ensures that the whole block is in the window, and returns its length.
    #[inline]
    fn whole(&self, front: Front, window: &mut Window) -> Result<usize, Halt> {
        let length = front.length as usize;
        if length > MAX_RECORD {
            let why = format!("its length is {length}, more than the {MAX_RECORD} it may have");
            return Err(front.damaged(&why));
        }
        window
            .need(length)
            .map_err(|missing| Halt::cut(front.offset, front.name(), length as u64, missing))?;
        self.check_back(front, self.order.u32(window.data(), length - BACK))?;
        Ok(length)
    }

    #[inline]
    fn check_back(&self, front: Front, length: u32) -> Result<(), Halt> {
        if length == front.length {
            return Ok(());
        }
        let why = format!("its length is {} at the start and {length} at the end", front.length);
        Err(front.damaged(&why))
    }

    /// Skips a block of any length.
    fn skip(&self, front: Front, window: &mut Window) -> Result<(), Halt> {
        let length = u64::from(front.length);
        let cut = |missing| Halt::cut(front.offset, front.name(), length, missing);
        window.skip(length - BACK as u64).map_err(cut)?;
        window.need(BACK).map_err(|missing| cut(missing.after(length - BACK as u64)))?;
        self.check_back(front, self.order.u32(window.take(BACK), 0))
    }

    fn section_header<'a>(&mut self, front: Front, window: &mut Window) -> Result<Step<'a>, Halt> {
        let length = self.whole(front, window)?;
        let (_, header) = parse_sectionheaderblock(window.take(length))
            .map_err(|_| front.damaged("it cannot be read"))?;
        self.interfaces.clear();
        let version = (header.major_version, header.minor_version);
        // Some programs write 1.2 for version 1.0. The specification asks readers to accept it.
        if matches!(version, (1, 0 | 2)) {
            self.section = Section::Known;
            return Ok(Step::Other);
        }
        self.section = Section::Unknown;
        let what = format!(
            "section version {}.{} is not supported, 1.0 is: the packets of this section are left \
             out, everything else is read",
            version.0, version.1
        );
        Ok(Step::Refused(Damage { offset: front.offset, what, kind: IssueKind::Unsupported }))
    }

    fn interface<'a>(
        &mut self,
        front: Front,
        window: &mut Window,
        queues: &mut Queues,
    ) -> Result<Step<'a>, Halt> {
        let length = self.whole(front, window)?;
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(front.damaged("the section has too many interfaces, 65536 are read"));
        }
        let parse = match self.order {
            Order::Little => parse_interfacedescriptionblock_le,
            Order::Big => parse_interfacedescriptionblock_be,
        };
        let (_, block) =
            parse(window.take(length)).map_err(|_| front.damaged("it cannot be read"))?;
        let link_number = block.linktype.0 as u32;
        let mut interface = Interface::new(link_number, queues.of_new_interface(), front.offset);
        interface.snap_len = block.snaplen;
        interface.ticks = self.ticks(&block);
        self.interfaces.push(interface);
        Ok(Step::Other)
    }

    /// The time unit of an interface. The library also parses `if_tsresol` and `if_tsoffset`, but it reads options after
    /// their end mark, and always reads the offset as little-endian.
    fn ticks(&self, block: &InterfaceDescriptionBlock<'_>) -> Ticks {
        let (mut resolution, mut offset_s) = (6, 0);
        for option in block.options.iter().take_while(|option| option.code != OptionCode::EndOfOpt)
        {
            match (option.code, value_of(option)) {
                (OptionCode::IfTsresol, &[value, ..]) => resolution = value,
                (OptionCode::IfTsoffset, value) => {
                    if let Ok(value) = value.try_into() {
                        offset_s = self.order.i64(value);
                    }
                }
                _ => {}
            }
        }
        Ticks::new(resolution, offset_s)
    }

    /// An enhanced packet block, or the obsolete packet block, which differs in its first word.
    #[inline]
    fn packet<'a>(&mut self, front: Front, window: &'a mut Window) -> Result<Step<'a>, Halt> {
        let length = self.whole(front, window)?;
        let order = self.order;
        let head = &window.data()[FRONT..FRONT + PACKET_HEAD];
        let index = if front.kind == ENHANCED_PACKET {
            order.u32(head, 0)
        } else {
            u32::from(order.u16(head, 0))
        };
        let ticks = u64::from(order.u32(head, 4)) << 32 | u64::from(order.u32(head, 8));
        let (captured, wire_len) = (order.u32(head, 12), order.u32(head, 16));
        check_captured(front, captured, length - FRONT - PACKET_HEAD - BACK)?;
        let interface = self.interface_of(front, index)?;
        let bytes = &window.take(length)[FRONT + PACKET_HEAD..][..captured as usize];
        Ok(frame_of(interface, index, bytes, wire_len, Some(ticks)))
    }

    /// A simple packet block: of interface 0, without a time, cut at the snap length.
    fn simple_packet<'a>(
        &mut self,
        front: Front,
        window: &'a mut Window,
    ) -> Result<Step<'a>, Halt> {
        let length = self.whole(front, window)?;
        let wire_len = self.order.u32(window.data(), FRONT);
        let interface = self.interface_of(front, 0)?;
        let captured = match interface.snap_len {
            0 => wire_len,
            snap_len => wire_len.min(snap_len),
        };
        check_captured(front, captured, length - FRONT - 4 - BACK)?;
        let bytes = &window.take(length)[FRONT + 4..][..captured as usize];
        Ok(frame_of(interface, 0, bytes, wire_len, None))
    }

    #[inline]
    fn interface_of(&mut self, front: Front, index: u32) -> Result<&mut Interface, Halt> {
        let count = self.interfaces.len();
        self.interfaces.get_mut(index as usize).ok_or_else(|| {
            front
                .damaged(&format!("it is of interface {index}, and the section has {count} so far"))
        })
    }
}

#[inline]
fn frame_of<'a>(
    interface: &mut Interface,
    index: u32,
    bytes: &'a [u8],
    wire_len: u32,
    ticks: Option<u64>,
) -> Step<'a> {
    match interface.link {
        Some(link) => Step::Frame(Frame {
            time: ticks.map_or(Time::None, |ticks| Time::new(interface.ticks.to_ns(ticks))),
            wire_len,
            link,
            rx_queue: interface.rx_queue,
            bytes,
        }),
        None => Step::LeftOut(interface.report_once(&format!("interface {index}"))),
    }
}

#[inline]
fn check_captured(front: Front, captured: u32, room: usize) -> Result<(), Halt> {
    if captured as usize > MAX_CAPTURED {
        return Err(too_long(front.offset, captured));
    }
    if captured as usize > room {
        let why = format!("it claims {captured} captured bytes and has room for {room}");
        return Err(front.damaged(&why));
    }
    Ok(())
}

/// The byte order of a section, from the third word of its header.
fn byte_order(front: Front, window: &mut Window) -> Result<Order, Halt> {
    let need = FRONT + 4;
    window
        .need(need)
        .map_err(|missing| Halt::cut(front.offset, front.name(), need as u64, missing))?;
    [Order::Little, Order::Big]
        .into_iter()
        .find(|order| order.u32(window.data(), FRONT) == BYTE_ORDER)
        .ok_or_else(|| front.damaged("its byte-order mark is invalid"))
}

/// An option's value without its padding.
fn value_of<'a>(option: &'a PcapNGOption<'_>) -> &'a [u8] {
    option.as_bytes().unwrap_or_default()
}
