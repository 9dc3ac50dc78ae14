//! `rxsteer status`: how running instances are.

use crate::Outcome;
use crate::run::args::StatusArgs;

/// The command.
#[cfg(not(feature = "xdp"))]
pub(crate) fn command(_args: &StatusArgs) -> anyhow::Result<Outcome> {
    Err(crate::run::not_built())
}

/// The command.
#[cfg(feature = "xdp")]
pub(crate) fn command(args: &StatusArgs) -> anyhow::Result<Outcome> {
    use crate::output;
    use crate::run::{client, show};
    let sockets = match (&args.socket, &args.interface) {
        (None, None) => client::sockets()?,
        (socket, interface) => vec![client::one(socket.as_deref(), interface.as_deref())?],
    };
    for (index, socket) in sockets.iter().enumerate() {
        let status = client::status(socket, args.flows, args.reset)?;
        if args.json {
            output::print(&format!("{:#}\n", serde_json::to_value(&status)?))?;
        } else {
            let gap = if index == 0 { "" } else { "\n" };
            output::print(&format!("{gap}{}", show::status(&status)))?;
        }
    }
    Ok(Outcome::Success)
}
