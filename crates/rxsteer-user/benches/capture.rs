//! Reads captures of 64-byte frames from the page cache into blocks; the result is frames per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rxsteer_user::block::Block;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource, RxQueues};
use rxsteer_user::source::{Fill, Source};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};

const FRAMES: u32 = 200_000;

/// A frame with Ethernet, IPv4 and UDP headers; each number is a different flow.
fn frame(number: u32) -> Vec<u8> {
    let [high, low, upper, lower] = number.to_be_bytes();
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, high, low, 10, 9, 9, 9, upper, lower, 0, 53, 0, 30, 0, 0]);
    frame.resize(64, 0x5a);
    frame
}

fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn pcap() -> Vec<u8> {
    let mut out = Vec::new();
    numbers(&mut out, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]);
    for number in 0..FRAMES {
        numbers(&mut out, &[number, 7, 64, 64]);
        out.extend(frame(number));
    }
    out
}

fn pcapng() -> Vec<u8> {
    let mut out = Vec::new();
    numbers(&mut out, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    numbers(&mut out, &[1, 20, 1, 0, 20]);
    for number in 0..FRAMES {
        numbers(&mut out, &[6, 96, 0, 0, number, 64, 64]);
        out.extend(frame(number));
        numbers(&mut out, &[96]);
    }
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

fn read(path: &Path, rx_queues: RxQueues, block: &mut Block) {
    let mut options = CaptureOptions::default();
    options.rx_queues = rx_queues;
    let mut source = CaptureSource::open(&[path.to_owned()], options).expect("just written");
    let mut frames = 0;
    loop {
        let fill = source.fill(block);
        frames += black_box(&*block).len();
        block.clear();
        if fill == Fill::End {
            break;
        }
    }
    assert_eq!(frames, FRAMES as usize);
}

fn capture(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("room for a file");
        path
    };
    let pcap = pcap();
    let compressed = zstd::encode_all(&pcap[..], 1).expect("memory");
    let cases = [
        ("pcap", file("pcap", &pcap), RxQueues::Single),
        ("pcap, hashed to 8 RX queues", file("hashed", &pcap), RxQueues::Hashed(8)),
        ("pcapng", file("pcapng", &pcapng()), RxQueues::Single),
        ("pcap in gzip", file("gzip", &gzip(&pcap)), RxQueues::Single),
        ("pcap in zstd", file("zstd", &compressed), RxQueues::Single),
    ];
    let mut block = Block::new();
    let mut group = criterion.benchmark_group("capture, 64-byte frames");
    group.throughput(Throughput::Elements(u64::from(FRAMES)));
    for (name, path, rx_queues) in cases {
        group.bench_function(name, |bencher| bencher.iter(|| read(&path, rx_queues, &mut block)));
    }
    group.finish();
}

criterion_group!(benches, capture);
criterion_main!(benches);
