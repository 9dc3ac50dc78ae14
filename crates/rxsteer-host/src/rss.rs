//! How a NIC and its driver spread packets: RSS, channels, NAPI instances.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How a NIC spreads flows over its RX queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rss {
    /// The hash function.
    pub function: Option<String>,
    /// The indirection table: RX queues, indexed by the low bits of the hash.
    pub table: Vec<u32>,
    /// The hashed fields by type of flow (`tcp4`, `udp6`, …); empty before Linux 6.17.
    pub fields: BTreeMap<String, Vec<String>>,
}

impl Rss {
    /// The number of queues in the table.
    pub fn queues(&self) -> usize {
        self.table.iter().collect::<BTreeSet<_>>().len()
    }
}

/// The channels of a NIC: queues with an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// Channels that receive.
    pub used: u32,
    /// Channels that could receive (`ethtool -L`).
    pub most: u32,
}

/// A NAPI instance, which polls a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Napi {
    /// Its number.
    pub id: u32,
    /// Its interrupt.
    pub interrupt: Option<u32>,
    /// Whether a thread polls it.
    pub threaded: bool,
    /// That thread.
    pub thread: Option<u32>,
    /// The number of polls without an interrupt before the interrupt is armed again.
    pub defer_hard_irqs: Option<u32>,
    /// How long GRO may hold packets, in ns.
    pub gro_flush_timeout_ns: Option<u64>,
}
