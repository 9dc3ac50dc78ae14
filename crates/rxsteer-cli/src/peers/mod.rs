//! `rxsteer peers`: the other ends of veths complete checksums while it runs.
//!
//! Finding, switching and the record are `rxsteer-host`'s; here is when it looks, and what is printed. It is a command of its
//! own, because entering namespaces takes CAP_SYS_ADMIN, which `rxsteer run` neither takes nor keeps.

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
