//! Several files, several rounds, RX queues and shares.

use super::super::order::Order;
use super::super::testing::*;
use super::super::{CaptureOptions, CaptureSource, MAX_RX_QUEUES, RxQueues};
use crate::block::{Block, MAX_TIME_NS};
use crate::source::{Fill, IssueKind, Source};
use std::path::PathBuf;

fn pcap(seconds: &[u32]) -> Vec<u8> {
    let file = PcapFile::new(Order::Little, MICRO);
    seconds.iter().fold(file, |file, &s| file.record((s, 0), s, &[s as u8])).bytes()
}

fn all(paths: &[PathBuf], options: CaptureOptions) -> Vec<Got> {
    let mut source = CaptureSource::open(paths, options).unwrap();
    let (got, issues) = drain(&mut source);
    assert!(issues.is_empty(), "{issues:?}");
    got
}

fn queues(paths: &[PathBuf], rx_queues: RxQueues) -> Vec<u16> {
    let options = CaptureOptions { rx_queues, repeat: 2, ..CaptureOptions::default() };
    all(paths, options).iter().map(|got| got.queue).collect()
}

#[test]
fn files_are_read_in_order_and_time_goes_on_in_later_rounds() {
    let folder = Folder::new();
    let paths = [folder.file("a", &pcap(&[10, 12, 11])), folder.file("b", &gzip(&pcap(&[20])))];
    let got = all(&paths, CaptureOptions { repeat: 3, ..CaptureOptions::default() });
    let second = 1_000_000_000;
    let times: Vec<u64> = got.iter().map(|got| got.time).collect();
    let round = |start: u64| [start, start + 2 * second, start + second, start + 10 * second];
    let again = 20 * second + 1;
    let expected = [round(10 * second), round(again), round(again + 10 * second + 1)].concat();
    assert_eq!(times, expected);
}

/// Packets with times beyond the range get the time of the packet before them, even if only the shift of a later round
/// moves them beyond the range.
#[test]
fn times_beyond_the_range_are_reported_once() {
    let folder = Folder::new();
    let late = PcapngFile::new(Order::Little)
        .interface_with(1, 0, |out| option(out, 9, &[9]))
        .enhanced(0, 1, 1, b"a")
        .enhanced(0, u64::MAX, 1, b"b")
        .enhanced(0, MAX_TIME_NS - 1, 1, b"c")
        .enhanced(0, MAX_TIME_NS + 1, 1, b"d");
    let path = folder.file("late", &late.bytes());
    let options = CaptureOptions { repeat: 2, ..CaptureOptions::default() };
    let mut source = CaptureSource::open(std::slice::from_ref(&path), options).unwrap();
    let (got, issues) = drain(&mut source);
    let times: Vec<u64> = got.iter().map(|got| got.time).collect();
    let most = MAX_TIME_NS - 1;
    assert_eq!(times, [1, 1, most, most, most + 1, most + 1, most + 1, most + 1]);
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert_eq!((&issues[0].file, issues[0].kind), (&path, IssueKind::Time));
    assert!(issues[0].message.starts_with("5 packet(s)"), "{issues:?}");
    assert!(source.take_issues().is_empty());
}

#[test]
fn progress_does_not_count_what_is_read_ahead() {
    let folder = Folder::new();
    let capture = pcap(&[1; 4000]);
    // A decompressor also reads ahead.
    for (file, most) in [(capture.clone(), 0.14), (gzip(&capture), 0.5)] {
        let path = folder.file("a", &file);
        let mut source = CaptureSource::open(&[path], CaptureOptions::default()).unwrap();
        let mut block = Block::new();
        assert_eq!(source.fill(&mut block), Fill::More);
        assert!(block.is_full(), "there is more");
        let (done, all) = source.progress().unwrap();
        assert!((0.1..most).contains(&(done as f64 / all as f64)), "{done} of {all}");
    }
}

#[test]
fn issues_come_once_and_damage_does_not_stop_the_next_file() {
    let folder = Folder::new();
    let whole = pcap(&[1, 2]);
    let paths = [folder.file("cut", &whole[..whole.len() - 1]), folder.file("whole", &whole)];
    let options = CaptureOptions { repeat: 4, ..CaptureOptions::default() };
    let mut source = CaptureSource::open(&paths, options).unwrap();
    let (got, issues) = drain(&mut source);
    assert_eq!(got.len(), 4 * 3);
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert_eq!(issues[0].file, paths[0]);
    assert!(source.take_issues().is_empty());
}

