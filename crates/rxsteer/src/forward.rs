//! Packets out again by AF_XDP sockets: a bump in the wire between two interfaces, on many CPUs, each flow in order.
//!
//! Takes the feature `xdp`. Example: `bridge_filter`.

pub use rxsteer_user::forward::{Action, Bridge, ForwardCounts, Forwarder, Inspector, Wiring};
