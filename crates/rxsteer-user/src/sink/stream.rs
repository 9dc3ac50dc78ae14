//! A buffer of bytes for a file or pipe that records where each frame ends. So a frame counts as written when its last
//! byte is, and a stream ends with a whole frame.

use super::counts::{Counts, SinkDrop};
use super::pcap::RECORD_HEADER;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// The number of bytes that may wait. A single frame may exceed it.
const ROOM: usize = 256 * 1024;

/// Where one frame ends.
#[derive(Clone, Copy, Debug)]
struct End {
    at: usize,
    /// The bytes of the frame without its header.
    frame: u32,
}

/// The result of writing the waiting bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// No bytes wait any more.
    All,
    /// The pipe is full for now.
    Full,
}

/// A file that is being written, and the bytes that wait for it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) file: File,
    bytes: Vec<u8>,
    /// How many of these bytes were written.
    sent: usize,
    ends: VecDeque<End>,
    /// Bytes written before the first of `bytes`.
    before: u64,
}

impl Stream {
    pub(super) fn new(file: File) -> Stream {
        Stream { file, bytes: Vec::with_capacity(ROOM), sent: 0, ends: VecDeque::new(), before: 0 }
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether this many more bytes may wait.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.waiting() == 0 || self.waiting() + bytes <= ROOM
    }

    /// Appends bytes that belong to no frame.
    pub(super) fn push_header(&mut self, header: &[u8]) {
        self.bytes.extend_from_slice(header);
    }

    /// Appends a header and its frame.
    #[inline]
    pub(super) fn push(&mut self, header: &[u8], frame: &[u8]) {
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(frame);
        self.ends.push_back(End { at: self.bytes.len(), frame: frame.len() as u32 });
    }

    /// Writes as many bytes as the file accepts now, and counts the frames that are completely written.
    pub(super) fn flush(&mut self, counts: &Counts) -> io::Result<Flushed> {
        let result = self.write_waiting();
        let last = self.count_sent(counts);
        self.forget_sent(last);
        result
    }

    /// Counts the frames that are completely written. Returns where the last of them ends.
    fn count_sent(&mut self, counts: &Counts) -> Option<usize> {
        let mut last = None;
        let (mut packets, mut bytes) = (0, 0);
        while let Some(end) = self.ends.front().copied().filter(|end| end.at <= self.sent) {
            (packets, bytes, last) = (packets + 1, bytes + u64::from(end.frame), Some(end.at));
            self.ends.pop_front();
        }
        counts.add_written(packets, bytes);
        last
    }

    /// Acts like a flush in which the file accepts this many bytes.
    #[cfg(test)]
    pub(super) fn send_only(&mut self, bytes: usize) {
        self.sent += self.file.write(&self.bytes[self.sent..self.sent + bytes]).expect("a file");
    }

    fn write_waiting(&mut self) -> io::Result<Flushed> {
        while self.sent < self.bytes.len() {
            match self.file.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::Full),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    /// Frees the memory of frames that were written completely, the last of which ends at `last`. The remaining bytes are
    /// moved at most once for each [`ROOM`] bytes.
    fn forget_sent(&mut self, last: Option<usize>) {
        if self.waiting() == 0 {
            self.before += self.bytes.len() as u64;
            self.sent = 0;
            self.bytes.clear();
            // One giant frame must not keep its memory allocated.
            self.bytes.shrink_to(ROOM);
            return;
        }
        let Some(last) = last.filter(|last| *last >= ROOM / 2) else { return };
        self.bytes.drain(..last);
        self.before += last as u64;
        self.sent -= last;
        for end in &mut self.ends {
            end.at -= last;
        }
    }

    /// Counts the waiting frames as lost, and truncates a file after its last whole frame.
    #[cold]
    pub(super) fn give_up(&mut self, counts: &Counts, reason: SinkDrop) {
        self.count_sent(counts);
        counts.add_dropped(reason, self.ends.len() as u64);
        if let Some(cut) = self.ends.front() {
            let begins = cut.at - (cut.frame as usize + RECORD_HEADER);
            let is_cut =
                begins < self.sent && self.file.metadata().is_ok_and(|file| file.is_file());
            if is_cut {
                // If the file can't be shortened, its last record is incomplete, and its readers report that.
                let _ = self.file.set_len(self.before + begins as u64);
            }
        }
        self.bytes.clear();
        self.ends.clear();
        self.sent = 0;
    }
}
