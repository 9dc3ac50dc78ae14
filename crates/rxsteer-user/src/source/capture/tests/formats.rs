//! Reads every format to its end.

use super::super::order::Order;
use super::super::testing::*;
use crate::block::MAX_CAPTURED;
use rxsteer_packet::LinkType;
use std::io::Cursor;

#[test]
fn pcap_in_every_form() {
    for order in BOTH {
        for (magic, ns) in [(MICRO, 999_999_000), (NANO, 999_999), (MODIFIED, 999_999_000)] {
            let capture = PcapFile::new(order, magic)
                .record((1_700_000_000, 999_999), 60, b"abc")
                .record((u32::MAX, u32::MAX), u32::MAX, b"")
                .record((0, 0), 1, b"longer than on the wire and than the snap length");
            let (got, issues) = read(&capture.bytes());
            assert!(issues.is_empty(), "{issues:?}");
            assert_eq!(got[0].time, 1_700_000_000_000_000_000 + ns);
            assert_eq!((got[0].wire_len, &got[0].bytes[..]), (60, &b"abc"[..]));
            assert_eq!((got[1].wire_len, got[1].bytes.len()), (u32::MAX, 0));
            assert_eq!((got[2].wire_len, got[2].bytes.len()), (1, 48));
            assert_eq!(got.len(), 3);
        }
    }
}

#[test]
fn old_pcap_versions_have_the_lengths_the_other_way_round() {
    for (minor, first, second) in [(2, 9, 3), (3, 9, 3), (3, 3, 9), (4, 3, 9)] {
        let capture = PcapFile::with(Order::Little, MICRO, (2, minor), 1)
            .record_header((0, 0), first, second)
            .bytes();
        let (got, issues) = read(&[&capture[..], b"abc"].concat());
        assert!(issues.is_empty(), "{issues:?}");
        assert_eq!((got[0].wire_len, &got[0].bytes[..]), (9, &b"abc"[..]), "version 2.{minor}");
    }
}

#[test]
fn link_type_field_may_name_check_sequences() {
    let capture = PcapFile::with(Order::Little, MICRO, (2, 4), 0x1400_0065).record((0, 0), 1, b"E");
    assert_eq!(read(&capture.bytes()).0[0].link, LinkType::Raw);
}

#[test]
fn pcapng_with_every_packet_block() {
    for order in BOTH {
        let capture = PcapngFile::new(order)
            .interface(1, 5)
            .block(0x0bad, |content| {
                content.u32(1).raw(b"custom");
            })
            .enhanced(0, 1_500_000, 90, b"enhanced")
            .block(0x4000_0bad, |content| {
                content.u32(1);
            })
            .obsolete(0, 1_500_001, 91, b"obsolete")
            .block(0x7777_7777, |_| {})
            .simple(92, b"simpl")
            .simple(3, b"abc")
            .enhanced(0, 0, 0, b"");
        let (got, issues) = read(&capture.bytes());
        assert!(issues.is_empty(), "{issues:?}");
        let got: Vec<_> = got.iter().map(|g| (g.time, g.wire_len, &g.bytes[..])).collect();
        let expected: [(u64, u32, &[u8]); 5] = [
            (1_500_000_000, 90, b"enhanced"),
            (1_500_001_000, 91, b"obsolete"),
            // These packets have no time, so they get the latest time so far.
            (1_500_001_000, 92, b"simpl"),
            (1_500_001_000, 3, b"abc"),
            (0, 0, b""),
        ];
        assert_eq!(got, expected);
    }
}

#[test]
fn interfaces_have_their_own_link_type_and_time() {
    let resolution = |value: u8| move |out: &mut Bytes| option(out, 9, &[value]);
    for order in BOTH {
        let capture = PcapngFile::new(order)
            .interface_with(1, 0, resolution(9))
            .interface_with(101, 0, resolution(0x80 | 20))
            .interface_with(113, 0, |out| {
                option(out, 2, b"eth0");
                let hour = Bytes::new(order).u64(3600).bytes.clone();
                option(out, 14, &hour);
                option(out, 0, b"");
                // Options after the end mark do not count.
                option(out, 9, &[3]);
            })
            .enhanced(2, 7, 1, b"c")
            .enhanced(1, (5 << 20) + (1 << 19), 1, b"b")
            .enhanced(0, 1_700_000_000_123_456_789, 1, b"a");
        let (got, issues) = read(&capture.bytes());
        assert!(issues.is_empty(), "{issues:?}");
        let got: Vec<_> = got.iter().map(|g| (g.link, g.time)).collect();
        let expected = [
            (LinkType::LinuxSll, 3_600_000_007_000),
            (LinkType::Raw, 5_500_000_000),
            (LinkType::Ethernet, 1_700_000_000_123_456_789),
        ];
        assert_eq!(got, expected);
    }
}

