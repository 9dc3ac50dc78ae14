//! Sends records to a collector by IPFIX (RFC 7011) over UDP.
//!
//! ```text
//!  Row ─► Half, one direction ─┬─ the other direction is there ─► biflow (RFC 5103) ─┬─► message ─► collector
//!                              └─ 2 s without it ──────────────► record of one ──────┘
//!
//!  message ≤ 1400 bytes: header (version, length, export time, sequence, domain)
//!                        data sets: the records of one template each
//!  each 30 s, a message of templates and of the names of our elements (RFC 5610)
//! ```
//!
//! `fields.rs` has the elements and templates, `pairs.rs` finds the two directions of a connection.
//!
//! This crate encodes IPFIX itself: of the crates for it, netflow_parser (1.0) is for collectors, and ipfixrw (0.1) has
//! had no release since its first one.

mod fields;
mod pairs;

use crate::Row;
use anyhow::{Context, ensure};
use fields::{Half, Records, Template, have_reverse, put};
use pairs::Pairs;
use rxsteer_flows::FlowMask;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest message: it fits a path of 1500 bytes with IPv6, UDP and the headers of some tunnel.
const LONGEST: usize = 1400;

/// How often templates are sent again: a collector that starts later waits at most this long.
const TEMPLATES: Duration = Duration::from_secs(30);

/// How long a record waits for others in its message.
const WAIT: Duration = Duration::from_secs(1);

const VERSION: u16 = 10;

/// The counts of the records. Any thread may read them.
#[derive(Debug, Default)]
pub struct IpfixCounts {
    records: AtomicU64,
    messages: AtomicU64,
    lost: AtomicU64,
}

impl IpfixCounts {
    /// Records in messages that were passed to the network.
    #[must_use]
    pub fn records(&self) -> u64 {
        // ORDER: Relaxed, here and below; these figures are only for display.
        self.records.load(Ordering::Relaxed)
    }

    /// Messages that were passed to the network.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Records in messages that the network refused. Losses on the way are unknown.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Sends records to a collector.
pub struct Ipfix {
    socket: UdpSocket,
    collector: SocketAddr,
    domain: u32,
    templates: Vec<Template>,
    /// Directions that wait for the other one; `None` where keys have no reverse.
    pairs: Option<Pairs>,
    /// When templates were last sent.
    sent_templates: Option<Instant>,
    message: Message,
    /// Data records sent before the present message, modulo 2³².
    sequence: u32,
    report: fn(&str),
    /// Whether a failure was reported since records were last sent.
    is_reported: bool,
    counts: Arc<IpfixCounts>,
}

/// The message that is being filled.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    /// Where the present data set begins, and the number of its template.
    set: Option<(usize, u16)>,
    /// Data records, as the sequence number counts them.
    data_records: u32,
    /// Flow records: a biflow has two.
    flow_records: u32,
    started: Option<Instant>,
}

impl Message {
    /// Begins a set, unless the present one has this number.
    fn begin_set(&mut self, number: u16) {
        if self.set.is_some_and(|(_, of)| of == number) {
            return;
        }
        self.end_set();
        self.set = Some((self.bytes.len(), number));
        put(&mut self.bytes, number.to_be_bytes());
        put(&mut self.bytes, [0; 2]);
    }

    /// Ends a set, and writes its length.
    fn end_set(&mut self) {
        if let Some((begin, _)) = self.set.take() {
            self.set_length(begin, begin + 2);
        }
    }

