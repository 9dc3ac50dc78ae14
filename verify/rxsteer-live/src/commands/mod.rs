//! The experiments, one file each.

pub(crate) mod bpf_cost;
pub(crate) mod bridge_cost;
pub(crate) mod busy;
pub(crate) mod flood;
pub(crate) mod hand_off;
pub(crate) mod kernel_rps;
pub(crate) mod live_sources;
mod others;
pub(crate) mod receive_cost;
mod rounds;
pub(crate) mod router;
pub(crate) mod socket_cost;
mod starving;
pub(crate) mod status_cost;
pub(crate) mod watch_cost;
