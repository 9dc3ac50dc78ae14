//! Packets out again: a bump in the wire between two interfaces, on many CPUs.
//!
//! By AF_XDP sockets (feature `xdp`) each flow leaves in order, whatever the policy, and the host no longer receives what
//! comes in. Example: `bridge_filter`.
//!
//! By packet sockets ([`PacketPort`]) three conditions are the caller's; nothing here checks them:
//!
//! - The host receives every packet, too: it must not answer or forward. Take addresses away from both interfaces, and
//!   switch `ip_forward` off.
//! - The sources are opened with [`PacketOptions::forwards`](crate::source::PacketOptions::forwards) and
//!   [`promiscuous`](crate::source::PacketOptions::promiscuous).
//! - The kernel chooses the TX queue by the CPU that sends. Where flows move (`sparse`, `rfs`, `balance`, rules, workers that are
//!   not pinned, changes of settings) a flow's order holds only over an interface with one TX queue.

pub use rxsteer_user::forward::{
    Action, Bridge, ForwardCounts, ForwardError, ForwardPort, Forwarder, Inspector, PacketPort,
    PortSender, Wiring,
};
