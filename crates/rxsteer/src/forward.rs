//! Forwarding of packets: a bump in the wire between two interfaces, on many CPUs.
//!
//! With AF_XDP sockets (feature `xdp`) each flow leaves in order under every policy, and the host no longer receives the
//! incoming packets. Example: `bridge_filter`.
//!
//! With packet sockets ([`PacketPort`]) the caller must ensure three conditions. Nothing here checks them:
//!
//! - The host also receives every packet. It must neither answer nor forward them: remove the addresses of both
//!   interfaces, and switch `ip_forward` off.
//! - The sources are opened with [`PacketOptions::forwards`](crate::source::PacketOptions::forwards) and
//!   [`promiscuous`](crate::source::PacketOptions::promiscuous).
//! - The kernel chooses the TX queue by the CPU that sends. If flows can move (`sparse`, `rfs`, `balance`, rules,
//!   unpinned workers, changes of settings), a flow stays in order only on an interface with one TX queue.

pub use rxsteer_user::forward::{
    Action, Bridge, ForwardCounts, ForwardError, ForwardPort, Forwarder, Inspector, LivePort,
    Outputs, PacketPort, PortSender, Wiring, why_none_may_move,
};
