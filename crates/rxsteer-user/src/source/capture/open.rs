//! Opens captures. All errors that can be found before the start are reported then.

use super::container::{Compression, Opened, Refused};
use super::queues::RxQueues;
use crate::printable::shown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How captures are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureOptions {
    /// How often the whole list is read; 0 means once. The times of later rounds are shifted, so that each round
    /// continues where the previous one ended.
    pub repeat: u32,
    /// How frames are assigned to RX queues.
    pub rx_queues: RxQueues,
    /// `(i, k)`: only frames whose queue modulo `k` is `i` are delivered. RX threads that share captures open one source
    /// each, and each source reports the same issues.
    pub share: (u16, u16),
}

impl Default for CaptureOptions {
    fn default() -> CaptureOptions {
        CaptureOptions { repeat: 1, rx_queues: RxQueues::Single, share: (0, 1) }
    }
}

impl CaptureOptions {
    pub(super) fn check(self) -> Result<(), OpenError> {
        let (index, count) = self.share;
        if index < count { Ok(()) } else { Err(OpenError::NoSuchShare { index, count }) }
    }
}

/// Why captures can't be read. Each message is one line that includes the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The list of captures is empty.
    #[error("no capture is given: name one file at least, or - for standard input")]
    NoFiles,
    /// The file does not exist.
    #[error("{}: there is no such file; check the name", shown(.0))]
    Missing(PathBuf),
    /// It is a directory.
    #[error("{}: is a directory; name the capture files in it", shown(.0))]
    Directory(PathBuf),
    /// The file is empty.
    #[error("{}: is empty, without even a file header; make the capture again", shown(.0))]
    Empty(PathBuf),
    /// The file can't be opened or read.
    #[error("{}: can't be read: {error}", shown(file))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The first bytes are not those of a capture.
    #[error("{}: is not a capture: it begins with {}; {}", shown(file), hex(head), advice(head))]
    NotACapture {
        /// The file.
        file: PathBuf,
        /// Its first four bytes, or fewer if it is shorter.
        head: Vec<u8>,
    },
    /// It is compressed, and the content is not a capture.
    #[error(
        "{}: the {compression} data in it are not a capture: they begin with {}; {}",
        shown(file),
        hex(head),
        advice(head)
    )]
    NotACaptureInside {
        /// The file.
        file: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// The first four bytes of the content, or fewer if it is shorter.
        head: Vec<u8>,
    },
    /// It is compressed, and its first bytes can't be decompressed.
    #[error(
        "{}: the {compression} data in it can't be decompressed: {error}; get an intact copy",
        shown(file)
    )]
    BadCompression {
        /// The file.
        file: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// The decompressor's error.
        #[source]
        error: io::Error,
    },
    /// Standard input is named more than once.
    #[error("standard input (-) is named twice, but can be read only once; name it once")]
    StdinTwice,
    /// A pipe can't be read several times.
    #[error(
        "{}: is a pipe and can't be repeated; write it to a file first, or read it once",
        shown(.0)
    )]
    PipeRepeated(PathBuf),
    /// Several RX threads can't read one pipe.
    #[error(
        "{}: is a pipe and can't be read by several RX threads; write it to a file first, or use \
         one RX thread",
        shown(.0)
    )]
    PipeShared(PathBuf),
    /// The share does not exist.
    #[error("there is no share {index} of {count}: shares count from 0")]
    NoSuchShare {
        /// The requested share.
        index: u16,
        /// The number of shares.
        count: u16,
    },
}

