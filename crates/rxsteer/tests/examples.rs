//! Runs the examples on captures made here, and checks their output.
#![allow(clippy::expect_used, reason = "a test may panic")]

#[path = "../examples/dns_counter.rs"]
mod dns_counter;
#[path = "../examples/flow_exporter.rs"]
mod flow_exporter;
#[path = "../examples/inline_filter.rs"]
mod inline_filter;
#[path = "../examples/live_talkers.rs"]
mod live_talkers;
#[path = "../examples/top_talkers.rs"]
mod top_talkers;

use etherparse::PacketBuilder;
use simple_dns::{CLASS, Name, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::error::Error;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use tempfile::TempDir;

/// A capture file of Ethernet frames, a millisecond apart.
struct Capture {
    folder: TempDir,
}

impl Capture {
    fn of(frames: &[Vec<u8>]) -> Capture {
        Capture::with(frames, |bytes| bytes)
    }

    /// A capture whose writer stopped before the file was complete.
    fn cut_short(frames: &[Vec<u8>]) -> Capture {
        Capture::with(frames, |mut bytes| {
            bytes.truncate(bytes.len() - 5);
            bytes
        })
    }

    fn with(frames: &[Vec<u8>], change: impl Fn(Vec<u8>) -> Vec<u8>) -> Capture {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            bytes.extend(word.to_le_bytes());
        }
        for (number, frame) in (0..).zip(frames) {
            let len = frame.len() as u32;
            for word in [1_700_000_000, number * 1000, len, len] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(frame);
        }
        let folder = TempDir::new().expect("a folder for the capture");
        std::fs::write(folder.path().join("test.pcap"), change(bytes)).expect("it is written");
        Capture { folder }
    }

    fn name(&self) -> String {
        let path: PathBuf = self.folder.path().join("test.pcap");
        path.to_str().expect("a plain name").to_owned()
    }
}

fn client(number: u8) -> [u8; 4] {
    Ipv4Addr::new(10, 0, 0, number).octets()
}

const SERVER: [u8; 4] = [192, 0, 2, 1];

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a Vec takes it");
    frame
}

fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).tcp(from.1, to.1, 7, 1024);
    let mut frame = Vec::new();
    builder.syn().write(&mut frame, payload).expect("a Vec takes it");
    frame
}

/// A frame that carries no IP packet.
fn arp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

type Run<'a> = &'a dyn Fn(Vec<String>, &mut Vec<u8>) -> Result<(), Box<dyn Error>>;

/// The output of an example.
fn printed(run: Run<'_>, arguments: &[&str]) -> String {
    let mut out = Vec::new();
    let arguments = arguments.iter().map(|&text| text.to_owned()).collect();
    run(arguments, &mut out).expect("it runs");
    String::from_utf8(out).expect("it prints text")
}

/// The error of an example that refuses to run.
fn refused(run: Run<'_>, arguments: &[&str]) -> String {
    let arguments = arguments.iter().map(|&text| text.to_owned()).collect();
    run(arguments, &mut Vec::new()).expect_err("it refuses").to_string()
}

const EXAMPLES: [(&str, Run<'static>); 4] = [
    ("dns_counter", &|arguments, out| dns_counter::run(arguments, out)),
    ("flow_exporter", &|arguments, out| flow_exporter::run(arguments, out)),
    ("inline_filter", &|arguments, out| inline_filter::run(arguments, out)),
    ("top_talkers", &|arguments, out| top_talkers::run(arguments, out)),
];

fn query(id: u16, name: &str) -> Vec<u8> {
    let mut message = simple_dns::Packet::new_query(id);
    let name = Name::new(name).expect("a name");
    let (kind, class) = (QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN));
    message.questions.push(Question::new(name, kind, class, false));
    message.build_bytes_vec().expect("a message")
}

