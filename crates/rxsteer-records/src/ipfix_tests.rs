use super::*;
use crate::anonymize::Anonymize;
use crate::{Interface, View};
use rxsteer_flows::{FlowRecord, FlowTotals};

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

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The sets of a message: number and content.
fn sets(message: &[u8]) -> Vec<(u16, &[u8])> {
    assert_eq!((word(message, 0), usize::from(word(message, 2))), (10, message.len()));
    let (mut at, mut sets) = (HEADER, Vec::new());
    while at < message.len() {
        let length = usize::from(word(message, at + 2));
        sets.push((word(message, at), &message[at + 4..at + length]));
        at += length;
    }
    sets
}

/// Sends records and returns the messages.
fn messages(mask: &str, records: &[FlowRecord]) -> Vec<Vec<u8>> {
    let (collector, mut ipfix, view) = pair(mask);
    let interface = Interface { name: "eth0".into(), index: 3 };
    records.iter().for_each(|record| ipfix.take(&view.row_of(record, &interface)));
    ipfix.flush();
    assert_eq!(ipfix.counts().records(), records.len() as u64);
    let receive = |_| {
        let mut bytes = [0; 65536];
        let length = collector.recv(&mut bytes).unwrap();
        bytes[..length].to_vec()
    };
    (0..ipfix.counts().messages()).map(receive).collect()
}

#[test]
fn templates_come_first_and_records_fit_them() {
    let records: Vec<FlowRecord> = [4, 6, 6, 4].map(|version| record(version, 9)).to_vec();
    let message = &messages("src,dst,protocol,src-port,dst-port", &records)[0];
    let sets = sets(message);
    let numbers: Vec<u16> = sets.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [TEMPLATE_SET, 256, 257, 256]);
    let lengths: Vec<usize> = sets[1..].iter().map(|(_, content)| content.len()).collect();
    assert_eq!(lengths, [62, 2 * 86, 62]);
    let v4 = sets[1].1;
    assert_eq!(v4[..8], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!((v4[8], word(v4, 9), word(v4, 11)), (6, 0, 443));
    let long = |at: usize| u64::from_be_bytes(v4[at..at + 8].try_into().unwrap());
    // Bytes of packets, of frames with their header and tag, and times in milliseconds.
    assert_eq!([long(13), long(21), long(29)], [9, 900 - 9 * 18, 900]);
    assert_eq!([long(37), long(45)], [1_700_000_000_123, 1_700_000_001_000]);
    assert_eq!((word(v4, 53), v4[55], word(v4, 56)), (0x12, 1, 5));
    assert_eq!(v4[58..], [0, 0, 0, 3]);
}

#[test]
fn messages_fit_a_packet_and_are_numbered_by_records() {
    let records: Vec<FlowRecord> =
        (0..500).map(|at| record(if at % 3 == 0 { 6 } else { 4 }, 1)).collect();
    let messages = messages("src,dst,protocol,src-port,dst-port", &records);
    assert!(messages.len() > 10);
    let mut before = 0;
    for (at, message) in messages.iter().enumerate() {
        assert!(message.len() <= LONGEST);
        let sequence = u32::from_be_bytes(message[8..12].try_into().unwrap());
        assert_eq!(sequence, before, "message {at}");
        let sets = sets(message);
        assert_eq!(sets[0].0 == TEMPLATE_SET, at == 0, "templates are not in each message");
        let records = sets.iter().map(|(number, content)| match number {
            256 => content.len() / 62,
            257 => content.len() / 86,
            _ => 0,
        });
        before += records.sum::<usize>() as u32;
    }
    assert_eq!(before, 500);
}

#[test]
fn fields_that_do_not_distinguish_flows_are_left_out() {
    let fields = |mask: &str, family| Field::of(&mask.parse().unwrap(), family);
    let v4 = fields("src/24,dst-port", Family::V4);
    assert_eq!(v4[..3], [Field::SrcAddress, Field::SrcPrefix, Field::DstPort]);
    assert_eq!(fields("dst-port", Family::None)[0], Field::DstPort);
    let messages = messages("dst-port", &[record(4, 1)]);
    assert_eq!(sets(&messages[0])[1].0, 258);
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
