//! Arbitrary bytes as a capture: the reader must not panic or invent data, and the result must not depend on the pieces
//! in which the bytes arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rxsteer_user::block::{Block, MAX_CAPTURED};
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource, RxQueues};
use rxsteer_user::source::{Fill, Source, SourceIssue};
use std::io::{Cursor, Read};
use std::sync::{LazyLock, Mutex};

/// The most decompressed bytes that are read, since a few bytes can expand to gigabytes.
const MAX: u64 = 32 << 20;

/// A reader that returns a few bytes at a time.
struct Trickle(Cursor<Vec<u8>>, usize);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    frames: Vec<(u64, u32, u16, Vec<u8>)>,
    delivered: u64,
    issues: Vec<SourceIssue>,
    skipped: u64,
}

fn read_all(reader: Box<dyn Read + Send>, rx_queues: RxQueues) -> Option<Outcome> {
    // The block is reused, since creating it for each input would take most of the time.
    static BLOCK: LazyLock<Mutex<Block>> = LazyLock::new(Mutex::default);
    let mut block = BLOCK.lock().expect("no other thread");
    block.clear();
    let mut options = CaptureOptions::default();
    options.rx_queues = rx_queues;
    let mut source = CaptureSource::from_reader("fuzz", reader, options).ok()?;
    let mut outcome = Outcome { frames: vec![], delivered: 0, issues: vec![], skipped: 0 };
    loop {
        let fill = source.fill(&mut block);
        for frame in block.frames() {
            let bytes = block.bytes_of(frame);
            assert!(bytes.len() <= MAX_CAPTURED);
            assert!(!matches!(rx_queues, RxQueues::Hashed(queues) if frame.rx_queue >= queues));
            outcome.delivered += bytes.len() as u64;
            if outcome.frames.len() < 10_000 {
                let few = bytes[..bytes.len().min(64)].to_vec();
                outcome.frames.push((frame.timestamp_ns, frame.wire_len, frame.rx_queue, few));
            }
        }
        block.clear();
        if fill == Fill::End || outcome.delivered > MAX {
            outcome.issues = source.take_issues();
            outcome.skipped = source.skipped_records();
            return Some(outcome);
        }
    }
}

/// The number of decompressed bytes up to the first error, at most `MAX`.
fn decompressed_length(data: &[u8]) -> u64 {
    let mut reader: Box<dyn Read> = match data {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(data)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            match zstd::stream::read::Decoder::new(data) {
                Ok(decoder) => Box::new(decoder),
                Err(_) => return 0,
            }
        }
        _ => return data.len() as u64,
    };
    let mut length = 0;
    let mut bytes = [0; 4096];
    while length < MAX {
        match reader.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => length += count as u64,
        }
    }
    length
}

fuzz_target!(|data: &[u8]| {
    let rx_queues =
        if data.len().is_multiple_of(16) { RxQueues::Hashed(5) } else { RxQueues::PerInterface };
    let whole = read_all(Box::new(Cursor::new(data.to_vec())), rx_queues);
    let Some(outcome) = &whole else { return };
    let length = decompressed_length(data);
    if length < MAX {
        // A decompressor that fails may have returned more, or less, in larger pieces.
        let slack = if length == data.len() as u64 { 0 } else { 32 * 1024 };
        assert!(outcome.delivered <= length + slack, "{} of {length}", outcome.delivered);
        assert!(outcome.skipped <= (length + slack) / 12);
        for issue in &outcome.issues {
            assert!(issue.offset.is_none_or(|offset| offset <= length + slack), "{issue}");
        }
    }
    assert!(outcome.issues.len() <= 64);
    let compressed = !matches!(data[0], 0x0a | 0xa1 | 0xd4 | 0x4d | 0x34);
    if !compressed {
        let step = 1 + data.len() % 13;
        let trickled = read_all(Box::new(Trickle(Cursor::new(data.to_vec()), step)), rx_queues);
        assert_eq!(whole, trickled);
    }
});
