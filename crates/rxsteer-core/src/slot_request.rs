//! A packet whose flow asks for a sparse slot, and the identity of a flow in the tables of slots.

use crate::flow::FlowHash;

/// A request for a flow's slot.
#[derive(Clone, Copy)]
pub(crate) struct SlotRequest {
    pub(crate) device: u16,
    pub(crate) hash: FlowHash,
    pub(crate) now_ns: u64,
    /// The number of the producer that asks.
    pub(crate) producer: u16,
}

#[inline(always)]
pub(crate) fn flow_of(request: &SlotRequest) -> u64 {
    identity(request.device, request.hash)
}

/// The identity of a flow in the tables of slots: never 0, and below 2^49.
#[inline(always)]
#[must_use]
pub fn identity(device: u16, hash: FlowHash) -> u64 {
    (u64::from(device) + 1) << 32 | u64::from(hash.get())
}

/// A flow's hash combined with its device, so that the flow's packets on two devices of a router are in different chains.
#[inline(always)]
pub(crate) fn mixed(flow: u64) -> u32 {
    flow as u32 ^ ((flow >> 32) as u32).wrapping_mul(0x9e37_79b1)
}
