//! Files that are truncated, damaged, or partly unknown.

use super::super::order::Order;
use super::super::testing::*;
use super::formats::{small_pcap, small_pcapng};
use crate::block::MAX_CAPTURED;
use crate::source::{IssueKind, Source, SourceIssue};

fn only(issues: &[SourceIssue]) -> (u64, &str) {
    assert_eq!(issues.len(), 1, "{issues:?}");
    (issues[0].offset.expect("the issue has a place"), &issues[0].message)
}

/// Where each record or block ends, and how many frames have been delivered by then.
fn ends(capture: &[u8]) -> Vec<(usize, usize)> {
    let pcapng = capture[0] == 0x0a;
    let mut ends = if pcapng { vec![(0, 0)] } else { vec![(0, 0), (24, 0)] };
    let mut order = Order::Little;
    let mut frames = 0;
    let mut at = ends[ends.len() - 1].0;
    while at < capture.len() {
        if pcapng {
            let kind = order.u32(capture, at);
            if kind == 0x0a0d_0d0a {
                order = if capture[at + 8] == 0x4d { Order::Little } else { Order::Big };
            }
            frames += usize::from([2, 3, 6].contains(&order.u32(capture, at)));
            at += order.u32(capture, at + 4) as usize;
        } else {
            frames += 1;
            at += 16 + order.u32(capture, at + 8) as usize;
        }
        ends.push((at, frames));
    }
    ends
}

#[test]
fn cut_short_at_every_byte() {
    for capture in [small_pcap(), small_pcapng()] {
        let ends = ends(&capture);
        let (whole, _) = read(&capture);
        for length in 4..=capture.len() {
            let (got, issues) = read(&capture[..length]);
            let &(end, count) = ends.iter().rfind(|(end, _)| *end <= length).unwrap();
            assert_eq!(got, whole[..count], "{length} bytes");
            if end == length {
                assert!(issues.is_empty(), "{length} bytes: {issues:?}");
                continue;
            }
            let (offset, message) = only(&issues);
            assert_eq!(offset, end as u64, "{length} bytes: {message}");
            assert!(message.starts_with("cut short in the middle of "), "{message}");
            let have = format!(": {} of ", length - end);
            assert!(message.contains(&have), "{length} bytes: {message}");
            assert_eq!(issues[0].kind, IssueKind::CutShort);
        }
    }
}

