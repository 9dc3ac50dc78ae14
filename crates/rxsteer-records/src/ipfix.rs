//! Records to a collector by IPFIX (RFC 7011) over UDP.
//!
//! ```text
//!  message ≤ 1400 bytes: header (version, length, export time, sequence, domain)
//!                        template set, in the first message and each 30 s
//!                        data set: the records of one template
//! ```
//!
//! There is a template for IPv4, one for IPv6, and one for flows without addresses (`--key dst-port`). Information
//! elements are those of <https://www.iana.org/assignments/ipfix>. The CPUs and moves of a flow have no element there;
//! elements of one's own need a private enterprise number, which this project does not have, so they are left out.
//!
//! The encoding is our own: of the crates for it, netflow_parser (1.0) is for collectors, and ipfixrw (0.1) has had no
//! release since its first.

use crate::Row;
use anyhow::{Context, ensure};
use rxsteer_flows::{FlowEnd, FlowMask};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest message, so that it fits a path of 1500 bytes with IPv6, UDP and some tunnel's headers.
const LONGEST: usize = 1400;

/// How often templates are sent again: a collector that started later waits this long.
const TEMPLATES: Duration = Duration::from_secs(30);

/// How long a record waits for others in its message.
const WAIT: Duration = Duration::from_secs(1);

const VERSION: u16 = 10;
const HEADER: usize = 16;
const TEMPLATE_SET: u16 = 2;
/// The number of the first template.
const FIRST_TEMPLATE: u16 = 256;
/// The bytes of an Ethernet header, and of a VLAN tag.
const ETHERNET: u64 = 14;
const VLAN_TAG: u64 = 4;

/// What became of the records. Any thread may read.
#[derive(Debug, Default)]
pub struct IpfixCounts {
    records: AtomicU64,
    messages: AtomicU64,
    lost: AtomicU64,
}

impl IpfixCounts {
    /// Records in messages that were handed to the network.
    #[must_use]
    pub fn records(&self) -> u64 {
        // ORDER: Relaxed, here and below; figures to look at.
        self.records.load(Ordering::Relaxed)
    }

    /// Messages that were handed to the network.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Records in messages that the network refused. What is lost on the way is not known.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Which of the templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    /// Neither end has an address.
    None,
}

impl Family {
    const ALL: [Family; 3] = [Family::V4, Family::V6, Family::None];

    fn template(self) -> u16 {
        FIRST_TEMPLATE + self as u16
    }

    fn of(row: &Row<'_>) -> Family {
        match row.ends().iter().find_map(|end| end.address) {
            Some(IpAddr::V4(_)) => Family::V4,
            Some(IpAddr::V6(_)) => Family::V6,
            None => Family::None,
        }
    }
}

/// A field of a record: its information element, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    SrcAddress,
    DstAddress,
    SrcPrefix,
    DstPrefix,
    Protocol,
    SrcPort,
    DstPort,
    Packets,
    Octets,
    LinkOctets,
    Start,
    End,
    TcpFlags,
    EndReason,
    Vlan,
    Interface,
}

impl Field {
    /// The number of the element, and the bytes of its values.
    fn element(self, family: Family) -> (u16, u16) {
        let v4 = family == Family::V4;
        match self {
            Field::SrcAddress if v4 => (8, 4),
            Field::SrcAddress => (27, 16),
            Field::DstAddress if v4 => (12, 4),
            Field::DstAddress => (28, 16),
            Field::SrcPrefix => (if v4 { 9 } else { 29 }, 1),
            Field::DstPrefix => (if v4 { 13 } else { 30 }, 1),
            Field::Protocol => (4, 1),
            Field::SrcPort => (7, 2),
            Field::DstPort => (11, 2),
            Field::Packets => (2, 8),
            Field::Octets => (1, 8),
            Field::LinkOctets => (352, 8),
            Field::Start => (152, 8),
            Field::End => (153, 8),
            Field::TcpFlags => (6, 2),
            Field::EndReason => (136, 1),
            Field::Vlan => (58, 2),
            Field::Interface => (10, 4),
        }
    }

    /// The fields of records in which the fields of `mask` distinguish flows.
    fn of(mask: &FlowMask, family: Family) -> Vec<Field> {
        use Field::*;
        let (version, whole) = if family == Family::V4 { (4, 32) } else { (6, 128) };
        let [src, dst] = [mask.src_prefix(version), mask.dst_prefix(version)];
        let has_address = family != Family::None;
        let fields = [
            (SrcAddress, has_address && src > 0),
            (SrcPrefix, has_address && src > 0 && src < whole),
            (DstAddress, has_address && dst > 0),
            (DstPrefix, has_address && dst > 0 && dst < whole),
            (Protocol, mask.has_protocol()),
            (SrcPort, mask.has_src_port()),
            (DstPort, mask.has_dst_port()),
        ];
        let always =
            [Packets, Octets, LinkOctets, Start, End, TcpFlags, EndReason, Vlan, Interface];
        let chosen = fields.into_iter().filter_map(|(field, is_there)| is_there.then_some(field));
        chosen.chain(always).collect()
    }

