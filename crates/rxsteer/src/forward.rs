//! Packets out again: a bump in the wire between two interfaces, on many CPUs, each flow in order.
//!
//! By packet sockets ([`PacketPort`]), or by AF_XDP sockets with the feature `xdp`. Example: `bridge_filter`.

pub use rxsteer_user::forward::{
    Action, Bridge, ForwardCounts, ForwardError, ForwardPort, Forwarder, Inspector, PacketPort,
    PortSender, Wiring,
};
