//! The fields of records: information elements, and the templates that list them.
//!
//! Elements are those of <https://www.iana.org/assignments/ipfix>, and a few of our own for what it lacks: moves, and
//! CPUs. The other direction of a biflow has the same elements under the number 29305 of RFC 5103.

use crate::{End, Row};
use rxsteer_flows::{CpuTotals, FlowEnd, FlowMask, FlowTotals, SharedTotals};
use std::cmp::Reverse;
use std::net::IpAddr;

/// The enterprise number of our own elements. RFC 5612 reserves it for examples, so no vendor has it.
const OURS: u32 = 32473;
/// In our own elements, the bit for the other direction. RFC 5103 leaves this to each enterprise.
const OTHER_DIRECTION: u16 = 0x4000;
/// The enterprise number of the elements of the other direction, RFC 5103.
const REVERSE: u32 = 29305;
/// The bit of an element's number that means that an enterprise number follows.
const ENTERPRISE: u16 = 0x8000;
/// The length of fields that contain their own length.
const VARIABLE: u16 = 0xffff;

pub(super) const TEMPLATE_SET: u16 = 2;
pub(super) const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The number of the first template of records.
const FIRST_TEMPLATE: u16 = 256;
/// The template for the counts of one CPU.
const CPU: u16 = 264;
/// The template of the names and types of our own elements, RFC 5610.
pub(super) const TYPES: u16 = 265;

/// The most CPUs of a direction, so that the record of two directions fits into a message: those with the most packets.
/// The fields of unlisted packets and bytes contain the counts of the others.
const MAX_CPUS: usize = 32;
/// The bytes of a CPU in the list: its number, packets and bytes.
const CPU_BYTES: usize = 2 + 8 + 8;
/// The bytes before the CPUs of a list: its length (3), how its parts relate, and their template.
const LIST_HEADER: usize = 6;
/// "All of" the parts of a list apply, RFC 6313.
const ALL_OF: u8 = 3;

/// The bytes of an Ethernet header, and of a VLAN tag.
const ETHERNET: u64 = 14;
const VLAN_TAG: u64 = 4;

/// One direction of a connection, in the form in which it is sent.
pub(super) struct Half {
    ends: [End; 2],
    protocol: u8,
    interface: u32,
    totals: FlowTotals,
    /// At most [`MAX_CPUS`], by number.
    per_cpu: Vec<CpuTotals>,
    not_listed: SharedTotals,
    moves: u32,
    end: Option<FlowEnd>,
}

impl Half {
    pub(super) fn of(row: &Row<'_>) -> Half {
        let record = row.record;
        let (mut per_cpu, mut not_listed) = (record.per_cpu.clone(), record.shared);
        if per_cpu.len() > MAX_CPUS {
            per_cpu.sort_unstable_by_key(|cpu| (Reverse(cpu.packets), cpu.cpu));
            for cpu in per_cpu.drain(MAX_CPUS..) {
                not_listed.packets += cpu.packets;
                not_listed.bytes += cpu.bytes;
            }
        }
        per_cpu.sort_unstable_by_key(|cpu| cpu.cpu);
        Half {
            ends: row.ends(),
            protocol: row.protocol().unwrap_or(0),
            interface: row.interface_index(),
            totals: record.totals,
            per_cpu,
            not_listed,
            moves: record.moves,
            end: record.end,
        }
    }

    /// The bytes from the IP header on: those on the wire without Ethernet header and VLAN tag. They include padding of
    /// short frames, and anything else before the IP header.
    fn octets(&self) -> u64 {
        let link = ETHERNET + if self.totals.vlan.is_some() { VLAN_TAG } else { 0 };
        self.totals.bytes.saturating_sub(link * self.totals.packets)
    }
}

/// The content of a data record.
pub(super) enum Records {
    One(Half),
    /// Both directions; the one that began first comes first.
    Both(Box<[Half; 2]>),
}

impl Records {
    pub(super) fn both(one: Half, other: Half) -> Records {
        let is_first = one.totals.first_ns <= other.totals.first_ns;
        Records::Both(Box::new(if is_first { [one, other] } else { [other, one] }))
    }

    /// The number of flow records in it.
    pub(super) fn count(&self) -> u32 {
        self.halves().len() as u32
    }

    fn halves(&self) -> &[Half] {
        match self {
            Records::One(half) => std::slice::from_ref(half),
            Records::Both(halves) => &halves[..],
        }
    }

    /// The value of biflowDirection: the source began (1), or the times do not show it (0).
    fn direction(&self) -> u8 {
        self.halves().is_sorted_by(|one, other| one.totals.first_ns < other.totals.first_ns).into()
    }