    fn write(self, row: &Row<'_>, to: &mut Vec<u8>) {
        let [src, dst] = row.ends();
        let totals = &row.record.totals;
        match self {
            Field::SrcAddress => address(src.address, to),
            Field::DstAddress => address(dst.address, to),
            Field::SrcPrefix => to.push(src.prefix as u8),
            Field::DstPrefix => to.push(dst.prefix as u8),
            Field::Protocol => to.push(row.protocol().unwrap_or(0)),
            Field::SrcPort => put(to, src.port.unwrap_or(0).to_be_bytes()),
            Field::DstPort => put(to, dst.port.unwrap_or(0).to_be_bytes()),
            Field::Packets => put(to, totals.packets.to_be_bytes()),
            Field::Octets => put(to, octets(row).to_be_bytes()),
            Field::LinkOctets => put(to, totals.bytes.to_be_bytes()),
            Field::Start => put(to, (totals.first_ns / 1_000_000).to_be_bytes()),
            Field::End => put(to, (totals.last_ns / 1_000_000).to_be_bytes()),
            Field::TcpFlags => put(to, u16::from(totals.tcp_flags).to_be_bytes()),
            Field::EndReason => to.push(end_reason(row.record.end)),
            Field::Vlan => put(to, totals.vlan.unwrap_or(0).to_be_bytes()),
            Field::Interface => put(to, row.interface_index().to_be_bytes()),
        }
    }
}

/// The bytes from the IP header on: those on the wire without Ethernet header and VLAN tag. Padding of short frames, and
/// what else stands before the IP header, count.
fn octets(row: &Row<'_>) -> u64 {
    let totals = &row.record.totals;
    let link = ETHERNET + if totals.vlan.is_some() { VLAN_TAG } else { 0 };
    totals.bytes.saturating_sub(link * totals.packets)
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

fn put<const N: usize>(to: &mut Vec<u8>, bytes: [u8; N]) {
    to.extend_from_slice(&bytes);
}

fn address(address: Option<IpAddr>, to: &mut Vec<u8>) {
    match address {
        Some(IpAddr::V4(address)) => put(to, address.octets()),
        Some(IpAddr::V6(address)) => put(to, address.octets()),
        // No template has a field for an address that is left out.
        None => {}
    }
}

/// Sends records to a collector.
pub struct Ipfix {
    socket: UdpSocket,
    collector: SocketAddr,
    domain: u32,
    /// The fields of each template.
    templates: [Vec<Field>; 3],
    /// When templates were sent last.
    sent_templates: Option<Instant>,
    message: Message,
    /// Data records sent before the present message, modulo 2³².
    sequence: u32,
    say: fn(&str),
    /// Whether a failure was said since records last went out.
    is_said: bool,
    counts: Arc<IpfixCounts>,
}

/// The message that is being filled.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    /// Where the present data set begins, and of which template it is.
    set: Option<(usize, Family)>,
    records: u32,
    begun: Option<Instant>,
}

impl Message {
    /// Ends a set: its length is known now.
    fn end_set(&mut self) {
        if let Some((begin, _)) = self.set.take() {
            self.set_length(begin, begin + 2);
        }
    }

