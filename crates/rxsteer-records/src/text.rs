//! A file of lines that stays valid when the disk is full: it always consists of complete lines, and it is known what
//! could not be written.

use crate::temporary::Temporary;
use crate::{Row, Written};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes per write.
const BATCH: usize = 1 << 16;

/// Lines that are being written to a file. As an [`io::Write`], it accepts the bytes of a line, and `flush` ends the
/// line.
pub(crate) struct Text {
    out: File,
    /// Complete lines, once the present one has ended.
    waiting: Vec<u8>,
    /// Bytes in the file, which are complete lines.
    bytes: u64,
}

impl Text {
    pub(crate) fn begin(file: &Temporary) -> anyhow::Result<Text> {
        Ok(Text { out: file.writer()?, waiting: Vec::with_capacity(BATCH), bytes: 0 })
    }

    /// Writes all lines. If that fails, the file stays unchanged, and the lines are lost.
    pub(crate) fn write_out(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.waiting);
        match written {
            Ok(()) => self.bytes += self.waiting.len() as u64,
            Err(_) => {
                // Part of a line may be in the file. If this fails, the file is abandoned.
                self.out.set_len(self.bytes)?;
                self.out.seek(SeekFrom::Start(self.bytes))?;
            }
        }
        self.waiting.clear();
        written
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.waiting.len() as u64
    }

    fn is_written_out(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.len() < BATCH { Ok(()) } else { self.write_out() }
    }
}

/// Which records are in the file, and which are not written yet.
#[derive(Default)]
pub(crate) struct Progress {
    taken: Written,
    in_file: Written,
}

impl Progress {
    /// Counts a record that was added to the lines.
    pub(crate) fn add(&mut self, row: &Row<'_>, text: &Text) {
        self.taken.add(row);
        self.check(text);
    }

    /// Checks whether all lines are in the file by now.
    pub(crate) fn check(&mut self, text: &Text) {
        if text.is_written_out() {
            self.in_file = self.taken;
        }
    }

    /// Completes the file with the lines that are in it.
    pub(crate) fn salvage(self, file: Temporary) -> Written {
        let is_kept = self.in_file.records > 0 && file.sync().and_then(|()| file.name()).is_ok();
        if is_kept { self.in_file } else { Written::default() }
    }
}
