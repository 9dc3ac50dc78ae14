//! `rxsteer status`: how running instances are.

use crate::run::args::StatusArgs;
use crate::{Outcome, fallback, output};
use rxsteer_host::Root;

/// The command.
#[cfg(not(feature = "xdp"))]
pub(crate) fn command(args: &StatusArgs) -> anyhow::Result<Outcome> {
    let kernel = kernel(args);
    if kernel.is_empty() {
        return Err(crate::run::not_built());
    }
    print_kernel(&kernel, args.json)
}

/// Values of the kernel's own steering that rxsteer set.
fn kernel(args: &StatusArgs) -> Vec<fallback::Set> {
    if args.socket.is_some() {
        return Vec::new();
    }
    fallback::recorded(&Root::host(), args.interface.as_deref())
}

fn print_kernel(sets: &[fallback::Set], json: bool) -> anyhow::Result<Outcome> {
    output::print(&if json {
        format!("{:#}\n", fallback::value(sets))
    } else {
        fallback::show(sets)
    })?;
    Ok(Outcome::Success)
}

/// The command.
#[cfg(feature = "xdp")]
pub(crate) fn command(args: &StatusArgs) -> anyhow::Result<Outcome> {
    use crate::run::show;
    use rxsteer_status::client;
    let kernel = kernel(args);
    let sockets = match (&args.socket, &args.interface) {
        (None, None) => client::sockets(),
        (socket, interface) => {
            client::one(socket.as_deref(), interface.as_deref()).map(|socket| vec![socket])
        }
    };
    if !kernel.is_empty() {
        print_kernel(&kernel, args.json)?;
        if sockets.is_err() {
            return Ok(Outcome::Success);
        }
    }
    let sockets = sockets?;
    for (index, socket) in sockets.iter().enumerate() {
        let status = client::status(socket, args.flows, args.reset)?;
        if args.json {
            output::print(&format!("{:#}\n", serde_json::to_value(&status)?))?;
        } else {
            let gap = if index == 0 && kernel.is_empty() { "" } else { "\n" };
            output::print(&format!("{gap}{}", show::status(&status)))?;
        }
    }
    Ok(Outcome::Success)
}
