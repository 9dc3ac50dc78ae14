//! Where frames come from.

pub mod capture;
pub mod memory;
pub mod packet;
pub mod synthetic;
#[cfg(feature = "xdp")]
pub mod xdp;

use crate::block::Block;
use crate::printable::shown;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A source of frames for one RX thread.
pub trait Source: Send {
    /// Appends the next frames to `block`, until it is full or no frame is ready. [`Fill::End`]
    /// says that no frame will follow those appended.
    ///
    /// It may wait for frames, but at most some 20 ms: only between two calls does the RX thread take changes of settings
    /// and see that the run is to stop. [`Fill::More`] without a frame is asked again at once at first, and later after pauses of
    /// up to 1 ms.
    fn fill(&mut self, block: &mut Block) -> Fill;

    /// The next frames as a block that is already in memory, for sources that keep theirs there.
    /// Such a source answers either this or [`Source::fill`], each frame once.
    fn shared_block(&mut self) -> Option<(Arc<Block>, Fill)> {
        None
    }

    /// What was wrong with the input so far, once each: damage is reported here, after the frames
    /// that precede it have been delivered.
    fn take_issues(&mut self) -> Vec<SourceIssue> {
        Vec::new()
    }

    /// The time of the first frame of the whole input, once it is known: that of all RX threads
    /// that share it, so that they keep one pace.
    fn start_time_ns(&self) -> Option<u64> {
        None
    }

    /// A flag that ends a wait for input (a quiet pipe) when it is set, as though the input ended;
    /// for sources that can wait.
    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Records of the input that were left out because their link type is unknown.
    fn skipped_records(&self) -> u64 {
        0
    }

    /// Frames that the kernel dropped before they were received, since there was no room for them; for live sources,
    /// counted since the source was opened. The report of a run has those since its start.
    fn kernel_drops(&self) -> u64 {
        0
    }

    /// Whether what is not received in time is dropped before it costs anything here: then the RX thread lets its CPU's
    /// worker catch up rather than receive packets that it would have to drop.
    fn drops_early(&self) -> bool {
        false
    }

    /// How far it is: units done and units in all (bytes of a file, frames of a synthetic load).
    /// `None` when there is no end to measure by.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn fill(&mut self, block: &mut Block) -> Fill {
        (**self).fill(block)
    }

    fn shared_block(&mut self) -> Option<(Arc<Block>, Fill)> {
        (**self).shared_block()
    }

    fn take_issues(&mut self) -> Vec<SourceIssue> {
        (**self).take_issues()
    }

    fn start_time_ns(&self) -> Option<u64> {
        (**self).start_time_ns()
    }

    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        (**self).stop_waiting()
    }

    fn skipped_records(&self) -> u64 {
        (**self).skipped_records()
    }

    fn kernel_drops(&self) -> u64 {
        (**self).kernel_drops()
    }

    fn drops_early(&self) -> bool {
        (**self).drops_early()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        (**self).progress()
    }
}

/// Whether a source has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// More frames may follow.
    More,
    /// That was the end.
    End,
}

/// What kind of thing is wrong with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IssueKind {
    /// It ends in the middle of a record: the writer was stopped, or the copy is incomplete.
    CutShort,
    /// Nothing after this place can be read.
    Damaged,
    /// A part of it is of a kind that is not read; everything else is.
    Unsupported,
    /// Times that can't be counted.
    Time,
    /// It could be opened before the run, and can't be any more.
    Gone,
}

/// Something wrong with the input that did not stop what came before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceIssue {
    /// The file it is in.
    pub file: PathBuf,
    /// What kind of thing it is.
    pub kind: IssueKind,
    /// Byte offset of the damaged record in the file as decompressed, where it has a place.
    pub offset: Option<u64>,
    /// What is wrong, and what was done about it.
    pub message: String,
}

impl SourceIssue {
    /// An issue with the whole of `file`; `message` says what is wrong and what was done about it.
    pub fn new(
        file: impl Into<PathBuf>,
        kind: IssueKind,
        message: impl Into<String>,
    ) -> SourceIssue {
        SourceIssue { file: file.into(), kind, offset: None, message: message.into() }
    }
}

impl fmt::Display for SourceIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown(&self.file))?;
        if let Some(offset) = self.offset {
            write!(f, ": byte {offset}")?;
        }
        write!(f, ": {}", self.message)
    }
}
