//! Opening captures: everything that can be refused is refused before anything starts.

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
    /// How often the whole list is read; 0 counts as once. Later rounds are shifted in time, so
    /// that each goes on where the one before it ended.
    pub repeat: u32,
    /// Which RX queue a frame counts for.
    pub rx_queues: RxQueues,
    /// `(i, k)`: only frames whose queue modulo `k` is `i` are delivered. RX threads that share
    /// captures open a source each, and each reports the same issues.
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

/// Why captures can't be read. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The list of captures is empty.
    #[error("no capture is given: name one file at least, or - for standard input")]
    NoFiles,
    /// There is no such file.
    #[error("{}: there is no such file; check the name", shown(.0))]
    Missing(PathBuf),
    /// It is a directory.
    #[error("{}: is a directory; name the capture files in it", shown(.0))]
    Directory(PathBuf),
    /// It has no bytes.
    #[error("{}: is empty, without even a file header; make the capture again", shown(.0))]
    Empty(PathBuf),
    /// It can't be opened or read.
    #[error("{}: can't be read: {error}", shown(file))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the operating system says.
        #[source]
        error: io::Error,
    },
    /// Its first bytes are not those of a capture.
    #[error("{}: is not a capture: it begins with {}; {}", shown(file), hex(head), advice(head))]
    NotACapture {
        /// The file.
        file: PathBuf,
        /// Its first four bytes, or all if it has less.
        head: Vec<u8>,
    },
    /// It is compressed, and what is inside is no capture.
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
        /// The first four bytes inside, or all if there are less.
        head: Vec<u8>,
    },
    /// It is compressed, and the first bytes can't be had.
    #[error(
        "{}: the {compression} data in it can't be decompressed: {error}; get an intact copy",
        shown(file)
    )]
    BadCompression {
        /// The file.
        file: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// What the decompressor says.
        #[source]
        error: io::Error,
    },
    /// Standard input is named more than once.
    #[error("standard input (-) is named twice, but can be read only once; name it once")]
    StdinTwice,
    /// A pipe is to be read several times.
    #[error(
        "{}: is a pipe and can't be repeated; write it to a file first, or read it once",
        shown(.0)
    )]
    PipeRepeated(PathBuf),
    /// A pipe is to be read by several RX threads.
    #[error(
        "{}: is a pipe and can't be read by several RX threads; write it to a file first, or use \
         one RX thread",
        shown(.0)
    )]
    PipeShared(PathBuf),
    /// The share is none.
    #[error("there is no share {index} of {count}: shares count from 0")]
    NoSuchShare {
        /// The share asked for.
        index: u16,
        /// How many there are.
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

/// What to do about a file that begins so.
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

/// A pipe that is waited for in short steps, so that the wait can be ended.
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
    /// A file, opened when its turn comes, so that hundreds of them don't hold hundreds of
    /// descriptors.
    File { path: PathBuf, bytes: u64 },
    /// Something that can be read once: it has been open since it was looked at.
    Pipe { name: PathBuf, opened: Option<Opened> },
}

impl Input {
    /// Checks one of the captures named; of a pipe no byte is read yet.
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

    /// What can be read once, if that will do.
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

    /// Looks at the first bytes of a pipe.
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

    /// Opens it now that its turn has come.
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

/// A reader whose bytes are counted, before they are decompressed.
struct Counted<R> {
    reader: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        // ORDER: a mere count, read by the thread that adds; nothing else hangs on it.
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
