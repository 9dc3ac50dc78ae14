//! `rxsteer status`: prints the state of running instances, once or repeatedly.

use crate::run::args::StatusArgs;
use crate::{Outcome, fallback, output};
use rxsteer_host::Root;
use rxsteer_status::client;

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
pub(crate) fn command(args: &StatusArgs) -> anyhow::Result<Outcome> {
    let kernel = kernel(args);
    let sockets = client::shown_by(args.socket.as_deref(), args.interface.as_deref());
    if !kernel.is_empty() {
        print_kernel(&kernel, args.json)?;
        if sockets.is_err() {
            return Ok(Outcome::Success);
        }
    }
    let sockets = sockets?;
    match args.interval {
        Some(interval) => printing::repeated(args, &sockets, interval),
        None => printing::one(args, &sockets, kernel.is_empty()),
    }
}

/// Prints the status of instances, once or repeatedly.
mod printing {
    use crate::run::args::StatusArgs;
    use crate::run::show;
    use crate::{Outcome, output};
    use rxsteer_status::{Command, Rates, Status, client};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    /// The time between the two readings for the rates of a single status.
    const BETWEEN: Duration = Duration::from_millis(500);

    /// One status of each instance; as text, with the rates of the last half second.
    pub(super) fn one(
        args: &StatusArgs,
        sockets: &[PathBuf],
        is_first: bool,
    ) -> anyhow::Result<Outcome> {
        let mut before = Vec::new();
        if !args.json {
            for socket in sockets {
                before.push(unless_over(args, socket, client::status(socket, 0, false))?);
            }
            std::thread::sleep(BETWEEN);
        }
        for (index, socket) in sockets.iter().enumerate() {
            let status = client::status(socket, args.flows, args.reset);
            let Some(status) = unless_over(args, socket, status)? else { continue };
            if args.json {
                output::print(&format!("{:#}\n", serde_json::to_value(&status)?))?;
            } else {
                let before = before.get(index).and_then(Option::as_ref);
                let rates = before.and_then(|before| Rates::between(before, &status));
                let gap = if index == 0 && is_first { "" } else { "\n" };
                output::print(&format!("{gap}{}", show::status(&status, rates.as_ref())))?;
            }
            note_missing_flows(args, &status);
        }
        Ok(Outcome::Success)
    }

    /// The status; `None` for an instance that was not named and ended meanwhile, as replays do.
    fn unless_over(
        args: &StatusArgs,
        socket: &Path,
        status: anyhow::Result<Status>,
    ) -> anyhow::Result<Option<Status>> {
        let is_named = args.socket.is_some() || args.interface.is_some();
        match status {
            Err(_) if !is_named && !socket.exists() => Ok(None),
            status => status.map(Some),
        }
    }

    /// The status of each instance with its rates, once per interval, until the reader is gone or no instance is left.
    pub(super) fn repeated(
        args: &StatusArgs,
        sockets: &[PathBuf],
        interval: Duration,
    ) -> anyhow::Result<Outcome> {
        let mut watched: Vec<(&PathBuf, Status)> = Vec::new();
        for socket in sockets {
            let status = unless_over(args, socket, client::status(socket, 0, false))?;
            watched.extend(status.map(|status| (socket, status)));
        }
        let mut next = Instant::now();
        let mut gap = "";
        loop {
            // If a reading took longer than the interval, missed readings are not made up for.
            next = (next + interval).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let mut left = Vec::new();
            for (socket, before) in watched {
                let status = match client::status(socket, args.flows, false) {
                    Ok(status) => status,
                    Err(why) => {
                        output::note(&format!("rxsteer: {}", output::error_text(&why)));
                        continue;
                    }
                };
                let rates = Rates::between(&before, &status);
                let text = if args.json {
                    line(&status, rates.as_ref())?
                } else {
                    format!("{gap}{}", show::status(&status, rates.as_ref()))
                };
                gap = "\n";
                if !output::print_more(&text)? {
                    return Ok(Outcome::Success);
                }
                left.push((socket, status));
            }
            watched = left;
            if watched.is_empty() {
                return Ok(Outcome::Findings);
            }
        }
    }

    /// The status with its rates in one line of JSON.
    fn line(status: &Status, rates: Option<&Rates>) -> anyhow::Result<String> {
        let mut value = serde_json::to_value(status)?;
        value["rates"] = serde_json::to_value(rates)?;
        Ok(format!("{value}\n"))
    }

    /// Prints why requested flows are not listed.
    fn note_missing_flows(args: &StatusArgs, status: &Status) {
        if args.flows > 0 && status.command != Command::Run && !status.settings.flow_stats {
            let command = status.command.name();
            output::note(&format!(
                "rxsteer: this rxsteer {command} counts no flows, so none are listed; start it with --flows FILE"
            ));
        }
    }
}