impl OpenError {
    fn unreadable(file: &Path, error: io::Error) -> OpenError {
        let file = file.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => OpenError::Missing(file),
            io::ErrorKind::IsADirectory => OpenError::Directory(file),
            _ => OpenError::Unreadable { file, error },
        }
    }

    fn refused(file: &Path, refused: Refused) -> OpenError {
        let path = file;
        let file = file.to_owned();
        match refused {
            Refused::Unreadable(error) => OpenError::unreadable(path, error),
            Refused::Empty => OpenError::Empty(file),
            Refused::NotACapture(head) => OpenError::NotACapture { file, head },
            Refused::NotInside(compression, head) => {
                OpenError::NotACaptureInside { file, compression, head }
            }
            Refused::BadCompression(compression, error) => {
                OpenError::BadCompression { file, compression, error }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// What to do about a file that begins with these bytes.
fn advice(head: &[u8]) -> &'static str {
    match *head {
        [0xfd, b'7', b'z', b'X'] => "it looks like xz: decompress it first",
        [b'B', b'Z', b'h', _] => "it looks like bzip2: decompress it first",
        [0x04, 0x22, 0x4d, 0x18] => "it looks like lz4: decompress it first",
        [b'P', b'K', _, _] => "it looks like a zip archive: unpack it first",
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd] => {
            "it is compressed more than once: decompress it first"
        }
        _ => "rxsteer reads pcap and pcapng, plain or compressed with gzip or zstd",
    }
}

/// A pipe that is polled in short steps, so that the wait can be ended.
struct Awaited {
    pipe: File,
    /// Set to make the pipe end.
    stop: Arc<AtomicBool>,
}

impl Read for Awaited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            if self.stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let mut ready = [PollFd::new(&self.pipe, PollFlags::IN)];
            match poll(&mut ready, Some(&STEP)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.pipe.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// One of the captures to read.
pub(super) enum Input {
    /// A file. It is opened when it is read, so that hundreds of files do not need hundreds of descriptors.
    File { path: PathBuf, bytes: u64 },
    /// An input that can be read only once. It stays open after it was checked.
    Pipe { name: PathBuf, opened: Option<Opened> },
}

impl Input {
    /// Checks one of the named captures. It does not read a byte of a pipe.
    pub(super) fn check(path: &Path, options: CaptureOptions) -> Result<Input, OpenError> {
        if path.as_os_str() == "-" {
            return Input::pipe(path, options);
        }
        let unreadable = |error| OpenError::unreadable(path, error);
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(OpenError::Directory(path.to_owned()));
        }
        if !metadata.is_file() {
            return Input::pipe(path, options);
        }
        let file = File::open(path).map_err(unreadable)?;
        Opened::new(Box::new(file), false).map_err(|refused| OpenError::refused(path, refused))?;
        Ok(Input::File { path: path.to_owned(), bytes: metadata.len() })
    }

    /// An input that can be read only once, if the options allow it.
    pub(super) fn pipe(name: &Path, options: CaptureOptions) -> Result<Input, OpenError> {
        let name = name.to_owned();
        if options.repeat > 1 {
            Err(OpenError::PipeRepeated(name))
        } else if options.share.1 > 1 {
            Err(OpenError::PipeShared(name))
        } else {
            Ok(Input::Pipe { name, opened: None })
        }
    }

    /// Waits for the first bytes of a pipe.
    pub(super) fn await_pipe(
        &mut self,
        read_bytes: &Arc<AtomicU64>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), OpenError> {
        let Input::Pipe { name, .. } = self else { return Ok(()) };
        let pipe = if name.as_os_str() == "-" {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(&*name)
        };
        let pipe = pipe.map_err(|error| OpenError::unreadable(name, error))?;
        let reader = Box::new(Awaited { pipe, stop: Arc::clone(stop) });
        self.begin_pipe(reader, read_bytes)
    }

    /// Checks the first bytes of a pipe.
    pub(super) fn begin_pipe(
        &mut self,
        reader: Box<dyn Read + Send>,
        read_bytes: &Arc<AtomicU64>,
    ) -> Result<(), OpenError> {
        if let Input::Pipe { name, opened } = self {
            let counted = Counted { reader, bytes: Arc::clone(read_bytes) };
            let looked_at = Opened::new(Box::new(counted), true)
                .map_err(|refused| OpenError::refused(name, refused))?;
            *opened = Some(looked_at);
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &Path {
        match self {
            Input::File { path, .. } => path,
            Input::Pipe { name, .. } => name,
        }
    }

    /// Opens the input for reading.
    pub(super) fn open(&mut self, read_bytes: &Arc<AtomicU64>) -> Result<Opened, OpenError> {
        match self {
            Input::Pipe { name, opened } => {
                opened.take().ok_or_else(|| OpenError::PipeRepeated(name.clone()))
            }
            Input::File { path, .. } => {
                let file =
                    File::open(&*path).map_err(|error| OpenError::unreadable(path, error))?;
                let counted = Counted { reader: file, bytes: Arc::clone(read_bytes) };
                Opened::new(Box::new(counted), false)
                    .map_err(|refused| OpenError::refused(path, refused))
            }
        }
    }
}

/// A reader that counts its bytes before they are decompressed.
struct Counted<R> {
    reader: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        // ORDER: Relaxed; only a count, and the thread that adds also reads it.
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
