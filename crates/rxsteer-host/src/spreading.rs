//! Reads how an interface spreads packets by itself: RSS, channels, NAPI instances.

use crate::netlink::{ethtool, netdev};
use crate::rss::{Channels, Napi, Rss};
use serde::Serialize;

/// How an interface of this network namespace spreads packets by itself; `None` where its driver does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spreading {
    /// RSS.
    pub rss: Option<Rss>,
    /// Channels.
    pub channels: Option<Channels>,
    /// NAPI instances; empty before Linux 6.7, and while the interface is down.
    pub napi: Vec<Napi>,
}

impl Spreading {
    /// Reads that of the interface with this index.
    pub fn read(index: u32) -> Spreading {
        Spreading {
            rss: ethtool::rss(index).ok().filter(|rss| *rss != Rss::default()),
            channels: ethtool::channels(index).ok(),
            napi: netdev::napi(index).unwrap_or_default(),
        }
    }
}