    fn family(&self) -> Family {
        match self.halves()[0].ends.iter().find_map(|end| end.address) {
            Some(IpAddr::V4(_)) => Family::V4,
            Some(IpAddr::V6(_)) => Family::V6,
            None => Family::None,
        }
    }
}

/// The addresses in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    /// Neither end has an address.
    None,
}

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    SrcAddress,
    DstAddress,
    SrcPrefix,
    DstPrefix,
    Protocol,
    SrcPort,
    DstPort,
    /// Which direction comes first.
    Direction,
    Packets,
    Octets,
    LinkOctets,
    Start,
    End,
    TcpFlags,
    EndReason,
    Vlan,
    Interface,
    Moves,
    PacketsNotListed,
    OctetsNotListed,
    Cpus,
}

/// Our own elements: number, name, and type and meaning as RFC 5610 and RFC 6313 number them.
const OWN: [(u16, &str, u8, u8); 5] = [
    (Own::Cpu as u16, "rxsteerCpu", UNSIGNED_16, IDENTIFIER),
    (Own::Cpus as u16, "rxsteerCpus", SUB_TEMPLATE_LIST, LIST),
    (Own::Moves as u16, "rxsteerMoveDeltaCount", UNSIGNED_32, DELTA),
    (Own::PacketsNotListed as u16, "rxsteerUnlistedPacketDeltaCount", UNSIGNED_64, DELTA),
    (Own::OctetsNotListed as u16, "rxsteerUnlistedLayer2OctetDeltaCount", UNSIGNED_64, DELTA),
];

/// The numbers of our own elements. Collectors rely on them: a number never gets another meaning.
enum Own {
    Cpu = 1,
    Cpus = 2,
    Moves = 3,
    PacketsNotListed = 4,
    OctetsNotListed = 5,
}

const UNSIGNED_16: u8 = 2;
const UNSIGNED_32: u8 = 3;
const UNSIGNED_64: u8 = 4;
const SUB_TEMPLATE_LIST: u8 = 21;
const DELTA: u8 = 3;
const IDENTIFIER: u8 = 4;
const LIST: u8 = 6;

/// An information element.
#[derive(Clone, Copy)]
struct Element {
    enterprise: Option<u32>,
    number: u16,
    length: u16,
}

impl Element {
    const fn standard(number: u16, length: u16) -> Element {
        Element { enterprise: None, number, length }
    }

    const fn own(element: Own, length: u16) -> Element {
        Element { enterprise: Some(OURS), number: element as u16, length }
    }

    /// The same element for the other direction.
    fn reversed(self) -> Element {
        match self.enterprise {
            None => Element { enterprise: Some(REVERSE), ..self },
            Some(_) => Element { number: self.number | OTHER_DIRECTION, ..self },
        }
    }

    fn describe(self, to: &mut Vec<u8>) {
        let flag = if self.enterprise.is_some() { ENTERPRISE } else { 0 };
        put(to, (self.number | flag).to_be_bytes());
        put(to, self.length.to_be_bytes());
        if let Some(enterprise) = self.enterprise {
            put(to, enterprise.to_be_bytes());
        }
    }
}

const PACKETS: Element = Element::standard(2, 8);
const LINK_OCTETS: Element = Element::standard(352, 8);

impl Field {
    /// The fields of each direction.
    const OF_DIRECTION: [Field; 13] = [
        Field::Packets,
        Field::Octets,
        Field::LinkOctets,
        Field::Start,
        Field::End,
        Field::TcpFlags,
        Field::EndReason,
        Field::Vlan,
        Field::Interface,
        Field::Moves,
        Field::PacketsNotListed,
        Field::OctetsNotListed,
        Field::Cpus,
    ];

    fn element(self, family: Family) -> Element {
        let v4 = family == Family::V4;
        let standard = Element::standard;
        match self {
            Field::SrcAddress if v4 => standard(8, 4),
            Field::SrcAddress => standard(27, 16),
            Field::DstAddress if v4 => standard(12, 4),
            Field::DstAddress => standard(28, 16),
            Field::SrcPrefix => standard(if v4 { 9 } else { 29 }, 1),
            Field::DstPrefix => standard(if v4 { 13 } else { 30 }, 1),
            Field::Protocol => standard(4, 1),
            Field::SrcPort => standard(7, 2),
            Field::DstPort => standard(11, 2),
            Field::Direction => standard(239, 1),
            Field::Packets => PACKETS,
            Field::Octets => standard(1, 8),
            Field::LinkOctets => LINK_OCTETS,
            Field::Start => standard(152, 8),
            Field::End => standard(153, 8),
            Field::TcpFlags => standard(6, 2),
            Field::EndReason => standard(136, 1),
            Field::Vlan => standard(58, 2),
            Field::Interface => standard(10, 4),
            Field::Moves => Element::own(Own::Moves, 4),
            Field::PacketsNotListed => Element::own(Own::PacketsNotListed, 8),
            Field::OctetsNotListed => Element::own(Own::OctetsNotListed, 8),
            Field::Cpus => Element::own(Own::Cpus, VARIABLE),
        }
    }