fn no_such_name(id: u16, name: &str) -> Vec<u8> {
    let query = query(id, name);
    let mut message = simple_dns::Packet::parse(&query).expect("a query").into_reply();
    *message.rcode_mut() = RCODE::NameError;
    assert!(message.has_flags(PacketFlag::RESPONSE));
    message.build_bytes_vec().expect("a message")
}

#[test]
fn dns_counter_adds_up_what_all_cpus_counted() {
    let mut frames = Vec::new();
    for number in 1..=40 {
        let client = (client(number), 5000 + u16::from(number));
        let name = if number % 4 == 0 { "Example.ORG" } else { "example.org" };
        frames.push(udp(client, (SERVER, 53), &query(number.into(), name)));
        frames.push(udp((SERVER, 53), client, &no_such_name(number.into(), name)));
    }
    let asked = query(1, "once.example");
    frames.push(udp((client(1), 9), (SERVER, 53), &asked));
    // No DNS port; only DNS ports; truncated by the capture; not IP.
    frames.push(udp((client(1), 9), (SERVER, 54), &asked));
    frames.push(udp((client(1), 9), (SERVER, 53), b"no message"));
    let mut cut = udp((client(1), 9), (SERVER, 53), &asked);
    cut.truncate(50);
    frames.push(cut);
    frames.push(arp());
    let capture = Capture::of(&frames);
    let out = printed(EXAMPLES[0].1, &[&capture.name()]);
    let total = "41 queries, 40 answers (40 no such name), 2 messages that can't be read\n";
    let names = "      40  example.org\n       1  once.example\n";
    assert!(out.ends_with(&format!("{total}{names}")), "{out}");
    let one = printed(EXAMPLES[0].1, &[&capture.name(), "1"]);
    assert!(one.ends_with("      40  example.org\n"), "{one}");
}

#[test]
fn inline_filter_drops_both_directions_of_a_flow() {
    let mut frames = Vec::new();
    for number in 1..=20 {
        let client = (client(number), 4000);
        for (port, packets) in [(23, 3), (443, 2)] {
            for _ in 0..packets {
                frames.push(tcp(client, (SERVER, port), b"x"));
                frames.push(tcp((SERVER, port), client, b"yz"));
            }
        }
    }
    frames.push(arp());
    let capture = Capture::of(&frames);
    let counted = |ports: &[&str]| {
        let name = capture.name();
        let out = printed(EXAMPLES[2].1, &[&[name.as_str()], ports].concat());
        let sum = |word: &str| -> u64 {
            let of = |line: &str| line.split(word).nth(1)?.split(' ').next()?.parse::<u64>().ok();
            out.lines().map(|line| of(line).unwrap_or_else(|| panic!("{line}"))).sum()
        };
        (sum("passed "), sum("dropped "))
    };
    assert_eq!(counted(&["23"]), (20 * 4 + 1, 20 * 6));
    assert_eq!(counted(&["23", "443"]), (1, 20 * 10));
    assert_eq!(counted(&[]), (20 * 10 + 1, 0));
}