    /// Writes the length of what begins at `begin` to `at`.
    fn set_length(&mut self, begin: usize, at: usize) {
        let length = (self.bytes.len() - begin) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

impl Ipfix {
    /// Connects to `HOST:PORT`. Records are of flows that the fields of `mask` distinguish. `domain` is the observation
    /// domain, which distinguishes exporters of one host.
    pub fn connect(
        collector: &str,
        mask: &FlowMask,
        domain: u32,
        say: fn(&str),
    ) -> anyhow::Result<Ipfix> {
        let failed = || {
            format!(
                "can't send flow records to {collector}; --ipfix takes HOST:PORT, e.g. 192.0.2.1:4739"
            )
        };
        let found = collector.to_socket_addrs().with_context(failed)?.next();
        let collector = found.with_context(failed)?;
        let any: SocketAddr = match collector {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        ensure!(collector.port() != 0, "{}: port 0 is none", failed());
        let socket = UdpSocket::bind(any).with_context(failed)?;
        socket.connect(collector).with_context(failed)?;
        // A full send buffer must not hold up the thread that takes records.
        socket.set_nonblocking(true).with_context(failed)?;
        Ok(Ipfix {
            socket,
            collector,
            domain,
            templates: Family::ALL.map(|family| Field::of(mask, family)),
            sent_templates: None,
            message: Message::default(),
            sequence: 0,
            say,
            is_said: false,
            counts: Arc::default(),
        })
    }

    /// Where the records go.
    #[must_use]
    pub fn collector(&self) -> SocketAddr {
        self.collector
    }

    /// The counts, for any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<IpfixCounts> {
        self.counts.clone()
    }

    /// Takes a record; it is sent when its message is full, or a second later.
    pub fn take(&mut self, row: &Row<'_>) {
        let family = Family::of(row);
        let fields = &self.templates[family as usize];
        let length: usize = fields.iter().map(|field| usize::from(field.element(family).1)).sum();
        // A new set has a header of 4 bytes.
        if self.message.begun.is_some() && self.message.bytes.len() + 4 + length > LONGEST {
            self.flush();
        }
        if self.message.begun.is_none() {
            self.begin();
        }
        let Message { bytes, set, .. } = &mut self.message;
        if set.is_none_or(|(_, of)| of != family) {
            self.message.end_set();
            let bytes = &mut self.message.bytes;
            self.message.set = Some((bytes.len(), family));
            put(bytes, family.template().to_be_bytes());
            put(bytes, [0; 2]);
        } else {
            debug_assert!(bytes.len() >= HEADER);
        }
        let bytes = &mut self.message.bytes;
        self.templates[family as usize].iter().for_each(|field| field.write(row, bytes));
        self.message.records += 1;
    }

    /// Sends a message that waited long enough. To be called some times a second.
    pub fn tick(&mut self) {
        if self.message.begun.is_some_and(|begun| begun.elapsed() >= WAIT) {
            self.flush();
        }
    }

    /// Sends the present message.
    pub fn flush(&mut self) {
        if self.message.begun.is_none() {
            return;
        }
        self.message.end_set();
        self.message.set_length(0, 2);
        let Message { bytes, records, .. } = std::mem::take(&mut self.message);
        // ORDER: Relaxed, throughout; figures to look at.
        match self.socket.send(&bytes) {
            Ok(_) => {
                self.is_said = false;
                self.counts.messages.fetch_add(1, Ordering::Relaxed);
                self.counts.records.fetch_add(records.into(), Ordering::Relaxed);
            }
            Err(error) => {
                let lost = self.counts.lost.fetch_add(records.into(), Ordering::Relaxed);
                // The collector may have started anew, and know no template.
                self.sent_templates = None;
                if !std::mem::replace(&mut self.is_said, true) && lost == 0 {
                    let why = match error.kind() {
                        ErrorKind::PermissionDenied => format!(
                            "This host lets nothing go there: a firewall, or below systemd the unit (systemctl edit, \
                             [Service] IPAddressAllow={}).",
                            self.collector.ip()
                        ),
                        _ => "Is a collector listening there?".to_owned(),
                    };
                    (self.say)(&format!(
                        "{} flow records did not reach {}: {error}. {why} Records that are refused are counted, and \
                         this is said once",
                        records, self.collector
                    ));
                }
            }
        }
        // A collector finds lost messages by gaps.
        self.sequence = self.sequence.wrapping_add(records);
    }

    /// Begins a message, with the templates if it is time.
    fn begin(&mut self) {
        let bytes = &mut self.message.bytes;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        put(bytes, VERSION.to_be_bytes());
        put(bytes, [0; 2]);
        put(bytes, (unix as u32).to_be_bytes());
        put(bytes, self.sequence.to_be_bytes());
        put(bytes, self.domain.to_be_bytes());
        self.message.begun = Some(Instant::now());
        if self.sent_templates.is_some_and(|sent| sent.elapsed() < TEMPLATES) {
            return;
        }
        self.sent_templates = Some(Instant::now());
        let begin = bytes.len();
        put(bytes, TEMPLATE_SET.to_be_bytes());
        put(bytes, [0; 2]);
        for family in Family::ALL {
            let fields = &self.templates[family as usize];
            put(bytes, family.template().to_be_bytes());
            put(bytes, (fields.len() as u16).to_be_bytes());
            for field in fields {
                let (element, length) = field.element(family);
                put(bytes, element.to_be_bytes());
                put(bytes, length.to_be_bytes());
            }
        }
        self.message.set_length(begin, begin + 2);
    }
}

#[cfg(test)]
#[path = "ipfix_tests.rs"]
mod tests;
