//! Bytes on their way to a file or pipe, which know where each frame ends: so that a frame is counted as written when
//! its last byte is, and a stream ends with a whole frame.

use super::counts::{Counts, SinkDrop};
use super::pcap::RECORD_HEADER;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// Bytes that may wait. A single frame may exceed it.
const ROOM: usize = 256 * 1024;

/// Where one frame ends.
#[derive(Clone, Copy, Debug)]
struct End {
    at: usize,
    /// Bytes of the frame alone.
    frame: u32,
}

/// What came of writing what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing waits any more.
    All,
    /// The pipe takes no more for now.
    Full,
}

/// A file that is written, and what waits for it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) file: File,
    bytes: Vec<u8>,
    /// How many of them were written.
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

    /// Whether so many more may wait.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.waiting() == 0 || self.waiting() + bytes <= ROOM
    }

    /// Appends what belongs to no frame.
    pub(super) fn push_header(&mut self, header: &[u8]) {
        self.bytes.extend_from_slice(header);
    }

    /// Appends a frame behind its header.
    #[inline]
    pub(super) fn push(&mut self, header: &[u8], frame: &[u8]) {
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(frame);
        self.ends.push_back(End { at: self.bytes.len(), frame: frame.len() as u32 });
    }

    /// Writes as much as the file takes now, and counts the frames that are through.
    pub(super) fn flush(&mut self, counts: &Counts) -> io::Result<Flushed> {
        let result = self.write_waiting();
        let last = self.count_sent(counts);
        self.forget_sent(last);
        result
    }

    /// Counts the frames that are through; where the last of them ends.
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

    /// As a flush of which the file takes so many bytes.
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

    /// Gives back the room of whole frames that were written, the last of which ends at `last`. What is left is moved
    /// once for each [`ROOM`] bytes at most.
    fn forget_sent(&mut self, last: Option<usize>) {
        if self.waiting() == 0 {
            self.before += self.bytes.len() as u64;
            self.sent = 0;
            self.bytes.clear();
            // One giant frame must not leave its memory behind.
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

    /// Counts what waits as lost, and cuts a file behind its last whole frame.
    #[cold]
    pub(super) fn give_up(&mut self, counts: &Counts, reason: SinkDrop) {
        self.count_sent(counts);
        counts.add_dropped(reason, self.ends.len() as u64);
        if let Some(cut) = self.ends.front() {
            let begins = cut.at - (cut.frame as usize + RECORD_HEADER);
            let is_cut =
                begins < self.sent && self.file.metadata().is_ok_and(|file| file.is_file());
            if is_cut {
                // A file that can't be shortened has a last record that ends early, which its readers say.
                let _ = self.file.set_len(self.before + begins as u64);
            }
        }
        self.bytes.clear();
        self.ends.clear();
        self.sent = 0;
    }
}
