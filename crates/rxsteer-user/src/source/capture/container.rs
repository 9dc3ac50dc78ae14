//! Detects a file's type by its first bytes, and opens the stream of the capture inside it.

use flate2::read::MultiGzDecoder;
use std::fmt;
use std::io::{self, Cursor, Read};

/// The largest window that a zstd stream may request, as a power of 2 of bytes: 128 MiB, which the `zstd` command accepts
/// by default. Memory is touched only as far as the data fill it.
const ZSTD_WINDOW_LOG: u32 = 27;

/// How a capture is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip, of one or several members.
    Gzip,
    /// zstd, of one or several frames.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        })
    }
}

/// The family of the capture format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Pcap,
    Pcapng,
}

/// A capture that can be read from its first byte.
pub(super) struct Opened {
    pub(super) reader: Box<dyn Read + Send>,
    pub(super) compression: Option<Compression>,
    pub(super) format: Format,
    /// Reading it may have to wait, and its bytes can be read only once.
    pub(super) is_pipe: bool,
}

/// Why an input can't be read as a capture.
#[derive(Debug)]
pub(super) enum Refused {
    Unreadable(io::Error),
    Empty,
    NotACapture(Vec<u8>),
    NotInside(Compression, Vec<u8>),
    BadCompression(Compression, io::Error),
}

impl Opened {
    /// Detects the type by the first bytes of `reader`.
    pub(super) fn new(mut reader: Box<dyn Read + Send>, is_pipe: bool) -> Result<Opened, Refused> {
        let head = read_head(&mut reader).map_err(Refused::Unreadable)?;
        if head.is_empty() {
            return Err(Refused::Empty);
        }
        let compression = compression_of(&head);
        let whole: Box<dyn Read + Send> = Box::new(Cursor::new(head.clone()).chain(reader));
        let Some(compression) = compression else {
            let format = format_of(&head).ok_or(Refused::NotACapture(head))?;
            return Ok(Opened { reader: whole, compression: None, format, is_pipe });
        };
        let bad = |error| Refused::BadCompression(compression, error);
        let mut inside = decompress(compression, whole).map_err(bad)?;
        let head = read_head(&mut inside).map_err(bad)?;
        let format =
            format_of(&head).ok_or_else(|| Refused::NotInside(compression, head.clone()))?;
        let reader = Box::new(Cursor::new(head).chain(inside));
        Ok(Opened { reader, compression: Some(compression), format, is_pipe })
    }

    /// Describes a read error. Errors of the operating system pass through a decompressor with their number; all others
    /// concern the compressed data.
    pub(super) fn describe_failure(&self, error: &io::Error) -> String {
        match self.compression {
            Some(compression) if error.raw_os_error().is_none() => {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    format!("the {compression} data are cut short")
                } else {
                    format!("the {compression} data are damaged ({error})")
                }
            }
            _ => format!("reading failed ({error})"),
        }
    }
}

fn decompress(
    compression: Compression,
    reader: Box<dyn Read + Send>,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match compression {
        Compression::Gzip => Box::new(MultiGzDecoder::new(reader)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(reader)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
    })
}

/// The first four bytes, or as many as there are.
fn read_head(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(4);
    reader.take(4).read_to_end(&mut head)?;
    Ok(head)
}

fn compression_of(head: &[u8]) -> Option<Compression> {
    match *head {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd] => Some(Compression::Zstd),
        // A frame that is not compressed data. Decompressors skip it.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Compression::Zstd),
        _ => None,
    }
}

fn format_of(head: &[u8]) -> Option<Format> {
    let head: [u8; 4] = head.try_into().ok()?;
    if head == [0x0a, 0x0d, 0x0d, 0x0a] {
        return Some(Format::Pcapng);
    }
    let is_pcap = |number| matches!(number, 0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34_u32);
    (is_pcap(u32::from_le_bytes(head)) || is_pcap(u32::from_be_bytes(head))).then_some(Format::Pcap)
}
