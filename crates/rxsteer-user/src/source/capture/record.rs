//! The output of the readers of both formats.

use super::damage::Damage;
use rxsteer_packet::LinkType;

/// The result of reading one item of a file.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// A frame whose link type or section version is not supported; reported once.
    LeftOut(Option<Damage>),
    /// A section that can't be read.
    Refused(Damage),
    /// An item that is not a frame.
    Other,
    /// The end of the file.
    End,
}

/// When a frame was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// This many nanoseconds after the epoch, at most [`MAX_TIME_NS`](crate::block::MAX_TIME_NS).
    At(u64),
    /// The file has no time for it.
    None,
    /// The time is before the epoch, or later than the largest valid time.
    Beyond,
}

impl Time {
    /// The time in a file, if it is valid.
    pub(super) fn new(ns: Option<u64>) -> Time {
        ns.map_or(Time::Beyond, Time::At)
    }
}

/// A frame as stored in the file.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) time: Time,
    pub(super) wire_len: u32,
    pub(super) link: LinkType,
    /// The queue of its interface.
    pub(super) rx_queue: u16,
    pub(super) bytes: &'a [u8],
}
