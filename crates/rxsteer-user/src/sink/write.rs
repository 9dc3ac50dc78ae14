//! One CPU's output, written by its worker.

use super::counts::{Counts, SinkDrop};
use super::interface::{Interface, Sent};
use super::pcap::{FILE_HEADER, RECORD_HEADER, file_header, record_header};
use super::stream::{Flushed, Stream};
use crate::block::FrameMeta;
use crate::config::OnFull;
use crate::handler::{Handler, PacketList};
use crate::printable::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rxsteer_core::CpuId;
use rxsteer_packet::LinkType;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are collected for a file before they are written.
const FILE_BATCH: usize = 64 * 1024;

/// Bytes after which the compressor's output is written, so that its packets count as written.
const ZSTD_BATCH: usize = 1024 * 1024;

/// How often a worker that waits for a full output checks it, in addition to when it has room again.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How many steps in total a worker still waits after the run's stop flag is set.
const STEPS_AT_END: u32 = 10;

/// The destination of packets.
#[derive(Debug)]
pub(super) enum Out {
    File(Stream),
    Pipe(Stream),
    Zstd(Zstd),
    Interface(Interface),
    /// Nothing more is written.
    Closed,
}

/// A compressed file, and the counts of packets that may not yet be in it.
pub(super) struct Zstd {
    /// `None` once it is finished.
    encoder: Option<zstd::stream::write::Encoder<'static, File>>,
    packets: u64,
    bytes: u64,
    /// Bytes given to the encoder since it last wrote its whole output.
    raw: usize,
}

