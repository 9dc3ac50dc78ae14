use super::*;
use crate::anonymize::Anonymize;
use crate::{Interface, View};
use rxsteer_core::CpuId;
use rxsteer_flows::{CpuTotals, FlowEnd, FlowRecord, FlowTotals, SharedTotals};
use std::collections::{BTreeMap, HashMap};

const ALL: &str = "src,dst,protocol,src-port,dst-port";

const HEADER: usize = 16;

/// A collector, and an exporter that is connected to it.
fn pair(mask: &str) -> (UdpSocket, Ipfix, View) {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mask: FlowMask = mask.parse().unwrap();
    let to = collector.local_addr().unwrap().to_string();
    let ipfix = Ipfix::connect(&to, &mask, 7, |_| {}).unwrap();
    let anonymize = Anonymize::new(None, None).unwrap();
    (collector, ipfix, View { mask, anonymize, interfaces: vec![] })
}

fn record(ip_version: u8, packets: u64) -> FlowRecord {
    let mut record = FlowRecord::default();
    record.key.ip_version = ip_version;
    record.key.protocol = 6;
    record.key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
    record.key.dst[..4].copy_from_slice(&[10, 0, 0, 2]);
    record.key.dst_port = 443;
    record.totals = FlowTotals {
        packets,
        bytes: 100 * packets,
        tcp_flags: 0x12,
        first_ns: 1_700_000_000_123_456_789,
        last_ns: 1_700_000_001_000_000_000,
        vlan: Some(5),
        rx_queue: 0,
    };
    record.end = Some(FlowEnd::Idle);
    record
}

/// The reply to it, which began a millisecond later.
fn reply(record: &FlowRecord, packets: u64) -> FlowRecord {
    let mut reply = record.clone();
    reply.key = record.key.reversed();
    reply.totals.packets = packets;
    reply.totals.bytes = 1000 * packets;
    reply.totals.first_ns += 1_000_000;
    reply.totals.vlan = None;
    reply.end = Some(FlowEnd::Active);
    reply
}

