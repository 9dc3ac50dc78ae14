//! What the readers of the two formats give.

use super::damage::Damage;
use rxsteer_packet::LinkType;

/// What one look at a file gave.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// A frame that can't be read for its link type or section version; told of once.
    LeftOut(Option<Damage>),
    /// A section that can't be read.
    Refused(Damage),
    /// Something that is no frame.
    Other,
    /// The end of the file.
    End,
}

/// A frame as the file has it.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Nanoseconds since the epoch, where the file tells.
    pub(super) timestamp_ns: Option<u64>,
    pub(super) wire_len: u32,
    pub(super) link: LinkType,
    /// The queue of its interface.
    pub(super) rx_queue: u16,
    pub(super) bytes: &'a [u8],
}
