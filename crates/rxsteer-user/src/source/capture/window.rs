//! A bounded buffer of the bytes of one file.
//!
//! ```text
//!   bytes  [ done │ start ── not yet read ── end │ free ]
//!                   ▲ `offset` counts from the start of the file to here
//! ```

use super::container::Opened;
use crate::source::IssueKind;
use std::io::{self, Read};

/// The longest record or block that is parsed, in bytes. It is four times the largest accepted packet
/// ([`MAX_CAPTURED`](crate::block::MAX_CAPTURED)), which leaves room for options.
pub const MAX_RECORD: usize = 1 << 20;

/// How many bytes to read from a file at a time. They fit into the second-level cache, and frames are copied from there.
const CHUNK: usize = 256 * 1024;

/// How many bytes to read from a decompressor at a time. If it finds damage, it discards the output of that call, so this
/// is also how much is lost to damage in compressed data.
const DECOMPRESSED_CHUNK: usize = 32 * 1024;

/// Why requested bytes are not available.
#[derive(Debug)]
pub(super) enum Missing {
    /// They may arrive later, but the caller does not want to wait.
    Wait,
    /// The input ends after `have` of these bytes.
    End { have: u64 },
    /// Reading failed after `have` of these bytes.
    Failed { have: u64, failure: String, kind: IssueKind },
}

impl Missing {
    /// Whether the input ended regularly, where a record would begin.
    pub(super) fn is_clean_end(&self) -> bool {
        matches!(self, Missing::End { have: 0 })
    }

    /// The same, if `before` of the bytes were read earlier.
    pub(super) fn after(self, before: u64) -> Missing {
        match self {
            Missing::Wait => Missing::Wait,
            Missing::End { have } => Missing::End { have: have + before },
            Missing::Failed { have, failure, kind } => {
                Missing::Failed { have: have + before, failure, kind }
            }
        }
    }
}

/// A bounded part of a file that moves along it.
pub(super) struct Window {
    input: Option<Opened>,
    failure: Option<io::Error>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    /// Whether to wait for a pipe that has no data at present.
    waits: bool,
}

impl Window {
    pub(super) fn new() -> Window {
        Window {
            input: None,
            failure: None,
            bytes: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            waits: true,
        }
    }

    /// Begins a new input and keeps the memory.
    pub(super) fn restart(&mut self, input: Opened) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; CHUNK];
        }
        *self =
            Window { input: Some(input), bytes: std::mem::take(&mut self.bytes), ..Window::new() };
    }

    /// Closes the input.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// The offset of the next byte in the decompressed file.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The fraction of the bytes read so far that was taken.
    pub(super) fn taken(&self) -> f64 {
        self.offset as f64 / (self.offset + (self.end - self.start) as u64).max(1) as f64
    }

    /// Sets whether the next [`need`](Window::need) may wait for data of a pipe.
    pub(super) fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Ensures that the next `count` bytes, at most [`MAX_RECORD`], are in the window.
    #[inline]
    pub(super) fn need(&mut self, count: usize) -> Result<(), Missing> {
        if self.end - self.start >= count { Ok(()) } else { self.refill(count) }
    }

    /// The bytes in the window.
    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes the next `count` bytes, which must be in the window.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let start = self.start;
        self.start += count;
        self.offset += count as u64;
        &self.bytes[start..self.start]
    }

    /// Skips any number of bytes. It waits for a pipe regardless of [`set_waits`](Window::set_waits), since it can't stop
    /// halfway.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), Missing> {
        self.waits = true;
        let mut left = count;
        loop {
            let here = left.min((self.end - self.start) as u64);
            self.take(here as usize);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            self.need(1).map_err(|missing| missing.after(count - left))?;
        }
    }

    #[cold]
    fn refill(&mut self, count: usize) -> Result<(), Missing> {
        assert!(count <= MAX_RECORD, "no record is this long: {count}");
        if self.may_not_wait() {
            return Err(Missing::Wait);
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if count > self.bytes.len() {
            self.bytes.resize(count.next_power_of_two(), 0);
        }
        while self.end < count {
            if self.read_once() == 0 {
                return Err(self.missing());
            }
        }
        Ok(())
    }

    fn may_not_wait(&self) -> bool {
        !self.waits && self.input.as_ref().is_some_and(|input| input.is_pipe)
    }

    /// Makes one read call; 0 at the end and after an error.
    fn read_once(&mut self) -> usize {
        let Some(input) = &mut self.input else { return 0 };
        let most = if input.compression.is_some() { DECOMPRESSED_CHUNK } else { CHUNK };
        let free = &mut self.bytes[self.end..];
        let most = most.min(free.len());
        loop {
            match input.reader.read(&mut free[..most]) {
                Ok(count) => {
                    self.end += count;
                    return count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    return 0;
                }
            }
        }
    }

    fn missing(&mut self) -> Missing {
        let have = (self.end - self.start) as u64;
        match (self.failure.take(), &self.input) {
            (Some(error), Some(input)) => {
                let kind = match error.kind() {
                    io::ErrorKind::UnexpectedEof => IssueKind::CutShort,
                    _ => IssueKind::Damaged,
                };
                Missing::Failed { have, failure: input.describe_failure(&error), kind }
            }
            _ => Missing::End { have },
        }
    }
}
