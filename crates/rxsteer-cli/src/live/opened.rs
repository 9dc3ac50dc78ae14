//! The interfaces and sockets that sources need, and the opened sources.

use rxsteer_user::Handler;
use rxsteer_user::source::Source;
use std::ops::Range;

/// An interface that is to be received from.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    /// Its RX queues, as the pipeline numbers them.
    pub(super) rx_queues: Range<u16>,
}

/// What makes the handler that sends packets on, for one CPU.
pub(super) type Outgoing = Box<dyn FnMut() -> anyhow::Result<Box<dyn Handler>>>;

/// Sources, and what is shown of them.
pub(super) struct Opened {
    /// One for each RX queue.
    pub(super) sources: Vec<Box<dyn Source>>,
    /// Of each interface what its frames begin with.
    pub(super) links: Vec<&'static str>,
    /// Of each interface how its packets come, for people.
    pub(super) modes: Vec<String>,
    /// Where packets are to be sent on.
    pub(super) outgoing: Option<Outgoing>,
    /// What is undone when this is dropped: promiscuous mode.
    pub(super) _kept: Vec<Box<dyn Send>>,
}