#[test]
fn flow_exporter_writes_the_same_records_in_both_forms() {
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for number in 1..=30 {
        let (from, to) = ((client(number), 4000), (SERVER, 443));
        for _ in 0..number {
            frames.push(tcp(from, to, b"four"));
        }
        frames.push(udp(to, from, b""));
        let (client, server) = (Ipv4Addr::from(from.0), Ipv4Addr::from(to.0));
        // 14 + 20 + 20 + 4 bytes each; and 14 + 20 + 8.
        expected
            .push(format!("{client},{server},4000,443,6,2,{number},{}", 58 * u32::from(number)));
        expected.push(format!("{server},{client},443,4000,17,0,1,42"));
    }
    frames.push(arp());
    expected.sort();
    let capture = Capture::of(&frames);
    let name = capture.name();

    let table = printed(EXAMPLES[1].1, &["csv", &name]);
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let columns = reader.headers().expect("a header").clone();
    let records = reader.into_records().collect::<Result<Vec<_>, _>>().expect("a table");
    let fields =
        ["src", "dst", "src_port", "dst_port", "protocol", "tcp_flags", "packets", "bytes"];
    let mut rows = Vec::new();
    for record in &records {
        let field = |name: &str| {
            let at = columns.iter().position(|column| column == name).expect(name);
            record[at].to_owned()
        };
        assert!(field("cpu").parse::<u16>().is_ok(), "{record:?}");
        assert_eq!(field("end"), "finished");
        assert!(field("first_ns") <= field("last_ns"), "{record:?}");
        rows.push(fields.map(field).join(","));
    }
    rows.sort();
    assert_eq!(rows, expected);

    let mut of_json = Vec::new();
    for line in printed(EXAMPLES[1].1, &["jsonl", &name]).lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let mut text = String::new();
        for field in fields {
            match &row[field] {
                serde_json::Value::String(value) => write!(text, "{value},"),
                value => write!(text, "{value},"),
            }
            .expect("a String takes it");
        }
        of_json.push(text.trim_end_matches(',').to_owned());
    }
    of_json.sort();
    assert_eq!(of_json, expected);
}

#[test]
fn top_talkers_names_the_largest_flow() {
    let large = vec![0; 1000];
    let mut frames = vec![udp((client(1), 9), (SERVER, 7), &large); 3];
    frames.extend((2..60).map(|number| udp((client(number), 9), (SERVER, 7), b"x")));
    let capture = Capture::of(&frames);
    let out = printed(EXAMPLES[3].1, &[&capture.name(), "1"]);
    // 14 + 20 + 8 + 1000 bytes each.
    let expected = "CPU 0: 59 flows\n        3126 bytes  10.0.0.1:9 -> 192.0.2.1:7 (protocol 17)\n";
    assert!(out.starts_with(expected), "{out}");
}

#[test]
fn every_example_explains_itself_and_refuses_what_it_cannot_use() {
    for (name, run) in EXAMPLES {
        for flag in ["-h", "--help"] {
            let help = printed(run, &[flag]);
            assert!(help.contains(&format!("Usage: {name} ")), "{help}");
        }
        let form: &[&str] = if name == "flow_exporter" { &["csv"] } else { &[] };
        let why = refused(run, &[form, &["/no/such/capture"]].concat());
        assert!(why.contains("/no/such/capture: there is no such file"), "{name}: {why}");
    }
    for (example, arguments, why) in [
        (0, &[][..], "one capture has to be named"),
        (0, &["a.pcap", "many"], "'many' is not a count of names"),
        (1, &["xml", "a.pcap"], "a form and a capture have to be named"),
        (2, &[], "one capture has to be named"),
        (2, &["a.pcap", "70000"], "'70000' is not a port"),
        (3, &["a.pcap", "2", "3"], "too many arguments"),
    ] {
        let message = refused(EXAMPLES[example].1, arguments);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn live_example_explains_itself_and_names_what_is_missing() {
    let run: Run<'_> = &|arguments, out| live_talkers::run(arguments, out);
    assert!(printed(run, &["--help"]).contains("Usage: live_talkers "));
    assert!(refused(run, &[]).contains("an interface has to be named"));
    assert!(refused(run, &["eth0", "long"]).contains("'long' is not a count of seconds"));
    assert!(refused(run, &["no-such-if"]).contains("no interface 'no-such-if'"));
}

#[test]
fn damaged_capture_is_counted_as_far_as_it_goes_and_named() {
    let frames = [query(1, "a.example"), query(2, "b.example")]
        .map(|message| udp((client(1), 9), (SERVER, 53), &message));
    let capture = Capture::cut_short(&frames);
    let out = printed(EXAMPLES[0].1, &[&capture.name()]);
    assert!(out.contains("test.pcap: byte "), "{out}");
    assert!(out.contains("\n1 queries, "), "{out}");
}