#[test]
fn progress_counts_the_bytes_of_all_rounds() {
    let folder = Folder::new();
    let paths = [folder.file("a", &gzip(&pcap(&[1; 1000]))), folder.file("b", &pcap(&[1, 2]))];
    let bytes: u64 = paths.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
    let options = CaptureOptions { repeat: 3, ..CaptureOptions::default() };
    let mut source = CaptureSource::open(&paths, options).unwrap();
    assert_eq!(source.progress(), Some((0, 3 * bytes)));
    drain(&mut source);
    assert_eq!(source.progress(), Some((3 * bytes, 3 * bytes)));
}

#[test]
fn queues_by_file_and_by_interface() {
    let folder = Folder::new();
    let two = PcapngFile::new(Order::Little)
        .interface(1, 0)
        .interface(1, 0)
        .enhanced(1, 0, 1, b"a")
        .enhanced(0, 0, 1, b"b")
        .section(Order::Big, (1, 0))
        .interface(1, 0)
        .enhanced(0, 0, 1, b"c");
    let paths = [folder.file("a", &pcap(&[1])), folder.file("b", &two.bytes())];
    assert_eq!(queues(&paths, RxQueues::Single), [0; 8]);
    assert_eq!(queues(&paths, RxQueues::PerFile), [0, 1, 1, 1, 0, 1, 1, 1]);
    assert_eq!(queues(&paths, RxQueues::PerInterface), [0, 2, 1, 3, 0, 2, 1, 3]);
}

#[test]
fn queues_are_bounded() {
    let mut capture = PcapngFile::new(Order::Little);
    for interface in 0..MAX_RX_QUEUES as u32 + 2 {
        capture = capture.interface(1, 0).enhanced(interface, 0, 1, b"x");
    }
    let folder = Folder::new();
    let paths = [folder.file("many", &capture.bytes())];
    let queues = queues(&paths, RxQueues::PerInterface);
    assert_eq!(queues[MAX_RX_QUEUES - 1..MAX_RX_QUEUES + 2], [1023, 0, 1]);
}

/// A frame with Ethernet, IPv4 and UDP, from this source port.
fn udp(port: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 53, 0, 8, 0, 0]);
    frame
}

fn many_flows() -> Vec<u8> {
    let file = PcapFile::new(Order::Little, MICRO).record((0, 0), 3, b"arp");
    (0..2000).fold(file, |file, port| file.record((0, 0), 42, &udp(port))).bytes()
}

#[test]
fn hashed_queues_are_those_of_a_nic() {
    let folder = Folder::new();
    let path = [folder.file("flows", &many_flows())];
    let hashed = CaptureOptions { rx_queues: RxQueues::Hashed(6), ..CaptureOptions::default() };
    let got = all(&path, hashed);
    assert_eq!(got[0].queue, 0, "no hash, no choice");
    let toeplitz = rxsteer_packet::Toeplitz::default();
    let mut counts = [0; 6];
    for (port, got) in (0..2000_u16).zip(&got[1..]) {
        let [high, low] = port.to_be_bytes();
        let hash = toeplitz.hash_bytes(&[10, 0, 0, 1, 10, 0, 0, 2, high, low, 0, 53]);
        assert_eq!(got.queue, (hash & 127) as u16 % 6);
        counts[usize::from(got.queue)] += 1;
    }
    assert!(counts.iter().all(|count| (250..420).contains(count)), "{counts:?}");
    let none = CaptureOptions { rx_queues: RxQueues::Hashed(0), ..CaptureOptions::default() };
    assert!(all(&path, none).iter().all(|got| got.queue == 0));
}

#[test]
fn shares_split_the_frames_and_agree_on_the_issues() {
    let folder = Folder::new();
    let mut capture = many_flows();
    capture.truncate(capture.len() - 1);
    let path = [folder.file("flows", &capture)];
    let read = |share| {
        let options = CaptureOptions { rx_queues: RxQueues::Hashed(8), share, repeat: 2 };
        drain(&mut CaptureSource::open(&path, options).unwrap())
    };
    let (whole, issues) = read((0, 1));
    assert_eq!((whole.len(), issues.len()), (4000, 1));
    for index in 0..3 {
        let (got, same_issues) = read((index, 3));
        assert_eq!(same_issues, issues);
        let mine = whole.iter().filter(|got| got.queue % 3 == index);
        assert!(got.iter().eq(mine));
    }
}