    /// The fields of the key, for records in which the fields of `mask` distinguish flows.
    fn of_key(mask: &FlowMask, family: Family) -> Vec<Field> {
        let (version, whole) = if family == Family::V4 { (4, 32) } else { (6, 128) };
        let [src, dst] = [mask.src_prefix(version), mask.dst_prefix(version)];
        let has_address = family != Family::None;
        let fields = [
            (Field::SrcAddress, has_address && src > 0),
            (Field::SrcPrefix, has_address && src > 0 && src < whole),
            (Field::DstAddress, has_address && dst > 0),
            (Field::DstPrefix, has_address && dst > 0 && dst < whole),
            (Field::Protocol, mask.has_protocol()),
            (Field::SrcPort, mask.has_src_port()),
            (Field::DstPort, mask.has_dst_port()),
        ];
        fields.into_iter().filter_map(|(field, is_there)| is_there.then_some(field)).collect()
    }

    fn write(self, half: &Half, to: &mut Vec<u8>) {
        let [src, dst] = half.ends;
        let totals = &half.totals;
        match self {
            Field::SrcAddress => address(src.address, to),
            Field::DstAddress => address(dst.address, to),
            Field::SrcPrefix => to.push(src.prefix as u8),
            Field::DstPrefix => to.push(dst.prefix as u8),
            Field::Protocol => to.push(half.protocol),
            Field::SrcPort => put(to, src.port.unwrap_or(0).to_be_bytes()),
            Field::DstPort => put(to, dst.port.unwrap_or(0).to_be_bytes()),
            // For both directions; see `Template::write`.
            Field::Direction => {}
            Field::Packets => put(to, totals.packets.to_be_bytes()),
            Field::Octets => put(to, half.octets().to_be_bytes()),
            Field::LinkOctets => put(to, totals.bytes.to_be_bytes()),
            Field::Start => put(to, (totals.first_ns / 1_000_000).to_be_bytes()),
            Field::End => put(to, (totals.last_ns / 1_000_000).to_be_bytes()),
            Field::TcpFlags => put(to, u16::from(totals.tcp_flags).to_be_bytes()),
            Field::EndReason => to.push(end_reason(half.end)),
            Field::Vlan => put(to, totals.vlan.unwrap_or(0).to_be_bytes()),
            Field::Interface => put(to, half.interface.to_be_bytes()),
            Field::Moves => put(to, half.moves.to_be_bytes()),
            Field::PacketsNotListed => put(to, half.not_listed.packets.to_be_bytes()),
            Field::OctetsNotListed => put(to, half.not_listed.bytes.to_be_bytes()),
            Field::Cpus => cpus(&half.per_cpu, to),
        }
    }
}

/// The values of flowEndReason.
fn end_reason(end: Option<FlowEnd>) -> u8 {
    match end {
        Some(FlowEnd::Idle) => 1,
        Some(FlowEnd::Active) | None => 2,
        Some(FlowEnd::Finished) => 4,
        Some(FlowEnd::Evicted) => 5,
    }
}

pub(super) fn put<const N: usize>(to: &mut Vec<u8>, bytes: [u8; N]) {
    to.extend_from_slice(&bytes);
}

fn address(address: Option<IpAddr>, to: &mut Vec<u8>) {
    match address {
        Some(IpAddr::V4(address)) => put(to, address.octets()),
        Some(IpAddr::V6(address)) => put(to, address.octets()),
        // No template has a field for an omitted address.
        None => {}
    }
}

/// A list of parts of the template [`CPU`], RFC 6313.
fn cpus(per_cpu: &[CpuTotals], to: &mut Vec<u8>) {
    let length = LIST_HEADER - 3 + per_cpu.len() * CPU_BYTES;
    to.push(255);
    put(to, (length as u16).to_be_bytes());
    to.push(ALL_OF);
    put(to, CPU.to_be_bytes());
    for cpu in per_cpu {
        put(to, cpu.cpu.get().to_be_bytes());
        put(to, cpu.packets.to_be_bytes());
        put(to, cpu.bytes.to_be_bytes());
    }
}

