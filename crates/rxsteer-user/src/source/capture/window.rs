//! The bytes of one file, a bounded piece of them at a time.
//!
//! ```text
//!   bytes  [ done │ start ── not yet read ── end │ free ]
//!                   ▲ `offset` counts from the start of the file to here
//! ```

use super::container::Opened;
use crate::source::IssueKind;
use std::io::{self, Read};

/// Longest record or block that is looked into, in bytes. A packet of the greatest length
/// accepted ([`MAX_CAPTURED`](crate::block::MAX_CAPTURED)) with its options fits four times over.
pub const MAX_RECORD: usize = 1 << 20;

/// Bytes asked of a file at a time. It fits the second-level cache, where the frames are copied
/// from while they are still there.
const CHUNK: usize = 256 * 1024;

/// Bytes asked of a decompressor at a time. When it finds damage it drops what it had already
/// produced in that call, so this is also what damage within compressed data can cost.
const DECOMPRESSED_CHUNK: usize = 32 * 1024;

/// Why bytes that were asked for are not there.
#[derive(Debug)]
pub(super) enum Missing {
    /// They may come, but the caller would rather not wait for them.
    Wait,
    /// The input ends after `have` of them.
    End { have: u64 },
    /// Reading failed after `have` of them.
    Failed { have: u64, failure: String, kind: IssueKind },
}

impl Missing {
    /// The input ended in good order, where a record would begin.
    pub(super) fn is_clean_end(&self) -> bool {
        matches!(self, Missing::End { have: 0 })
    }

    /// The same, where `before` bytes were had before.
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

/// A bounded piece of a file that moves along it.
pub(super) struct Window {
    input: Option<Opened>,
    failure: Option<io::Error>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    /// Whether to wait for a pipe that has nothing to give just now.
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

    /// Begins with a new input; the memory is kept.
    pub(super) fn restart(&mut self, input: Opened) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; CHUNK];
        }
        *self =
            Window { input: Some(input), bytes: std::mem::take(&mut self.bytes), ..Window::new() };
    }

    /// Lets go of the input.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Bytes from the start of the file, as decompressed, to the next byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The part of the bytes read so far that was taken.
    pub(super) fn taken(&self) -> f64 {
        self.offset as f64 / (self.offset + (self.end - self.start) as u64).max(1) as f64
    }

    /// Whether the next [`need`](Window::need) may wait for a pipe to give more.
    pub(super) fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Sees to it that the next `count` bytes, [`MAX_RECORD`] at most, are in the window.
    #[inline]
    pub(super) fn need(&mut self, count: usize) -> Result<(), Missing> {
        if self.end - self.start >= count { Ok(()) } else { self.refill(count) }
    }

    /// What is in the window.
    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The next `count` bytes, which are in the window, and goes past them.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let start = self.start;
        self.start += count;
        self.offset += count as u64;
        &self.bytes[start..self.start]
    }

    /// Goes past `count` bytes, however many. It waits for a pipe whatever
    /// [`set_waits`](Window::set_waits) said last, since it can't be done by halves.
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

    /// Reads what one call gives; 0 at the end and after a failure.
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
