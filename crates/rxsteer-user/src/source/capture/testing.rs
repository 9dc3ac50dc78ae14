//! Captures made by hand, and sources read to their end.

use super::order::Order;
use super::{CaptureOptions, CaptureSource};
use crate::block::Block;
use crate::source::{Fill, Source, SourceIssue};
use rxsteer_packet::LinkType;
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;

pub(super) const BOTH: [Order; 2] = [Order::Little, Order::Big];

pub(super) const MICRO: u32 = 0xa1b2_c3d4;
pub(super) const NANO: u32 = 0xa1b2_3c4d;
pub(super) const MODIFIED: u32 = 0xa1b2_cd34;

/// Numbers and bytes in one byte order.
pub(super) struct Bytes {
    order: Order,
    pub(super) bytes: Vec<u8>,
}

impl Bytes {
    pub(super) fn new(order: Order) -> Bytes {
        Bytes { order, bytes: Vec::new() }
    }

    pub(super) fn u16(&mut self, number: u16) -> &mut Bytes {
        match self.order {
            Order::Little => self.raw(&number.to_le_bytes()),
            Order::Big => self.raw(&number.to_be_bytes()),
        }
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Bytes {
        match self.order {
            Order::Little => self.raw(&number.to_le_bytes()),
            Order::Big => self.raw(&number.to_be_bytes()),
        }
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Bytes {
        match self.order {
            Order::Little => self.raw(&number.to_le_bytes()),
            Order::Big => self.raw(&number.to_be_bytes()),
        }
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Fills up to a multiple of 4.
    fn pad(&mut self) -> &mut Bytes {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// A pcap file.
pub(super) struct PcapFile {
    out: Bytes,
    modified: bool,
}

impl PcapFile {
    pub(super) fn new(order: Order, magic: u32) -> PcapFile {
        PcapFile::with(order, magic, (2, 4), 1)
    }

    pub(super) fn with(order: Order, magic: u32, version: (u16, u16), link: u32) -> PcapFile {
        let mut out = Bytes::new(order);
        out.u32(magic).u16(version.0).u16(version.1).u32(0).u32(0).u32(16).u32(link);
        PcapFile { out, modified: magic == MODIFIED }
    }

    pub(super) fn record(mut self, time: (u32, u32), wire_len: u32, frame: &[u8]) -> PcapFile {
        self = self.record_header(time, frame.len() as u32, wire_len);
        self.out.raw(frame);
        self
    }

    pub(super) fn record_header(mut self, time: (u32, u32), first: u32, second: u32) -> PcapFile {
        self.out.u32(time.0).u32(time.1).u32(first).u32(second);
        if self.modified {
            self.out.u32(7).u32(9);
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        self.out.bytes.len()
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.out.bytes
    }
}

/// A pcapng file.
pub(super) struct PcapngFile {
    order: Order,
    bytes: Vec<u8>,
}

impl PcapngFile {
    pub(super) fn new(order: Order) -> PcapngFile {
        PcapngFile { order, bytes: Vec::new() }.section(order, (1, 0))
    }

    /// Begins a section.
    pub(super) fn section(mut self, order: Order, version: (u16, u16)) -> PcapngFile {
        self.order = order;
        self.block(0x0a0d_0d0a, |content| {
            content.u32(0x1a2b_3c4d).u16(version.0).u16(version.1).u64(u64::MAX);
        })
    }

    pub(super) fn interface(self, link: u16, snap_len: u32) -> PcapngFile {
        self.interface_with(link, snap_len, |_| {})
    }

    /// An interface; `options` writes what follows its fixed part.
    pub(super) fn interface_with(
        self,
        link: u16,
        snap_len: u32,
        options: impl FnOnce(&mut Bytes),
    ) -> PcapngFile {
        self.block(1, |content| {
            content.u16(link).u16(0).u32(snap_len);
            options(content);
        })
    }

    pub(super) fn enhanced(
        self,
        interface: u32,
        ticks: u64,
        wire_len: u32,
        frame: &[u8],
    ) -> PcapngFile {
        self.block(6, |content| {
            content.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
            content.u32(frame.len() as u32).u32(wire_len).raw(frame);
        })
    }

    pub(super) fn obsolete(
        self,
        interface: u16,
        ticks: u64,
        wire_len: u32,
        frame: &[u8],
    ) -> PcapngFile {
        self.block(2, |content| {
            content.u16(interface).u16(3).u32((ticks >> 32) as u32).u32(ticks as u32);
            content.u32(frame.len() as u32).u32(wire_len).raw(frame);
        })
    }

    pub(super) fn simple(self, wire_len: u32, frame: &[u8]) -> PcapngFile {
        self.block(3, |content| {
            content.u32(wire_len).raw(frame);
        })
    }

    pub(super) fn block(mut self, kind: u32, write: impl FnOnce(&mut Bytes)) -> PcapngFile {
        let mut content = Bytes::new(self.order);
        write(&mut content);
        content.pad();
        let length = content.bytes.len() as u32 + 12;
        let mut block = Bytes::new(self.order);
        block.u32(kind).u32(length).raw(&content.bytes).u32(length);
        self.bytes.extend(block.bytes);
        self
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// An option of a pcapng block.
pub(super) fn option(out: &mut Bytes, code: u16, value: &[u8]) {
    out.u16(code).u16(value.len() as u16).raw(value).pad();
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A frame as it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) time: u64,
    pub(super) wire_len: u32,
    pub(super) queue: u16,
    pub(super) link: LinkType,
    pub(super) bytes: Vec<u8>,
}

/// All that a source gives.
pub(super) fn drain(source: &mut CaptureSource) -> (Vec<Got>, Vec<SourceIssue>) {
    let mut got = Vec::new();
    let mut block = Block::new();
    loop {
        let fill = source.fill(&mut block);
        got.extend(block.frames().iter().map(|frame| Got {
            time: frame.timestamp_ns,
            wire_len: frame.wire_len,
            queue: frame.rx_queue,
            link: frame.link,
            bytes: block.bytes_of(frame).to_vec(),
        }));
        block.clear();
        if fill == Fill::End {
            assert_eq!(source.fill(&mut block), Fill::End, "the end stays the end");
            assert!(block.is_empty());
            return (got, source.take_issues());
        }
    }
}

/// What a capture in memory gives.
pub(super) fn read(capture: &[u8]) -> (Vec<Got>, Vec<SourceIssue>) {
    drain(&mut source_of(Box::new(Cursor::new(capture.to_vec()))))
}

pub(super) fn source_of(reader: Box<dyn Read + Send>) -> CaptureSource {
    CaptureSource::from_reader("memory", reader, CaptureOptions::default()).unwrap()
}

/// What a capture gives that has nothing wrong with it: the frames' bytes.
pub(super) fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    let (got, issues) = read(capture);
    assert!(issues.is_empty(), "{issues:?}");
    got.into_iter().map(|got| got.bytes).collect()
}

/// A folder of captures.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A reader that gives one byte at a time.
pub(super) struct Trickle(pub(super) Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(1);
        self.0.read(&mut buffer[..most])
    }
}
