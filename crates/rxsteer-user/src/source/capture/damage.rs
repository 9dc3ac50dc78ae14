//! The reasons why a record can't be read, and their descriptions.

use super::window::Missing;
use crate::source::IssueKind;

/// Why no further record could be read at present.
#[derive(Debug)]
pub(super) enum Halt {
    /// The input is a pipe without a whole record so far, and the caller has frames to hand over.
    Wait,
    /// The file is damaged: nothing after this place is read.
    Damage(Damage),
}

/// Damage and its place.
#[derive(Debug)]
pub(super) struct Damage {
    /// Where the damaged record or block begins: bytes from the start of the decompressed file.
    pub(super) offset: u64,
    /// What is wrong with it.
    pub(super) what: String,
    pub(super) kind: IssueKind,
}

impl Halt {
    pub(super) fn damage(offset: u64, what: impl Into<String>) -> Halt {
        Halt::Damage(Damage { offset, what: what.into(), kind: IssueKind::Damaged })
    }

    /// The input ended, or reading failed, before all `need` bytes of `what` were read.
    #[cold]
    pub(super) fn cut(offset: u64, what: &str, need: u64, missing: Missing) -> Halt {
        let (have, failure, kind) = match missing {
            Missing::Wait => return Halt::Wait,
            Missing::End { have } => (have, None, IssueKind::CutShort),
            Missing::Failed { have, failure, kind } => (have, Some(failure), kind),
        };
        let text = match failure {
            None => {
                format!("cut short in the middle of {what}: {have} of {need} bytes are there")
            }
            Some(failure) if have == 0 => failure,
            Some(failure) => {
                format!("{failure} in the middle of {what}: {have} of {need} bytes are there")
            }
        };
        Halt::Damage(Damage { offset, what: text, kind })
    }
}
