//! Looks at what an interface does by itself: RSS, channels, NAPI instances.

use crate::netlink::{ethtool, netdev};
use crate::rss::{Channels, Napi, Rss};
use serde::Serialize;

/// What an interface of this network namespace does by itself; what its driver does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spreading {
    /// RSS.
    pub rss: Option<Rss>,
    /// Channels.
    pub channels: Option<Channels>,
    /// NAPI instances; none before Linux 6.7, and while the interface is down.
    pub napi: Vec<Napi>,
}

impl Spreading {
    /// Looks at the interface of that number.
    pub fn look(index: u32) -> Spreading {
        Spreading {
            rss: ethtool::rss(index).ok().filter(|rss| *rss != Rss::default()),
            channels: ethtool::channels(index).ok(),
            napi: netdev::napi(index).unwrap_or_default(),
        }
    }
}