/// Whether the fields of `mask` are the same for both ends, so that the key of a reply is the reversed key.
pub(super) fn have_reverse(mask: &FlowMask) -> bool {
    let both = |version| {
        let [src, dst] = [mask.src_prefix(version), mask.dst_prefix(version)];
        src == dst && src > 0
    };
    both(4) && both(6) && mask.has_src_port() == mask.has_dst_port()
}

/// The fields of records of one family, in one direction or both.
pub(super) struct Template {
    pub(super) number: u16,
    family: Family,
    is_biflow: bool,
    /// The key, and a biflow's information about its directions.
    fields: Vec<Field>,
}

/// The templates of records in which the fields of `mask` distinguish flows.
pub(super) fn templates(mask: &FlowMask) -> Vec<Template> {
    let kinds = [
        (Family::V4, false),
        (Family::V6, false),
        (Family::None, false),
        (Family::V4, true),
        (Family::V6, true),
    ];
    let numbers = FIRST_TEMPLATE..;
    let templates = kinds.into_iter().zip(numbers).map(|((family, is_biflow), number)| {
        let mut fields = Field::of_key(mask, family);
        if is_biflow {
            fields.push(Field::Direction);
        }
        Template { number, family, is_biflow, fields }
    });
    templates.filter(|template| !template.is_biflow || have_reverse(mask)).collect()
}

impl Template {
    pub(super) fn is_of(&self, records: &Records) -> bool {
        self.family == records.family() && self.is_biflow == matches!(records, Records::Both(_))
    }

    /// The elements in order.
    fn elements(&self) -> impl Iterator<Item = Element> {
        let element = |field: &Field| field.element(self.family);
        let first = self.fields.iter().chain(&Field::OF_DIRECTION).map(element);
        let other = Field::OF_DIRECTION.iter().filter(|_| self.is_biflow);
        first.chain(other.map(move |field| element(field).reversed()))
    }

    /// Writes the template.
    pub(super) fn describe(&self, to: &mut Vec<u8>) {
        describe(self.number, &self.elements().collect::<Vec<_>>(), to);
    }

    /// The bytes of a record.
    pub(super) fn length(&self, records: &Records) -> usize {
        let fixed = self.elements().filter(|element| element.length != VARIABLE);
        let list = |half: &Half| LIST_HEADER + half.per_cpu.len() * CPU_BYTES;
        fixed.map(|element| usize::from(element.length)).sum::<usize>()
            + records.halves().iter().map(list).sum::<usize>()
    }

    pub(super) fn write(&self, records: &Records, to: &mut Vec<u8>) {
        let halves = records.halves();
        for field in &self.fields {
            match field {
                Field::Direction => to.push(records.direction()),
                field => field.write(&halves[0], to),
            }
        }
        for half in halves {
            Field::OF_DIRECTION.iter().for_each(|field| field.write(half, to));
        }
    }
}

fn describe(number: u16, elements: &[Element], to: &mut Vec<u8>) {
    put(to, number.to_be_bytes());
    put(to, (elements.len() as u16).to_be_bytes());
    elements.iter().for_each(|element| element.describe(to));
}

/// Writes the template for the counts of one CPU.
pub(super) fn describe_cpu(to: &mut Vec<u8>) {
    describe(CPU, &[Element::own(Own::Cpu, 2), PACKETS, LINK_OCTETS], to);
}

/// Writes the options template of names and types; its scope is enterprise and element.
pub(super) fn describe_types(to: &mut Vec<u8>) {
    put(to, TYPES.to_be_bytes());
    put(to, 5u16.to_be_bytes());
    put(to, 2u16.to_be_bytes());
    for (number, length) in [(346, 4), (303, 2), (339, 1), (344, 1), (341, VARIABLE)] {
        Element::standard(number, length).describe(to);
    }
}

/// Writes names and types of our own elements. Returns their number.
pub(super) fn write_types(to: &mut Vec<u8>) -> u32 {
    let mut count = 0;
    for (number, name, data_type, meaning) in OWN {
        for (number, prefix) in [(number, ""), (number | OTHER_DIRECTION, "reverse")] {
            // No part of a list has a separate direction.
            if number == Own::Cpu as u16 | OTHER_DIRECTION {
                continue;
            }
            let name = match prefix {
                "" => name.to_owned(),
                // As RFC 5103 names elements: reverseOctetDeltaCount.
                prefix => format!("{prefix}{}{}", name[..1].to_uppercase(), &name[1..]),
            };
            put(to, OURS.to_be_bytes());
            put(to, number.to_be_bytes());
            put(to, [data_type, meaning, name.len() as u8]);
            to.extend_from_slice(name.as_bytes());
            count += 1;
        }
    }
    count
}
