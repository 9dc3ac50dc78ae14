//! Messages as other programs read them: the collector nfcapd, which writes records to files, and tshark, which names
//! every field.

use rxsteer_core::CpuId;
use rxsteer_flows::{CpuTotals, FlowEnd, FlowMask, FlowRecord, FlowTotals};
use rxsteer_records::anonymize::Anonymize;
use rxsteer_records::ipfix::Ipfix;
use rxsteer_records::{Interface, View};
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn is_missing(test: &str, programs: &[&str]) -> bool {
    let is_there = |name: &&str| Command::new(name).arg("--help").output().is_ok();
    let missing: Vec<&str> = programs.iter().filter(|name| !is_there(name)).copied().collect();
    if !missing.is_empty() {
        let line = format!("SKIPPED collectors::{test}: not installed: {}", missing.join(", "));
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    !missing.is_empty()
}

fn record(ip_version: u8, port: u16, packets: u64, cpus: u16) -> FlowRecord {
    let mut record = FlowRecord::default();
    (record.key.ip_version, record.key.protocol) = (ip_version, 6);
    (record.key.src_port, record.key.dst_port) = (port, 443);
    record.key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
    record.key.dst[..4].copy_from_slice(&[10, 0, 0, 2]);
    record.totals = FlowTotals {
        packets,
        bytes: 100 * packets,
        tcp_flags: 0x1b,
        first_ns: 1_700_000_000_000_000_000,
        last_ns: 1_700_000_001_000_000_000,
        vlan: None,
        rx_queue: 0,
    };
    let share = |cpu| CpuTotals { cpu: CpuId::new(cpu).unwrap(), packets: 1, bytes: 100 };
    record.per_cpu = (0..cpus).map(share).collect();
    (record.moves, record.end) = (3, Some(FlowEnd::Idle));
    record
}

/// Records of connections with both directions, and of flows with one direction, over IPv4 and IPv6.
fn records() -> Vec<FlowRecord> {
    let mut records = Vec::new();
    for port in 1..=300 {
        let there = record(if port % 3 == 0 { 6 } else { 4 }, port, u64::from(port), port % 40);
        if port % 2 == 0 {
            let mut back = there.clone();
            back.key = there.key.reversed();
            (back.totals.packets, back.totals.bytes) = (7, 7000);
            back.totals.first_ns += 1_000_000;
            records.push(back);
        }
        records.push(there);
    }
    records
}

/// Sends some records at a time; `taken` waits until the collector has read them.
fn send(to: &str, records: &[FlowRecord], mut taken: impl FnMut()) {
    let mask = FlowMask::ALL;
    let mut ipfix = Ipfix::connect(to, &mask, 7, |why| panic!("{why}")).unwrap();
    let anonymize = Anonymize::new(None, None).unwrap();
    let view = View { mask, anonymize, interfaces: vec![] };
    let interface = Interface { name: "eth0".into(), index: 3 };
    for some in records.chunks(15) {
        some.iter().for_each(|record| ipfix.take(&view.row_of(record, &interface)));
        ipfix.flush();
        taken();
    }
    let counts = ipfix.counts();
    assert_eq!((counts.records(), counts.lost()), (records.len() as u64, 0));
}

/// A program that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Waits until `is_done`, and fails if that takes a minute.
    fn until(&mut self, what: &str, mut is_done: impl FnMut(&mut Child) -> bool) {
        for _ in 0..3000 {
            if is_done(&mut self.0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{what}");
    }
}

/// The bytes that wait in the socket of a port of 127.0.0.1, if there is one.
fn waiting(port: u16) -> Option<u64> {
    let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
    // The sender's socket has the port as its peer's.
    let local = format!("0100007F:{port:04X}");
    let is_it = |line: &&str| line.split_whitespace().nth(1) == Some(&*local);
    let queues = sockets.lines().find(is_it)?.split_whitespace().nth(4)?;
    u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
}

fn nfdump(folder: &Path, format: &str) -> Vec<Vec<String>> {
    let output = Command::new("nfdump")
        .args(["-R", &folder.display().to_string(), "-q", "-N", "-o", format])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = |line: &str| line.split('|').map(|field| field.trim().to_owned()).collect();
    text.lines().filter(|line| line.contains('|')).map(fields).collect()
}

#[test]
fn nfcapd_counts_both_directions() {
    if is_missing("nfcapd_counts_both_directions", &["nfcapd", "nfdump"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A port that is free now.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut nfcapd = Command::new("nfcapd");
    nfcapd.args(["-p", &port.to_string(), "-b", "127.0.0.1", "-w"]).arg(folder.path());
    nfcapd.stdout(Stdio::null()).stderr(Stdio::null());
    let mut nfcapd = Running(nfcapd.spawn().unwrap());
    nfcapd.until("it does not listen", |_| waiting(port).is_some());
    let records = records();
    // Messages in the buffer of nfcapd's socket can be lost when the buffer is full, or when nfcapd ends.
    send(&format!("127.0.0.1:{port}"), &records, || {
        nfcapd.until("it does not read", |_| waiting(port) == Some(0));
    });
    let id = nfcapd.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    nfcapd.until("it does not end", |nfcapd| nfcapd.try_wait().unwrap().is_some());
    let rows = nfdump(folder.path(), "fmt:%sp|%dp|%pkt|%opkt|%byt|%obyt|%in|%flg");
    let mut rows: Vec<[u64; 7]> =
        rows.iter().map(|row| std::array::from_fn(|column| row[column].parse().unwrap())).collect();
    rows.sort_unstable();
    // A reply counts as output; bytes are those of the IP packets.
    let expected = (1..=300u64).map(|port| {
        let [packets, bytes] = if port % 2 == 0 { [7, 7000 - 7 * 14] } else { [0, 0] };
        [port, 443, port, packets, 86 * port, bytes, 3]
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

/// A message in a frame of a capture of raw IPv4.
fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x45, 0];
    frame.extend((message.len() as u16 + 28).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    for word in [4739, 4739, message.len() as u16 + 8, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(message);
    frame
}

#[test]
fn tshark_names_every_field() {
    if is_missing("tshark_names_every_field", &["tshark"]) {
        return;
    }
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let to = collector.local_addr().unwrap().to_string();
    let mut capture: Vec<u8> = Vec::new();
    // The header of a capture: version 2.4, 65,535 bytes of a frame, raw IP.
    for number in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 101u32] {
        capture.extend(number.to_le_bytes());
    }
    let mut bytes = [0; 65536];
    send(&to, &records()[..60], || {
        while let Ok(length) = collector.recv(&mut bytes) {
            let frame = frame(&bytes[..length]);
            for number in [0, 0, frame.len() as u32, frame.len() as u32] {
                capture.extend(number.to_le_bytes());
            }
            capture.extend(frame);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ipfix.pcap");
    std::fs::write(&file, capture).unwrap();
    let output = Command::new("tshark")
        .args(["-d", "udp.port==4739,cflow", "-V", "-r"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("Malformed"), "{text}");
    let count = |part: &str| text.matches(part).count();
    // 40 ports, half of them with a reply.
    let shown = ["Biflow Direction: Initiator (1)", "Packets: 7 (Reverse Type 2 PKTS)"];
    assert_eq!(shown.map(count), [20, 20], "{text}");
    let ours = "(Example Enterprise Number for Documentation Use) Type";
    let moves = [3, 16387].map(|number| format!("{ours} {number}: Value (hex bytes): 00 00 00 03"));
    assert_eq!([count(&moves[0]), count(&moves[1])], [40, 20], "{text}");
    // All elements of template 264; tshark shows the first one: CPU 0, 1 packet, 100 bytes. Of the 40 flows, one has no
    // CPU, and another has only one.
    let cpus = "03 01 08 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 64 00 01 00";
    assert_eq!(count(&format!("{ours} 2: Value (hex bytes): {cpus}")), 38, "{text}");
    for name in ["rxsteerCpus", "rxsteerMoveDeltaCount", "reverseRxsteerMoveDeltaCount"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}