/// What of a compressed file is written.
enum Extent {
    /// All, once it is a batch.
    Batch,
    /// All.
    All,
    /// All, with the end of the file.
    End,
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zstd").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl Zstd {
    pub(super) fn new(file: File) -> io::Result<Zstd> {
        let encoder = zstd::stream::write::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        Ok(Zstd { encoder: Some(encoder), packets: 0, bytes: 0, raw: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.raw += bytes.len();
        self.encoder.as_mut().map_or(Ok(()), |encoder| encoder.write_all(bytes))
    }

    /// Writes and counts the compressed data, as far as `extent` says.
    fn flush(&mut self, extent: Extent, counts: &Counts) -> io::Result<()> {
        match extent {
            Extent::Batch if self.raw < ZSTD_BATCH => return Ok(()),
            Extent::Batch | Extent::All => {
                self.encoder.as_mut().map_or(Ok(()), Write::flush)?;
            }
            Extent::End => {
                if let Some(encoder) = self.encoder.take() {
                    encoder.finish()?;
                }
            }
        }
        counts.add_written(self.packets, self.bytes);
        (self.packets, self.bytes, self.raw) = (0, 0, 0);
        Ok(())
    }
}

/// A named pipe that was created here. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct MadePipe(pub(super) PathBuf);

impl Drop for MadePipe {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}

/// One CPU's output: a [`Handler`] that writes the packets of its lists in order.
///
/// Dropping it writes the waiting packets, as [`Sink::finish`] does.
#[derive(Debug)]
pub struct Sink {
    pub(super) name: String,
    pub(super) out: Out,
    pub(super) counts: Arc<Counts>,
    pub(super) on_full: OnFull,
    pub(super) stop: Arc<AtomicBool>,
    /// The link type that it accepts. A stream accepts that of its first frame.
    pub(super) link: Option<LinkType>,
    /// Removed at the end.
    pub(super) made: Option<MadePipe>,
    /// Steps waited since the run's stop flag was set.
    pub(super) waited_at_end: u32,
}

impl Handler for Sink {
    fn handle(&mut self, list: &PacketList<'_>) {
        self.write(list);
    }

    /// As [`Sink::flush`].
    fn tick(&mut self, _: CpuId) {
        self.flush();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Sink {
    /// Writes the packets of a list, oldest first, or counts why one is not written. If packets may wait, it waits for
    /// room, until the run's stop flag has been set for a second.
    pub fn write(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            let meta = packet.meta();
            if self.takes(meta.link) {
                self.write_frame(meta, packet.bytes());
            }
        }
        self.end_list();
    }

    /// Writes the waiting packets, as far as the output has room. Files are otherwise written in blocks, so programs that read a
    /// file while it grows would not see the packets of a quiet CPU. What a full pipe did not accept would wait for the next
    /// list.
    pub fn flush(&mut self) {
        let flushed = match &mut self.out {
            Out::Zstd(zstd) if zstd.packets > 0 => zstd.flush(Extent::All, &self.counts),
            _ => {
                self.flush_stream();
                Ok(())
            }
        };
        if let Err(error) = flushed {
            self.fail(&error);
        }
    }

    /// Writes the waiting packets and closes the output: the reader of a pipe then finds its end. Nothing is written
    /// after this.
    pub fn finish(&mut self) {
        if self.link.is_none() {
            // The reader finds an empty stream.
            self.begin(LinkType::Ethernet);
        }
        while let Out::Pipe(stream) = &self.out
            && stream.waiting() > 0
        {
            // The reader is slow, or had no time yet.
            if !self.flush_stream() && !self.wait() {
                break;
            }
        }
        let done = match &mut self.out {
            Out::File(stream) => stream.flush(&self.counts).map(drop),
            Out::Zstd(zstd) => zstd.flush(Extent::End, &self.counts),
            Out::Pipe(stream) => {
                stream.give_up(&self.counts, SinkDrop::NoRoom);
                Ok(())
            }
            Out::Interface(_) | Out::Closed => Ok(()),
        };
        if let Err(error) = done {
            self.fail(&error);
        }
        self.out = Out::Closed;
        drop(self.made.take());
    }

    /// Whether it accepts frames of this link type. If not, counts one more packet as not written.
    #[inline]
    fn takes(&mut self, link: LinkType) -> bool {
        if self.link == Some(link) {
            return true;
        }
        let Some(taken) = self.link else {
            self.begin(link);
            return true;
        };
        self.counts.add_dropped(SinkDrop::LinkType, 1);
        self.counts.fail(|| {
            let (name, taken, link) = (printable(&self.name), taken.name(), link.name());
            format!(
                "{name}: accepts {taken} frames, so frames of link type {link} are not written to it"
            )
        });
        false
    }

    /// Begins a stream of frames of this link type.
    #[cold]
    fn begin(&mut self, link: LinkType) {
        self.link = Some(link);
        let header = file_header(link);
        debug_assert_eq!(header.len(), FILE_HEADER);
        let started = match &mut self.out {
            Out::File(stream) | Out::Pipe(stream) => {
                stream.push_header(&header);
                Ok(())
            }
            Out::Zstd(zstd) => zstd.write(&header),
            Out::Interface(_) | Out::Closed => Ok(()),
        };
        if let Err(error) = started {
            self.fail(&error);
        }
    }

    #[inline]
    fn write_frame(&mut self, meta: &FrameMeta, frame: &[u8]) {
        match &mut self.out {
            Out::File(stream) | Out::Pipe(stream)
                if stream.has_room(RECORD_HEADER + frame.len()) =>
            {
                stream.push(&record_header(meta), frame);
            }
            Out::File(_) | Out::Pipe(_) => self.write_when_room(meta, frame),
            Out::Zstd(zstd) => {
                let written = zstd.write(&record_header(meta)).and_then(|()| zstd.write(frame));
                zstd.packets += 1;
                zstd.bytes += frame.len() as u64;
                let done = written.and_then(|()| zstd.flush(Extent::Batch, &self.counts));
                if let Err(error) = done {
                    self.fail(&error);
                }
            }
            Out::Interface(_) => self.send(frame),
            Out::Closed => self.counts.add_dropped(SinkDrop::Failed, 1),
        }
    }

    /// Writes a frame to a stream that has no room for it at present.
    #[cold]
    fn write_when_room(&mut self, meta: &FrameMeta, frame: &[u8]) {
        loop {
            self.flush_stream();
            match &mut self.out {
                Out::File(stream) | Out::Pipe(stream) => {
                    if stream.has_room(RECORD_HEADER + frame.len()) {
                        return stream.push(&record_header(meta), frame);
                    }
                }
                _ => return self.counts.add_dropped(SinkDrop::Failed, 1),
            }
            if self.on_full == OnFull::Drop || !self.wait() {
                return self.counts.add_dropped(SinkDrop::NoRoom, 1);
            }
        }
    }

    /// Sends a frame on an interface.
    fn send(&mut self, frame: &[u8]) {
        loop {
            let Out::Interface(interface) = &mut self.out else { return };
            match interface.send(frame) {
                Ok(Sent::Whole) => return self.counts.add_written(1, frame.len() as u64),
                Ok(Sent::NoRoom) if self.on_full == OnFull::Wait && self.wait() => {}
                Ok(Sent::NoRoom) => return self.counts.add_dropped(SinkDrop::NoRoom, 1),
                Ok(Sent::Length) => {
                    self.counts.fail(|| {
                        let (name, length) = (printable(&self.name), frame.len());
                        format!(
                            "{name}: can't send frames of {length} bytes; raise its MTU, or turn off the offloads \
                             that merge segments where the frames come from"
                        )
                    });
                    return self.counts.add_dropped(SinkDrop::Length, 1);
                }
                Err(error) => {
                    // The interface may come up again, so it stays open.
                    self.counts.fail(|| failure(&self.name, &error));
                    return self.counts.add_dropped(SinkDrop::Failed, 1);
                }
            }
        }
    }

    /// The work at the end of each list.
    fn end_list(&mut self) {
        match &self.out {
            Out::File(stream) if stream.waiting() >= FILE_BATCH => {
                self.flush_stream();
            }
            // A pipe's reader gets each packet at once. A worker that does not wait leaves the bytes that the pipe does
            // not accept to the next list, or to the end.
            Out::Pipe(_) => {
                while !self.flush_stream() && self.on_full == OnFull::Wait && self.wait() {}
            }
            _ => {}
        }
    }

    /// Writes the bytes that the stream accepts. Returns whether none are left.
    fn flush_stream(&mut self) -> bool {
        let (Out::File(stream) | Out::Pipe(stream)) = &mut self.out else { return true };
        match stream.flush(&self.counts) {
            Ok(flushed) => flushed == Flushed::All,
            Err(error) => {
                self.fail(&error);
                true
            }
        }
    }

    /// Waits until the output may have room. Returns `false` if the run must end and the worker has waited long enough:
    /// from then on it no longer waits.
    fn wait(&mut self) -> bool {
        // ORDER: Relaxed; a request without data.
        if self.stop.load(Ordering::Relaxed) {
            self.waited_at_end += 1;
            if self.waited_at_end > STEPS_AT_END {
                self.on_full = OnFull::Drop;
                return false;
            }
        }
        match &self.out {
            Out::File(stream) | Out::Pipe(stream) => {
                let mut room = [PollFd::new(&stream.file, PollFlags::OUT)];
                // An error shows at the next write.
                let _ = poll(&mut room, Some(&STEP));
            }
            Out::Interface(interface) => interface.wait(),
            Out::Zstd(_) | Out::Closed => {}
        }
        true
    }

    /// Closes an output that can no longer be written.
    #[cold]
    fn fail(&mut self, error: &io::Error) {
        self.counts.fail(|| failure(&self.name, error));
        match std::mem::replace(&mut self.out, Out::Closed) {
            Out::File(mut stream) | Out::Pipe(mut stream) => {
                stream.give_up(&self.counts, SinkDrop::Failed)
            }
            Out::Zstd(zstd) => self.counts.add_dropped(SinkDrop::Failed, zstd.packets),
            Out::Interface(_) | Out::Closed => {}
        }
    }
}

/// Describes the error of an output, and the remedy.
fn failure(name: &str, error: &io::Error) -> String {
    let name = printable(name);
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            format!(
                "{name}: there is no room for more ({error}), so later packets were not written; make room"
            )
        }
        ErrorKind::BrokenPipe => {
            format!(
                "{name}: its reader is gone, so later packets were not written; check why the reader ended"
            )
        }
        ErrorKind::NetworkDown => format!("{name}: is down, so packets were not sent; bring it up"),
        _ => format!("{name}: can't be written ({error}), so packets are missing in it"),
    }
}
