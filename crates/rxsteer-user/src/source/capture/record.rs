//! What the readers of the two formats give.

use super::damage::Damage;
use rxsteer_packet::LinkType;

/// What one look at a file gave.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// A frame that can't be read for its link type or section version; reported once.
    LeftOut(Option<Damage>),
    /// A section that can't be read.
    Refused(Damage),
    /// Something that is no frame.
    Other,
    /// The end of the file.
    End,
}

/// When a frame was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// So many nanoseconds after the epoch, [`MAX_TIME_NS`](crate::block::MAX_TIME_NS) at most.
    At(u64),
    /// The file does not say.
    None,
    /// Before the epoch, or later than can be counted.
    Beyond,
}

impl Time {
    /// The time that a file has, if it can be counted.
    pub(super) fn new(ns: Option<u64>) -> Time {
        ns.map_or(Time::Beyond, Time::At)
    }
}

/// A frame as the file has it.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) time: Time,
    pub(super) wire_len: u32,
    pub(super) link: LinkType,
    /// The queue of its interface.
    pub(super) rx_queue: u16,
    pub(super) bytes: &'a [u8],
}
