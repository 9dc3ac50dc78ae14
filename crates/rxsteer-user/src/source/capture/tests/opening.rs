//! Inputs that are refused before anything starts, and pipes.

use super::super::order::Order;
use super::super::testing::*;
use super::super::{CaptureOptions, CaptureSource, Compression, OpenError};
use super::formats::small_pcap;
use crate::block::Block;
use crate::source::{Fill, Source};
use std::io::Write;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::mpsc;

fn refusal(paths: &[PathBuf], options: CaptureOptions) -> OpenError {
    CaptureSource::open(paths, options).err().expect("it is refused")
}

fn refusal_of(bytes: &[u8]) -> OpenError {
    let folder = Folder::new();
    let good = folder.file("good.pcap", &small_pcap());
    let bad = folder.file("bad", bytes);
    refusal(&[good, bad], CaptureOptions::default())
}

#[test]
fn what_is_no_capture() {
    assert!(matches!(refusal(&[], CaptureOptions::default()), OpenError::NoFiles));
    assert!(matches!(refusal_of(b""), OpenError::Empty(_)));
    let error = refusal_of(b"\x7fELF and so on");
    assert!(matches!(error, OpenError::NotACapture { .. }));
    assert!(error.to_string().contains("bad: is not a capture: it begins with 7f 45 4c 46; "));
    assert!(refusal_of(b"a").to_string().contains("it begins with 61; "));
    assert!(refusal_of(b"\xfd7zXZ").to_string().contains("looks like xz: decompress"));
    for error in [refusal_of(b"a"), refusal_of(b"")] {
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn what_holds_no_capture() {
    for (compress, kind) in
        [(gzip as fn(&[u8]) -> Vec<u8>, Compression::Gzip), (zstd, Compression::Zstd)]
    {
        for inside in [&b"plain text"[..], b"", b"a"] {
            let error = refusal_of(&compress(inside));
            let OpenError::NotACaptureInside { compression, .. } = error else { panic!("{error}") };
            assert_eq!(compression, kind);
        }
        let twice = refusal_of(&compress(&compress(&small_pcap()))).to_string();
        assert!(twice.contains("compressed more than once"), "{twice}");
        let cut = refusal_of(&compress(&small_pcap())[..5]);
        assert!(
            matches!(cut, OpenError::BadCompression { compression, .. } if compression == kind),
            "{cut}"
        );
    }
}

#[test]
fn zstd_window_beyond_the_limit() {
    // A frame header that requests a window of 1 GiB, before any content.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (30 - 10) << 3, 1, 0, 0];
    assert!(matches!(refusal_of(&frame), OpenError::BadCompression { .. }));
}

#[test]
fn what_is_not_there_or_a_directory() {
    let folder = Folder::new();
    let missing = folder.path("missing.pcap");
    assert!(matches!(refusal(&[missing], CaptureOptions::default()), OpenError::Missing(_)));
    let directory = folder.path("");
    assert!(matches!(refusal(&[directory], CaptureOptions::default()), OpenError::Directory(_)));
}

#[test]
fn standard_input_is_read_once() {
    let stdin = PathBuf::from("-");
    let twice = refusal(&[stdin.clone(), stdin], CaptureOptions::default());
    assert!(matches!(twice, OpenError::StdinTwice));
}

#[test]
fn pipe_is_neither_repeated_nor_shared() {
    let open = |options| {
        let reader = Box::new(Cursor::new(small_pcap()));
        CaptureSource::from_reader("pipe", reader, options).err()
    };
    let options = CaptureOptions::default();
    assert!(open(options).is_none());
    let repeated = open(CaptureOptions { repeat: 2, ..options });
    assert!(matches!(repeated, Some(OpenError::PipeRepeated(_))));
    let shared = open(CaptureOptions { share: (0, 2), ..options });
    assert!(matches!(shared, Some(OpenError::PipeShared(_))));
    let none = open(CaptureOptions { share: (1, 1), ..options });
    assert!(matches!(none, Some(OpenError::NoSuchShare { .. })));
}

#[cfg(unix)]
#[test]
fn fifo_is_read_as_it_comes() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    if !made.is_ok_and(|status| status.success()) {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED opening::fifo_is_read_as_it_comes: there is no mkfifo here"
        );
        return;
    }
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::write(fifo, small_pcap()).unwrap()
    });
    let file = folder.file("file.pcap", &small_pcap());
    let mut source = CaptureSource::open(&[file, fifo], CaptureOptions::default()).unwrap();
    let (got, issues) = drain(&mut source);
    writer.join().unwrap();
    assert_eq!((got.len(), issues.len()), (6, 0));
    assert_eq!(source.progress(), None);
}

#[test]
fn nothing_is_read_from_a_pipe_that_will_be_refused() {
    let missing = Folder::new().path("missing.pcap");
    // Standard input of a test may be a terminal, on which the test would wait.
    let stdin = PathBuf::from("-");
    let repeated = CaptureOptions { repeat: 2, ..CaptureOptions::default() };
    assert!(matches!(refusal(std::slice::from_ref(&stdin), repeated), OpenError::PipeRepeated(_)));
    assert!(matches!(refusal(&[stdin, missing], CaptureOptions::default()), OpenError::Missing(_)));
}

/// Delivers data that is sent to it, piece by piece, and waits for the next piece.
struct Pieces(mpsc::Receiver<Vec<u8>>);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.0.recv().unwrap_or_default();
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

#[test]
fn frames_of_a_pipe_are_handed_on_without_waiting_for_more() {
    let capture = PcapFile::new(Order::Little, MICRO).record((1, 0), 1, b"a").bytes();
    let (sender, receiver) = mpsc::channel();
    // The first read is for the four bytes that identify the format.
    sender.send(capture[..4].to_vec()).unwrap();
    sender.send(capture[4..].to_vec()).unwrap();
    let mut source = source_of(Box::new(Pieces(receiver)));
    let mut block = Block::new();
    assert_eq!(source.fill(&mut block), Fill::More, "one frame, and the pipe is still open");
    assert_eq!(block.len(), 1);
    drop(sender);
    assert_eq!(source.fill(&mut block), Fill::End, "frames handed in do not count");
    assert_eq!(block.len(), 1);
}

#[test]
fn file_that_vanishes_is_an_issue_and_the_next_is_read() {
    let folder = Folder::new();
    let first = folder.file("first.pcap", &small_pcap());
    let second = folder.file("second.pcap", &small_pcap());
    let mut source =
        CaptureSource::open(&[first.clone(), second], CaptureOptions::default()).unwrap();
    std::fs::remove_file(first).unwrap();
    let (got, issues) = drain(&mut source);
    assert_eq!(got.len(), 3);
    assert_eq!(issues.len(), 1);
    assert!(issues[0].message.contains("there is no such file"), "{}", issues[0]);
}