#[test]
fn sections_of_both_orders_follow_one_another() {
    let capture = PcapngFile::new(Order::Little)
        .interface(1, 0)
        .enhanced(0, 1, 1, b"a")
        .section(Order::Big, (1, 2))
        .interface(101, 0)
        .enhanced(0, 1, 1, b"b")
        .section(Order::Little, (1, 0))
        .interface(1, 0)
        .enhanced(0, 1, 1, b"c");
    let (got, issues) = read(&capture.bytes());
    assert!(issues.is_empty(), "{issues:?}");
    assert_eq!(
        got.iter().map(|g| g.link).collect::<Vec<_>>(),
        [LinkType::Ethernet, LinkType::Raw, LinkType::Ethernet]
    );
}

#[test]
fn frames_of_the_greatest_length_and_blocks_beyond_it() {
    let giant = vec![0x5a; MAX_CAPTURED];
    let pcap = PcapFile::new(Order::Little, MICRO).record((0, 0), 1 << 30, &giant);
    assert_eq!(frames(&pcap.bytes()), [&giant[..]]);
    let pcapng = PcapngFile::new(Order::Big)
        .interface(1, 0)
        // The block is longer than any record that is read, so it is skipped as a stream.
        .block(0x0bad, |content| content.bytes.resize(3 << 20, 0))
        .enhanced(0, 0, 1 << 30, &giant);
    assert_eq!(frames(&pcapng.bytes()), [&giant[..]]);
}

#[test]
fn compressed_captures_of_several_parts() {
    let capture = small_pcap();
    let expected = frames(&capture);
    let (front, back) = capture.split_at(capture.len() / 2);
    for compress in [gzip, zstd] {
        assert_eq!(frames(&compress(&capture)), expected);
        let parts = [compress(front), compress(b""), compress(back)].concat();
        assert_eq!(frames(&parts), expected);
    }
    let skippable = [&[0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&capture)].concat();
    assert_eq!(frames(&skippable), expected);
}

#[test]
fn bytes_may_come_one_at_a_time() {
    for capture in [small_pcap(), small_pcapng(), gzip(&small_pcap()), zstd(&small_pcapng())] {
        let trickle = Box::new(Trickle(Cursor::new(capture.clone())));
        let (got, issues) = drain(&mut source_of(trickle));
        assert!(issues.is_empty(), "{issues:?}");
        assert_eq!(got, read(&capture).0);
    }
}

#[test]
fn many_frames_cross_the_edges_of_the_window() {
    let mut capture = PcapFile::new(Order::Big, NANO);
    let frame = |number: u32| vec![number as u8; (number % 1500) as usize];
    for number in 0..20_000 {
        capture = capture.record((number, number), number, &frame(number));
    }
    let capture = capture.bytes();
    for capture in [gzip(&capture), capture] {
        let (got, issues) = read(&capture);
        assert!(issues.is_empty(), "{issues:?}");
        assert_eq!(got.len(), 20_000);
        for (number, got) in (0..).zip(got) {
            assert_eq!((got.wire_len, got.bytes), (number, frame(number)));
        }
    }
}

/// Three frames.
pub(super) fn small_pcap() -> Vec<u8> {
    PcapFile::new(Order::Little, MICRO)
        .record((1, 0), 3, b"abc")
        .record((2, 0), 0, b"")
        .record((3, 0), 9, b"defgh")
        .bytes()
}

/// Three frames, among other things.
pub(super) fn small_pcapng() -> Vec<u8> {
    PcapngFile::new(Order::Big)
        .interface(1, 0)
        .enhanced(0, 1, 3, b"abc")
        .block(5, |content| content.bytes.resize(20, 0))
        .simple(5, b"defgh")
        .section(Order::Little, (1, 0))
        .interface(1, 0)
        .enhanced(0, 2, 9, b"ij")
        .bytes()
}