    /// Writes the length of the part that begins at `begin` to `at`.
    fn set_length(&mut self, begin: usize, at: usize) {
        let length = (self.bytes.len() - begin) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

impl Ipfix {
    /// Connects to `HOST:PORT`. The fields of `mask` distinguish the flows of records. `domain` is the observation
    /// domain, which distinguishes exporters on one host.
    pub fn connect(
        collector: &str,
        mask: &FlowMask,
        domain: u32,
        report: fn(&str),
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
        ensure!(collector.port() != 0, "{}: port 0 is not a valid port", failed());
        let socket = UdpSocket::bind(any).with_context(failed)?;
        socket.connect(collector).with_context(failed)?;
        // A full send buffer must not block the thread that takes records.
        socket.set_nonblocking(true).with_context(failed)?;
        Ok(Ipfix {
            socket,
            collector,
            domain,
            templates: fields::templates(mask),
            pairs: have_reverse(mask).then(Pairs::default),
            sent_templates: None,
            message: Message::default(),
            sequence: 0,
            report,
            is_reported: false,
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

    /// Accepts a record. It is sent together with the other direction, or without it after two seconds; and when its
    /// message is full, or has waited for a second.
    pub fn take(&mut self, row: &Row<'_>) {
        let half = Half::of(row);
        self.send_alone(Pairs::take_old);
        let complete = match &mut self.pairs {
            Some(pairs) => pairs.take(row.record.key, half),
            None => Some(Records::One(half)),
        };
        if let Some(records) = complete {
            self.add(&records);
        }
    }

    /// Sends what has waited long enough. The caller must call this several times a second.
    pub fn tick(&mut self) {
        self.send_alone(Pairs::take_old);
        if self.message.started.is_some_and(|started| started.elapsed() >= WAIT) {
            self.send();
        }
    }

    /// Sends everything.
    pub fn flush(&mut self) {
        self.send_alone(Pairs::take_any);
        self.send();
    }

    fn send_alone(&mut self, take: fn(&mut Pairs) -> Option<Half>) {
        while let Some(half) = self.pairs.as_mut().and_then(take) {
            self.add(&Records::One(half));
        }
    }

    /// Adds a data record to the message.
    fn add(&mut self, records: &Records) {
        if self.sent_templates.is_none_or(|sent| sent.elapsed() >= TEMPLATES) {
            self.send_templates();
        }
        let found = self.templates.iter().position(|template| template.is_of(records));
        let Some(found) = found else {
            debug_assert!(false, "there is a template for every record");
            return;
        };
        // A new set has a header of 4 bytes.
        let length = 4 + self.templates[found].length(records);
        if self.message.started.is_some() && self.message.bytes.len() + length > LONGEST {
            self.send();
        }
        self.begin();
        let template = &self.templates[found];
        self.message.begin_set(template.number);
        template.write(records, &mut self.message.bytes);
        self.message.data_records += 1;
        self.message.flow_records += records.count();
    }

    /// Sends the present message.
    fn send(&mut self) {
        if self.message.started.is_none() {
            return;
        }
        self.message.end_set();
        self.message.set_length(0, 2);
        let Message { bytes, data_records, flow_records: records, .. } =
            std::mem::take(&mut self.message);
        // ORDER: Relaxed, throughout; these figures are only for display.
        match self.socket.send(&bytes) {
            Ok(_) => {
                self.is_reported = false;
                self.counts.messages.fetch_add(1, Ordering::Relaxed);
                self.counts.records.fetch_add(records.into(), Ordering::Relaxed);
            }
            Err(error) => {
                let lost = self.counts.lost.fetch_add(records.into(), Ordering::Relaxed);
                // The collector may have restarted, and have no templates.
                self.sent_templates = None;
                if !std::mem::replace(&mut self.is_reported, true) && lost == 0 {
                    let why = match error.kind() {
                        ErrorKind::PermissionDenied => format!(
                            "This host blocks packets to it: a firewall, or under systemd the unit (systemctl edit, \
                             [Service] IPAddressAllow={}).",
                            self.collector.ip()
                        ),
                        _ => "Is a collector listening there?".to_owned(),
                    };
                    (self.report)(&format!(
                        "{} flow records did not reach {}: {error}. {why} Further losses are counted, \
                         but not reported here",
                        records, self.collector
                    ));
                }
            }
        }
        // A collector detects lost messages by gaps.
        self.sequence = self.sequence.wrapping_add(data_records);
    }

    /// Begins a message, unless there is one.
    fn begin(&mut self) {
        if self.message.started.is_some() {
            return;
        }
        let bytes = &mut self.message.bytes;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        put(bytes, VERSION.to_be_bytes());
        put(bytes, [0; 2]);
        put(bytes, (unix as u32).to_be_bytes());
        put(bytes, self.sequence.to_be_bytes());
        put(bytes, self.domain.to_be_bytes());
        self.message.started = Some(Instant::now());
    }

    /// Sends the templates, and the names and types of our own elements, in a separate message.
    fn send_templates(&mut self) {
        self.send();
        self.sent_templates = Some(Instant::now());
        self.begin();
        self.message.begin_set(fields::TEMPLATE_SET);
        self.templates.iter().for_each(|template| template.describe(&mut self.message.bytes));
        fields::describe_cpu(&mut self.message.bytes);
        self.message.begin_set(fields::OPTIONS_TEMPLATE_SET);
        fields::describe_types(&mut self.message.bytes);
        self.message.begin_set(fields::TYPES);
        self.message.data_records += fields::write_types(&mut self.message.bytes);
        self.send();
    }
}

#[cfg(test)]
#[path = "ipfix/tests.rs"]
mod tests;
