//! Examines veths repeatedly until it is stopped, and then restores them.

use super::args::PeersArgs;
use crate::Outcome;
use crate::output::{note, print};
use crate::run::watch::LinkMonitor;
use crate::signals;
use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rxsteer_host::peers::{Peers, Restored, Seen, State, examine_all};
use rxsteer_host::{Pattern, Root, links};
use rxsteer_user::printable;
use serde_json::json;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often to read the interfaces, even if no links changed: the reason for a failure may be gone.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The least time between two readings, since each lists all interfaces.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// The command.
pub(crate) fn command(args: &PeersArgs) -> anyhow::Result<Outcome> {
    let patterns = args.interfaces.iter().map(|text| Pattern::new(text));
    let patterns = patterns.collect::<Result<Vec<Pattern>, _>>()?;
    check_names(&patterns)?;
    if args.dry_run {
        let seen = examine_all(&patterns)?;
        if seen.is_empty() {
            note("rxsteer: no veth of this network namespace matches");
        }
        let lines: String = seen.iter().map(|seen| line(seen) + "\n").collect();
        let object = json!({ "version": env!("CARGO_PKG_VERSION"), "peers": seen });
        print(&if args.json { format!("{object:#}\n") } else { lines })?;
        let is_seen = !seen.iter().any(|seen| matches!(seen.state, State::Failed { .. }));
        return Ok(if is_seen { Outcome::Success } else { Outcome::Findings });
    }
    let peers = Peers::open(&Root::host())?;
    if args.restore { restore(peers) } else { run(peers, &patterns) }
}

/// Refuses names (not patterns) of interfaces that are not veths: they would be ignored silently.
fn check_names(patterns: &[Pattern]) -> anyhow::Result<()> {
    let links = links()?;
    for pattern in patterns.iter().filter(|pattern| !pattern.is_open()) {
        match links.iter().find(|link| pattern.matches(link)) {
            Some(link) if link.is("veth") => {}
            Some(_) => anyhow::bail!("{pattern} is not a veth, so it has no other end"),
            None => anyhow::bail!(
                "there is no interface '{pattern}' in this network namespace; ip link show type veth lists its veths"
            ),
        }
    }
    Ok(())
}

fn run(mut peers: Peers, patterns: &[Pattern]) -> anyhow::Result<Outcome> {
    let signals =
        SignalFd::with_flags(&signals::block()?, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
    let signals = signals.context("can't wait for signals")?;
    if peers.switched() > 0 {
        note(&format!("rxsteer: {} on record from an earlier run", ends(peers.switched())));
    }
    let monitor = LinkMonitor::open();
    let mut is_ready = false;
    let applied = loop {
        match peers.apply(patterns) {
            Ok(seen) => seen.iter().for_each(|seen| note(&line(seen))),
            Err(why) => break Err(why),
        }
        if !is_ready {
            note("rxsteer: all present veths were handled; new ones are handled when they appear");
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            is_ready = true;
        }
        if wait(&signals, None, MIN_INTERVAL)? || wait(&signals, monitor.as_ref(), POLL_INTERVAL)? {
            break Ok(());
        }
    };
    let restored = restore(peers)?;
    applied?;
    Ok(restored)
}

/// Waits until links change, this time has passed, or a signal ends the program; returns whether it was a signal.
fn wait(signals: &SignalFd, monitor: Option<&LinkMonitor>, time: Duration) -> anyhow::Result<bool> {
    let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    fds.extend(monitor.map(|monitor| PollFd::new(monitor.as_fd(), PollFlags::POLLIN)));
    match poll(&mut fds, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error).context("can't wait for changes of links"),
    }
    monitor.map(LinkMonitor::take);
    Ok(signals.read_signal()?.is_some())
}

fn restore(peers: Peers) -> anyhow::Result<Outcome> {
    let restored = peers.restore()?;
    let mut failed = 0;
    for (peer, restored) in &restored {
        let name = printable(&peer.name);
        if let Restored::Failed(why) = restored {
            failed += 1;
            note(&format!(
                "rxsteer: {name} in network namespace {}: its checksum offload could not be turned on again: {}. It \
                 stays on record; remove the cause, then run rxsteer peers --restore",
                peer.namespace,
                printable(why)
            ));
        }
    }
    let on = restored.iter().filter(|(_, restored)| *restored == Restored::On).count();
    let gone = restored.len() - on - failed;
    let gone = if gone > 0 { format!("; {} gone", ends(gone)) } else { String::new() };
    note(&format!("rxsteer: checksum offload is on again at {}{gone}", ends(on)));
    Ok(if failed == 0 { Outcome::Success } else { Outcome::Findings })
}

fn ends(count: usize) -> String {
    if count == 1 { "1 end of a veth".to_owned() } else { format!("{count} ends of veths") }
}

/// The result for one peer.
fn line(seen: &Seen) -> String {
    let peer = seen.peer.as_deref().unwrap_or("the other end");
    let place = match (seen.namespace, &seen.found_at) {
        (Some(inode), Some(path)) => format!(" in network namespace {inode} ({})", path.display()),
        _ => String::new(),
    };
    let state = match &seen.state {
        State::SwitchedOff => "completes checksums from now on".to_owned(),
        State::On => "leaves checksums to the device".to_owned(),
        State::Off => "completes checksums".to_owned(),
        State::Failed { why } => format!("can't be switched: {why}"),
    };
    printable(&format!("{}: {peer}{place} {state}", seen.link)).into_owned()
}
