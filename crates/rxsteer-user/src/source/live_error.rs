//! Why live interfaces can't be received from.

use crate::printable::printable;
use rxsteer_core::MAX_RX_QUEUES;
use rxsteer_io::packet::PacketError;

/// Why a live interface can't be received from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The socket could not be opened.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// [`PacketOptions::share`](super::packet::PacketOptions::share) is not a valid share; holds it.
    #[error(
        "({0}, {1}) is not a share of the RX queues: the first number must be below the second"
    )]
    Share(u32, u32),
    /// Its frames begin with an unsupported header; holds its name and its `ARPHRD_` number.
    #[error(
        "the frames of interface '{0}' have link type {1} (linux/if_arp.h), which is not supported; supported are \
         Ethernet, loopback and raw IP"
    )]
    LinkType(String, u16),
    /// One interface of several; holds its name.
    #[error("can't receive from {}: {}", printable(.0), .1)]
    On(String, #[source] Box<LiveError>),
    /// The name of an interface is empty.
    #[error("the name of an interface is empty")]
    NoName,
    /// An interface is named twice; holds its name.
    #[error("{} is named twice; its packets would count twice", printable(.0))]
    Twice(String),
    /// There are more RX queues than a pipeline can have.
    #[error(
        "the interfaces have more than {MAX_RX_QUEUES} RX queues, which is the limit; name fewer interfaces"
    )]
    TooManyQueues,
    /// AF_XDP on an interface without Ethernet frames; holds its name.
    #[error(
        "{} is not Ethernet, and AF_XDP sockets receive Ethernet frames; use AF_PACKET (--io packet)",
        printable(.0)
    )]
    NotEthernet(String),
    /// Two interfaces whose frames begin with different headers can't send what the other one received; holds their names
    /// and link types.
    #[error(
        "{} has {} frames and {} has {} frames, so neither can send what the other receives; join interfaces of one kind",
        printable(&.0.0), .0.1, printable(&.1.0), .1.1
    )]
    LinkTypes((String, &'static str), (String, &'static str)),
    /// AF_XDP sockets can't be opened.
    #[cfg(feature = "xdp")]
    #[error("can't receive by AF_XDP: {0}")]
    Xdp(#[from] rxsteer_io::xdp::XdpError),
    /// AF_XDP was requested without the cargo feature `xdp`.
    #[error(
        "AF_XDP sockets are not built in (cargo feature xdp, which requires clang and libelf); use AF_PACKET (--io packet)"
    )]
    WithoutXdp,
}

impl LiveError {
    /// The same error, of the interface with this name.
    pub(super) fn on(self, name: &str) -> LiveError {
        LiveError::On(name.to_owned(), Box::new(self))
    }
}