fn on_cpus(mut record: FlowRecord, cpus: u16, moves: u32) -> FlowRecord {
    let share =
        |cpu| CpuTotals { cpu: CpuId::new(cpu).unwrap(), packets: u64::from(cpu) + 1, bytes: 70 };
    record.per_cpu = (0..cpus).rev().map(share).collect();
    record.moves = moves;
    record
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// An element: enterprise, 0 for none, and number.
type Id = (u32, u16);

/// What a collector reads: the templates, and the records by template.
#[derive(Default)]
struct Collected {
    templates: HashMap<u16, Vec<(Id, u16)>>,
    records: Vec<(u16, BTreeMap<Id, Vec<u8>>)>,
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Collected {
    /// Reads a message. Returns its sequence number and that of the next one.
    fn read(&mut self, message: &[u8]) -> [u32; 2] {
        assert_eq!((word(message, 0), usize::from(word(message, 2))), (10, message.len()));
        assert!(message.len() <= LONGEST);
        let sequence = number(&message[8..12]) as u32;
        let before = self.records.len();
        let mut rest = &message[HEADER..];
        while !rest.is_empty() {
            let header = take(&mut rest, 4);
            let content = take(&mut rest, usize::from(word(header, 2)) - 4);
            match word(header, 0) {
                2 => self.read_templates(content, false),
                3 => self.read_templates(content, true),
                template => self.read_records(template, content),
            }
        }
        [sequence, sequence + (self.records.len() - before) as u32]
    }

    fn read_templates(&mut self, mut rest: &[u8], has_scope: bool) {
        while !rest.is_empty() {
            let header = take(&mut rest, if has_scope { 6 } else { 4 });
            let element = |_| {
                let element = take(&mut rest, 4);
                let (number_and_flag, length) = (word(element, 0), word(element, 2));
                let has_enterprise = number_and_flag & 0x8000 != 0;
                let enterprise = if has_enterprise { number(take(&mut rest, 4)) as u32 } else { 0 };
                ((enterprise, number_and_flag & 0x7fff), length)
            };
            let elements: Vec<_> = (0..word(header, 2)).map(element).collect();
            self.templates.insert(word(header, 0), elements);
        }
    }

    fn read_records(&mut self, template: u16, mut rest: &[u8]) {
        while !rest.is_empty() {
            let mut record = BTreeMap::new();
            for &(id, length) in &self.templates[&template] {
                let length = match length {
                    0xffff => match take(&mut rest, 1)[0] {
                        255 => usize::from(word(take(&mut rest, 2), 0)),
                        short => usize::from(short),
                    },
                    length => usize::from(length),
                };
                assert!(record.insert(id, take(&mut rest, length).to_vec()).is_none(), "{id:?}");
            }
            self.records.push((template, record));
        }
    }

    /// The records of flows.
    fn flows(&self) -> impl Iterator<Item = &BTreeMap<Id, Vec<u8>>> {
        self.records.iter().filter(|(template, _)| *template != 265).map(|(_, record)| record)
    }

    /// The CPUs of a list, each with packets and bytes.
    fn cpus(&self, list: &[u8]) -> Vec<[u64; 3]> {
        assert_eq!(list[0], 3, "all of");
        let template = word(list, 1);
        assert_eq!(self.templates[&template], [((32473, 1), 2), ((0, 2), 8), ((0, 352), 8)]);
        let parts = list[3..].chunks(18);
        parts.map(|cpu| [number(&cpu[..2]), number(&cpu[2..10]), number(&cpu[10..])]).collect()
    }
}

/// Sends records, and returns what a collector reads.
fn collected(mask: &str, records: &[FlowRecord]) -> Collected {
    let (collector, mut ipfix, view) = pair(mask);
    let interface = Interface { name: "eth0".into(), index: 3 };
    records.iter().for_each(|record| ipfix.take(&view.row_of(record, &interface)));
    ipfix.flush();
    assert_eq!(ipfix.counts().records(), records.len() as u64);
    let (mut collected, mut next) = (Collected::default(), 0);
    for at in 0..ipfix.counts().messages() {
        let mut bytes = [0; 65536];
        let length = collector.recv(&mut bytes).unwrap();
        let [sequence, after] = collected.read(&bytes[..length]);
        assert_eq!(sequence, next, "message {at}");
        next = after;
    }
    collected
}

fn values(record: &BTreeMap<Id, Vec<u8>>, enterprise: u32, numbers: &[u16]) -> Vec<u64> {
    numbers.iter().map(|element| number(&record[&(enterprise, *element)])).collect()
}

/// packetDeltaCount, octetDeltaCount, layer2OctetDeltaCount, start and end, flags, reason, VLAN, interface.
const COUNTED: [u16; 9] = [2, 1, 352, 152, 153, 6, 136, 58, 10];

#[test]
fn one_direction_has_all_columns() {
    let records = [4, 6].map(|version| on_cpus(record(version, 9), 2, 7));
    let collected = collected(ALL, &records);
    let flows: Vec<_> = collected.flows().collect();
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[0][&(0, 8)], [10, 0, 0, 1]);
    assert_eq!(flows[0][&(0, 12)], [10, 0, 0, 2]);
    assert_eq!(flows[1][&(0, 27)][..5], [10, 0, 0, 1, 0]);
    for flow in flows {
        assert_eq!(values(flow, 0, &[4, 7, 11]), [6, 0, 443]);
        // Bytes of packets, of frames with their header and tag, and times in milliseconds.
        let [start, end] = [1_700_000_000_123, 1_700_000_001_000];
        let expected = [9, 900 - 9 * 18, 900, start, end, 0x12, 1, 5, 3];
        assert_eq!(values(flow, 0, &COUNTED), expected);
        assert_eq!(values(flow, 32473, &[3, 4, 5]), [7, 0, 0]);
        assert_eq!(collected.cpus(&flow[&(32473, 2)]), [[0, 1, 70], [1, 2, 70]]);
        assert!(!flow.contains_key(&(0, 239)));
    }
}

#[test]
fn both_directions_are_one_record_with_the_first_in_front() {
    let there = on_cpus(record(4, 9), 1, 0);
    let back = on_cpus(reply(&there, 4), 3, 2);
    for records in [[there.clone(), back.clone()], [back, there]] {
        let collected = collected(ALL, &records);
        let [flow] = collected.flows().collect::<Vec<_>>()[..] else { panic!("one record") };
        assert_eq!(flow[&(0, 8)], [10, 0, 0, 1]);
        assert_eq!(values(flow, 0, &[239, 2, 136, 58]), [1, 9, 1, 5]);
        let [start, end] = [1_700_000_000_124, 1_700_000_001_000];
        let expected = [4, 4000 - 4 * 14, 4000, start, end, 0x12, 2, 0, 3];
        assert_eq!(values(flow, 29305, &COUNTED), expected);
        assert_eq!(values(flow, 32473, &[3, 0x4003, 4, 0x4004]), [0, 2, 0, 0]);
        assert_eq!(collected.cpus(&flow[&(32473, 2)]), [[0, 1, 70]]);
        let back = [[0, 1, 70], [1, 2, 70], [2, 3, 70]];
        assert_eq!(collected.cpus(&flow[&(32473, 0x4002)]), back);
    }
    let there = record(4, 9);
    let mut at_once = reply(&there, 4);
    at_once.totals.first_ns = there.totals.first_ns;
    let collected = collected(ALL, &[there, at_once]);
    let directions: Vec<_> = collected.flows().map(|flow| values(flow, 0, &[239])[0]).collect();
    assert_eq!(directions, [0], "it is not known which began");
}

/// Adds up the packets of each key in each direction: whatever is joined, nothing is lost or in two records.
#[test]
fn what_has_no_other_direction_goes_alone() {
    let mut records = Vec::new();
    for port in 0..300u16 {
        let mut there = record(if port % 3 == 0 { 6 } else { 4 }, u64::from(port) + 1);
        there.key.src_port = port;
        // Two records of one direction, as of two interfaces; and the reply to one of them.
        records.extend([there.clone(), there.clone()]);
        if port % 2 == 0 {
            records.push(reply(&there, 1000));
        }
    }
    // Its own reply.
    let mut own = record(4, 5000);
    (own.key.dst, own.key.src_port) = (own.key.src, 443);
    records.extend([own.clone(), own]);
    let collected = collected(ALL, &records);
    let sent: u64 = records.iter().map(|record| record.totals.packets).sum();
    let forward: u64 = collected.flows().map(|flow| values(flow, 0, &[2])[0]).sum();
    let is_biflow = |flow: &&BTreeMap<_, _>| flow.contains_key(&(29305, 2));
    let biflows: Vec<_> = collected.flows().filter(is_biflow).collect();
    let reverse: u64 = biflows.iter().map(|flow| values(flow, 29305, &[2])[0]).sum();
    assert_eq!((forward + reverse, reverse), (sent, 150 * 1000));
    assert_eq!((biflows.len(), collected.flows().count()), (150, records.len() - 150));
}

/// If one end is left out, no key is the reverse of another one.
#[test]
fn keys_without_a_reverse_have_no_biflows() {
    for mask in ["src", "dst-port", "src/24,dst-port", "protocol", "src/24,dst/16"] {
        let there = record(4, 9);
        let collected = collected(mask, &[there.clone(), reply(&there, 4)]);
        assert_eq!(collected.flows().count(), 2, "{mask}");
        assert_eq!(collected.templates.len(), 5, "{mask}");
    }
}

#[test]
fn templates_follow_the_key() {
    let ids = |mask: &str, template| {
        let collected = collected(mask, &[record(4, 1)]);
        collected.templates[&template].iter().map(|(id, _)| *id).collect::<Vec<_>>()
    };
    assert_eq!(ids("src/24,dst-port", 256)[..4], [(0, 8), (0, 9), (0, 11), (0, 2)]);
    assert_eq!(ids("dst-port", 258)[..2], [(0, 11), (0, 2)]);
    let record = record(4, 1);
    let collected = collected("dst-port", std::slice::from_ref(&record));
    assert_eq!(collected.records.last().unwrap().0, 258);
}

/// RFC 5610: the names and types of our own elements. Every one in a template has them.
#[test]
fn own_elements_are_described() {
    let there = record(4, 9);
    let collected = collected(ALL, &[there.clone(), reply(&there, 4)]);
    let types = collected.records.iter().filter(|(template, _)| *template == 265);
    let names: BTreeMap<Id, String> = types
        .map(|(_, one)| {
            let id = (number(&one[&(0, 346)]) as u32, word(&one[&(0, 303)], 0));
            (id, String::from_utf8(one[&(0, 341)].clone()).unwrap())
        })
        .collect();
    let used: Vec<Id> = collected.templates.values().flatten().map(|(id, _)| *id).collect();
    let ours: std::collections::BTreeSet<Id> =
        used.into_iter().filter(|id| id.0 == 32473).collect();
    assert_eq!(names.keys().copied().collect::<Vec<_>>(), ours.into_iter().collect::<Vec<_>>());
    assert_eq!(names[&(32473, 3)], "rxsteerMoveDeltaCount");
    assert_eq!(names[&(32473, 0x4003)], "reverseRxsteerMoveDeltaCount");
}

/// The longest key, both directions, more CPUs than a record lists: messages are within the limit, and packets add up.
#[test]
fn most_cpus_are_listed_and_the_others_added_up() {
    for mask in ["src/24/56,dst/24/56,protocol,src-port,dst-port", ALL] {
        let mut there = on_cpus(record(6, 0), 500, 1);
        there.shared = SharedTotals { packets: 5, bytes: 60 };
        let back = on_cpus(reply(&there, 0), 500, 1);
        let collected = collected(mask, &[there, back]);
        let [flow] = collected.flows().collect::<Vec<_>>()[..] else { panic!("one record") };
        for direction in [0, 0x4000] {
            let cpus = collected.cpus(&flow[&(32473, 2 | direction)]);
            let numbers: Vec<u64> = cpus.iter().map(|[cpu, ..]| *cpu).collect();
            assert_eq!(numbers, (468..500).collect::<Vec<_>>(), "those with the most packets");
            let others = values(flow, 32473, &[4 | direction, 5 | direction]);
            assert_eq!(others, [5 + (1..=468).sum::<u64>(), 60 + 468 * 70]);
        }
    }
}

#[test]
fn a_direction_does_not_wait_for_longer_than_a_few_seconds() {
    let (collector, mut ipfix, view) = pair(ALL);
    ipfix.take(&view.row(&record(4, 1)));
    let started = Instant::now();
    while ipfix.counts().records() == 0 && started.elapsed() < Duration::from_secs(60) {
        ipfix.tick();
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut received = Collected::default();
    for _ in 0..ipfix.counts().messages() {
        let mut bytes = [0; 65536];
        let length = collector.recv(&mut bytes).unwrap();
        received.read(&bytes[..length]);
    }
    assert_eq!(received.flows().count(), 1);
}

#[test]
fn what_the_network_refuses_is_counted() {
    let (collector, mut ipfix, view) = pair("src");
    drop(collector);
    let one = record(4, 1);
    // The answer to the first message comes with the second one.
    for _ in 0..3 {
        ipfix.take(&view.row(&one));
        ipfix.flush();
        std::thread::sleep(Duration::from_millis(50));
    }
    let counts = ipfix.counts();
    assert_eq!(counts.records() + counts.lost(), 3);
    assert!(counts.lost() > 0);
    for bad in ["nowhere", "127.0.0.1:0", "127.0.0.1", "no.such.host.invalid:4739"] {
        assert!(Ipfix::connect(bad, &FlowMask::ALL, 0, |_| {}).is_err(), "{bad}");
    }
}
