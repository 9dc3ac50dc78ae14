//! The settings of the dissector. The fast path uses them, too.

use crate::tunnel_id::TunnelKinds;

/// How far the dissector looks into a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DissectOptions {
    /// Take the key from inside IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U tunnels. The outer addresses are those of
    /// the two tunnel ends, which would put all packets of the tunnel on one CPU.
    pub inner: bool,
    /// For these kinds of tunnels, use the tunnel number in the key instead of the ports: if tunnels are not entered, or
    /// if the inner packet can't be read. All packets of such a tunnel have one pair of ports, or none, which would put
    /// them on one CPU.
    pub key_tunnels: TunnelKinds,
}