#[test]
fn damage_that_mentions_a_cut_is_damage() {
    let capture = small_pcap();
    let mut longer = capture.clone();
    longer[24 + 8..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let (_, issues) = read(&longer);
    assert_eq!(issues[0].kind, IssueKind::Damaged, "{issues:?}");
    let odd = PcapFile::with(Order::Little, MICRO, (2, 4), 281).record((1, 0), 1, b"a").bytes();
    assert_eq!(read(&odd).1[0].kind, IssueKind::Unsupported);
}

#[test]
fn message_says_what_was_used() {
    let capture = small_pcap();
    let (_, issues) = read(&capture[..capture.len() - 2]);
    assert_eq!(
        issues[0].to_string(),
        "memory: byte 59: cut short in the middle of a packet record: 19 of 21 bytes are there; \
         the 2 packets before it were used; get an intact copy for the rest"
    );
}

#[test]
fn compressed_data_cut_short_at_every_byte() {
    for compress in [gzip, zstd] {
        let capture = small_pcap();
        let compressed = compress(&capture);
        let whole = read(&capture).0;
        for length in 0..compressed.len() {
            let cut = compressed[..length].to_vec();
            let reader = Box::new(std::io::Cursor::new(cut));
            let Ok(mut source) =
                super::super::CaptureSource::from_reader("memory", reader, Default::default())
            else {
                continue;
            };
            let (got, issues) = drain(&mut source);
            let (offset, message) = only(&issues);
            assert!(offset <= capture.len() as u64);
            assert!(message.contains("data are cut short"), "{message}");
            assert_eq!(issues[0].kind, IssueKind::CutShort);
            assert_eq!(got, whole[..got.len()]);
        }
    }
}

#[test]
fn damage_within_compressed_data_keeps_what_precedes_it() {
    let mut capture = PcapFile::new(Order::Little, MICRO);
    for number in 0..3000_u32 {
        // The frames cannot be compressed, so that the damage has a known position.
        let frame: Vec<u8> = (0..100_u32)
            .map(|i| ((number * 100 + i).wrapping_mul(0x9e37_79b1) >> 13) as u8)
            .collect();
        capture = capture.record((number, 0), 100, &frame);
    }
    let capture = capture.bytes();
    let whole = read(&capture).0;
    for compress in [gzip, zstd] {
        let mut compressed = compress(&capture);
        let middle = compressed.len() / 2;
        compressed[middle..middle + 64].fill(0xff);
        let (got, issues) = read(&compressed);
        let (_, message) = only(&issues);
        assert!(message.contains("damaged") || message.contains("claims"), "{message}");
        assert!(got.len() > 300, "only {} of 3000 frames before the middle", got.len());
        assert_eq!(got[..300], whole[..300]);
    }
}

#[test]
fn lengths_that_no_packet_has() {
    for claim in [MAX_CAPTURED as u32 + 1, 0x7fff_ffff, 0xffff_fff0, u32::MAX] {
        let pcap = PcapFile::new(Order::Big, MICRO).record((0, 0), 1, b"a");
        let offset = pcap.len() as u64;
        let (got, issues) = read(&pcap.record_header((0, 0), claim, 60).bytes());
        assert_eq!(got.len(), 1);
        let (place, message) = only(&issues);
        assert_eq!(place, offset);
        assert!(message.contains(&format!("claims {claim} captured bytes")), "{message}");

        let pcapng = PcapngFile::new(Order::Little).interface(1, 0).enhanced(0, 0, 1, b"a");
        let offset = pcapng.len() as u64;
        let pcapng = pcapng.block(6, |content| {
            content.u32(0).u32(0).u32(0).u32(claim).u32(60).raw(&[0; 60]);
        });
        let (got, issues) = read(&pcapng.enhanced(0, 0, 1, b"lost").bytes());
        assert_eq!(got.len(), 1);
        assert_eq!(only(&issues).0, offset);
    }
}

/// An invalid block after one frame; returns the number of delivered frames, and the issue.
fn after_bad_block(front: &[u32], rest: &[u8]) -> String {
    let capture = PcapngFile::new(Order::Little).interface(1, 0).enhanced(0, 0, 1, b"a");
    let offset = capture.len() as u64;
    let front: Vec<u8> = front.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (got, issues) = read(&[&capture.bytes()[..], &front, rest].concat());
    assert_eq!(got.len(), 1);
    let (place, message) = only(&issues);
    assert_eq!(place, offset, "{message}");
    message.to_owned()
}

#[test]
fn blocks_with_impossible_lengths() {
    for kind in [0x0a0d_0d0a, 1, 2, 3, 5, 6, 0x0bad] {
        let order = 0x1a2b_3c4d;
        for length in [0, 4, 8, 11, 13, u32::MAX] {
            let message = after_bad_block(&[kind, length, order], &[0; 64]);
            assert!(message.contains("not a multiple of 4"), "{message}");
        }
        // The length is 4 GiB, but the file does not have them.
        let message = after_bad_block(&[kind, u32::MAX - 3, order], &[0; 64]);
        let expected = if matches!(kind, 5 | 0x0bad) { "cut short" } else { "more than the" };
        assert!(message.contains(expected), "{message}");
        // The length at the end of the block differs.
        let message = after_bad_block(&[kind, 64, order], &[9; 64]);
        assert!(
            message.contains("length is 64 at the start and 151587081 at the end"),
            "{message}"
        );
    }
}

#[test]
fn packets_that_do_not_fit_their_block_or_interface() {
    let message = after_bad_block(&[6, 36, 0, 0, 0, 5, 5, 0, 36], &[]);
    assert!(message.contains("claims 5 captured bytes and has room for 4"), "{message}");
    let message = after_bad_block(&[3, 20, 5, 0, 20], &[]);
    assert!(message.contains("claims 5 captured bytes and has room for 4"), "{message}");
    let message = after_bad_block(&[6, 36, 1, 0, 0, 4, 4, 0, 36], &[]);
    assert!(message.contains("of interface 1, and the section has 1 so far"), "{message}");
    let message = after_bad_block(&[0x0a0d_0d0a, 28, 0x1111_1111, 0, 0, 0, 28], &[]);
    assert!(message.contains("byte-order mark"), "{message}");
}

#[test]
fn file_that_begins_with_no_section() {
    let (got, issues) = read(b"\x0a\x0d\x0d\x0aABCDEFGHIJKLMNOP");
    assert!(got.is_empty());
    assert_eq!(only(&issues).0, 0);
}

#[test]
fn unknown_link_types_are_refused_once_by_number() {
    let pcap = PcapFile::with(Order::Little, MICRO, (2, 4), 281).record((0, 0), 1, b"a").record(
        (0, 0),
        1,
        b"b",
    );
    let mut source = source_of(Box::new(std::io::Cursor::new(pcap.bytes())));
    let (got, issues) = drain(&mut source);
    assert!(got.is_empty());
    let (offset, message) = only(&issues);
    assert_eq!(offset, 20);
    assert!(message.contains("link type 281 of the file is not supported"), "{message}");
    assert_eq!(source.skipped_records(), 2);
}

#[test]
fn other_interfaces_and_sections_go_on() {
    let capture = PcapngFile::new(Order::Little)
        .interface(1, 0)
        .interface(189, 0)
        .interface(190, 0)
        .enhanced(1, 0, 1, b"usb")
        .enhanced(0, 0, 1, b"a")
        .enhanced(1, 0, 1, b"usb")
        .section(Order::Big, (3, 1))
        .interface(1, 0)
        .enhanced(7, 0, 1, b"who knows")
        .section(Order::Big, (1, 0))
        .interface(1, 0)
        .enhanced(0, 0, 1, b"b");
    let mut source = source_of(Box::new(std::io::Cursor::new(capture.bytes())));
    let (got, issues) = drain(&mut source);
    assert_eq!(got.iter().map(|g| &g.bytes[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    let messages: Vec<&str> = issues.iter().map(|issue| &issue.message[..]).collect();
    assert_eq!(messages.len(), 2, "interface 2 has no packets: {messages:?}");
    assert!(messages[0].contains("link type 189 of interface 1"), "{messages:?}");
    assert!(messages[1].contains("section version 3.1"), "{messages:?}");
    assert_eq!(source.skipped_records(), 3);
}

#[test]
fn unknown_pcap_version_is_refused_by_number() {
    let (got, issues) = read(&PcapFile::with(Order::Big, MICRO, (7, 1), 1).bytes());
    assert!(got.is_empty());
    assert!(only(&issues).1.contains("version 7.1 of the pcap format"), "{issues:?}");
}

#[test]
fn issues_of_a_file_are_bounded() {
    let mut capture = PcapngFile::new(Order::Little);
    for interface in 0..500 {
        capture = capture.interface(200, 0).enhanced(interface, 0, 1, b"x");
    }
    let (_, issues) = read(&capture.bytes());
    assert_eq!(issues.len(), 64);
    assert!(issues[63].message.ends_with("is not listed)"), "{}", issues[63]);
}

#[test]
fn no_byte_changed_anywhere_does_harm() {
    for capture in [small_pcap(), small_pcapng()] {
        for at in 4..capture.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = capture.clone();
                changed[at] = value;
                let (got, issues) = read(&changed);
                let bytes: usize = got.iter().map(|got| got.bytes.len()).sum();
                assert!(bytes <= capture.len());
                assert!(issues.iter().all(|issue| issue.offset <= Some(capture.len() as u64)));
            }
        }
    }
}
