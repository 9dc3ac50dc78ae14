//! The interfaces and sockets that sources need, and the opened sources.

use rxsteer_user::Handler;
use rxsteer_user::source::Source;
use std::ops::Range;

/// An interface to receive from.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    /// Its RX queues, as the pipeline numbers them.
    pub(super) rx_queues: Range<u16>,
}

/// Creates the handler that sends packets on, for one CPU.
pub(super) type Outgoing = Box<dyn FnMut() -> anyhow::Result<Box<dyn Handler>>>;

/// Opened sources, with what the status shows of them.
pub(super) struct Opened {
    /// One for each RX queue.
    pub(super) sources: Vec<Box<dyn Source>>,
    /// For each interface, what its frames begin with.
    pub(super) links: Vec<&'static str>,
    /// For each interface, how its packets are received, as text.
    pub(super) modes: Vec<String>,
    /// Where packets are sent on.
    pub(super) outgoing: Option<Outgoing>,
    /// Undone when this is dropped: promiscuous mode.
    pub(super) _kept: Vec<Box<dyn Send>>,
}
