//! `rxsteer peers`: makes the other ends of veths complete checksums while it runs.
//!
//! `rxsteer-host` finds peers, switches them and keeps the record; this module decides when to read the interfaces, and
//! prints the results. It is a separate command because entering namespaces requires CAP_SYS_ADMIN, which `rxsteer run`
//! neither requires nor keeps.

pub(crate) mod args;
#[cfg(feature = "xdp")]
mod running;

#[cfg(feature = "xdp")]
pub(crate) use running::command;

/// The command.
#[cfg(not(feature = "xdp"))]
pub(crate) fn command(_: &args::PeersArgs) -> anyhow::Result<crate::Outcome> {
    Err(crate::run::not_built())
}
