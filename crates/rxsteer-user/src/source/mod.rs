//! Sources of frames.

pub mod capture;
pub mod live;
mod live_error;
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
    /// Appends the next frames to `block`, until it is full or no frame is ready. [`Fill::End`] means that no further
    /// frame follows.
    ///
    /// This may wait for frames, but not longer than about 20 ms: only between two calls does the RX thread adopt changes
    /// of settings and check whether the run must stop. After [`Fill::More`] without a frame, the RX thread calls again
    /// at once at first, and later after pauses of up to 1 ms.
    fn fill(&mut self, block: &mut Block) -> Fill;

    /// Returns the next frames as a block that is already in memory, for sources that keep their frames there. Such a
    /// source returns each frame once, either here or from [`Source::fill`].
    fn shared_block(&mut self) -> Option<(Arc<Block>, Fill)> {
        None
    }

    /// Returns the problems found in the input so far, each once. Damage is reported after the frames before it have been
    /// delivered.
    fn take_issues(&mut self) -> Vec<SourceIssue> {
        Vec::new()
    }

    /// The time of the first frame of the whole input, once it is known. It is the same for all RX threads that share the
    /// input, so that they keep one pace.
    fn start_time_ns(&self) -> Option<u64> {
        None
    }

    /// A flag that ends a wait for input (a quiet pipe) when it is set, as if the input had ended; for sources that can
    /// wait.
    fn stop_waiting(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Records of the input that were left out because their link type is unknown.
    fn skipped_records(&self) -> u64 {
        0
    }

    /// Frames that the kernel dropped before they were received, because there was no room; for live sources. The count
    /// begins when the source is opened. The report of a run has those since its start.
    fn kernel_drops(&self) -> u64 {
        0
    }

    /// Whether frames that are not received in time are dropped at no cost to this process. Then the RX thread lets the
    /// worker on its CPU catch up instead of receiving packets that it would have to drop.
    fn drops_early(&self) -> bool {
        false
    }

    /// The progress: units done and units in total (bytes of a file, frames of a synthetic load). `None` if the total is
    /// unknown.
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
    /// No frame follows.
    End,
}

/// The kind of a problem with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IssueKind {
    /// It ends in the middle of a record: the writer was stopped, or the copy is incomplete.
    CutShort,
    /// Nothing after this place can be read.
    Damaged,
    /// A part of it is not supported. The rest is read.
    Unsupported,
    /// Times that are not valid.
    Time,
    /// It could be opened before the run, but is no longer available.
    Gone,
}

/// A problem with the input that did not affect the frames before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceIssue {
    /// The file that has the problem.
    pub file: PathBuf,
    /// The kind of the problem.
    pub kind: IssueKind,
    /// The byte offset of the damaged record in the decompressed file, if it is known.
    pub offset: Option<u64>,
    /// The problem, and how it was handled.
    pub message: String,
}

impl SourceIssue {
    /// Creates an issue with the whole of `file`; `message` describes the problem and how it was handled.
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
