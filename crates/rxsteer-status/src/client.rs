//! Requests to running instances.

use crate::protocol::{Answer, MAX_ANSWER, Request};
use crate::registry;
use crate::status::{Command, Status};
use anyhow::Context;
use rxsteer_user::shown;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An instance answers at once, or within five seconds to a change. A client of `rxsteer run` that closes its
/// connection withdraws its change.
const REPLY_TIMEOUT: Duration = Duration::from_secs(8);
/// The timeout for each instance when all instances are queried.
const SHORT: Duration = Duration::from_secs(1);

/// Sends a request to the instance at `socket`.
pub fn request(socket: &Path, request: &Request) -> anyhow::Result<Answer> {
    match request_within(socket, request, REPLY_TIMEOUT)? {
        Answer::Error(why) => anyhow::bail!(why),
        answer => Ok(answer),
    }
}

fn request_within(socket: &Path, request: &Request, timeout: Duration) -> anyhow::Result<Answer> {
    let shown = shown(socket);
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "no instance can be reached at {shown}; check that one runs there, as this user or as root"
        )
    })?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let silent = || match request {
        Request::Set { .. } => format!(
            "the instance at {shown} does not answer. When it continues, rxsteer run does not make the change, \
             unless it has already begun; rxsteer live makes it. rxsteer status shows the current settings"
        ),
        _ => format!("the instance at {shown} does not answer"),
    };
    let late = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow::anyhow!(
            "{} within {} s: it is stopped (SIGSTOP), or very busy",
            silent(),
            timeout.as_secs_f64()
        ),
        _ => anyhow::Error::new(error).context(silent()),
    };
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(late)?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER as u64 + 1)).read_line(&mut answer).map_err(late)?;
    serde_json::from_str(&answer).with_context(|| {
        format!("this version of rxsteer does not understand the answer of the instance at {shown}; use the same \
                 version for both")
    })
}

/// The status of the instance at `socket`.
pub fn status(socket: &Path, flows: u32, reset: bool) -> anyhow::Result<Status> {
    match request(socket, &Request::Status { flows, reset })? {
        Answer::Status(status) => Ok(*status),
        _ => anyhow::bail!(
            "the instance at {} sent an unexpected answer; is it of another version?",
            shown(socket)
        ),
    }
}

/// The status of the instance at `socket`, if it answers within `timeout`.
pub fn status_within(socket: &Path, flows: u32, timeout: Duration) -> anyhow::Result<Status> {
    match request_within(socket, &Request::Status { flows, reset: false }, timeout)? {
        Answer::Status(status) => Ok(*status),
        Answer::Error(why) => anyhow::bail!(why),
        _ => anyhow::bail!(
            "the instance at {} sent an unexpected answer; is it of another version?",
            shown(socket)
        ),
    }
}

/// The status of all instances that answer.
pub fn running() -> Vec<Status> {
    let status = |socket: PathBuf| match request_within(
        &socket,
        &Request::Status { flows: 0, reset: false },
        SHORT,
    )
    .ok()?
    {
        Answer::Status(status) => Some(*status),
        _ => None,
    };
    registry::instances().into_iter().filter_map(status).collect()
}

/// The sockets of all instances.
pub fn sockets() -> anyhow::Result<Vec<PathBuf>> {
    let sockets = registry::instances();
    if let ([], [directory, ..]) = (&sockets[..], &registry::unreadable()[..]) {
        anyhow::bail!(
            "{} can't be read by this user, so an instance there can't be found; run this as root, or name its socket \
             with --socket PATH",
            shown(directory)
        );
    }
    anyhow::ensure!(
        !sockets.is_empty(),
        "no instance of rxsteer run, live or replay can be found in {}; start one (rxsteer run IFACE), or name \
         one that listens elsewhere with --socket PATH",
        registry::directories()
            .iter()
            .map(|directory| shown(directory))
            .collect::<Vec<_>>()
            .join(" or ")
    );
    Ok(sockets)
}

/// The instances to show: the one at `socket`; otherwise those on `interface`; otherwise all.
pub fn shown_by(socket: Option<&Path>, interface: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    match (socket, interface) {
        (Some(socket), _) => Ok(vec![socket.to_owned()]),
        (None, None) => sockets(),
        (None, Some(interface)) => {
            sockets()?;
            Ok(sockets_of(&on(interface, &running())?))
        }
    }
}

/// The instance for a change or an explanation: the one at `socket`; otherwise the one on `interface`; otherwise the
/// only one. If there are several, this selects one that steers in the kernel (`rxsteer run`), which accepts all such
/// requests; or else one that receives from interfaces (`rxsteer live`), which accepts some of them.
pub fn one(socket: Option<&Path>, interface: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(socket) = socket {
        return Ok(socket.to_owned());
    }
    let sockets = sockets()?;
    let instances = running();
    let found = match interface {
        Some(interface) => on(interface, &instances)?,
        None => instances.iter().collect(),
    };
    let of = |command: Command| -> Vec<&Status> {
        found.iter().copied().filter(|status| status.command == command).collect()
    };
    let first = [Command::Run, Command::Live, Command::Replay].map(of);
    let found = first.into_iter().find(|some| !some.is_empty()).unwrap_or_default();
    match (sockets_of(&found).as_slice(), interface) {
        ([socket], _) => Ok(socket.clone()),
        // If the instance does not answer, the request to it reports that.
        (_, None) if sockets.len() == 1 => Ok(sockets[0].clone()),
        (_, None) => anyhow::bail!(
            "several instances run; name one by an interface or with --socket: {}",
            listed(&instances)
        ),
        (_, Some(interface)) => anyhow::bail!(
            "several instances are on an interface '{interface}'; name one with --socket: {}",
            listed(&instances)
        ),
    }
}

/// The instances on `interface`. Interfaces in several network namespaces can have the same name; this prefers those in
/// the present namespace.
fn on<'a>(interface: &str, instances: &'a [Status]) -> anyhow::Result<Vec<&'a Status>> {
    let is_on = |status: &&Status| status.interfaces.iter().any(|known| known.name == interface);
    let found: Vec<&Status> = instances.iter().filter(is_on).collect();
    anyhow::ensure!(
        !found.is_empty(),
        "no instance is on '{interface}'; these run: {}",
        listed(instances)
    );
    let own = network_namespace();
    let here = found.iter().copied().filter(|status| status.network_namespace == own);
    let here: Vec<&Status> = here.collect();
    Ok(if here.is_empty() { found } else { here })
}

fn sockets_of(instances: &[&Status]) -> Vec<PathBuf> {
    instances.iter().map(|status| PathBuf::from(&status.socket)).collect()
}

/// The network namespace of this process, by its inode number.
#[must_use]
pub fn network_namespace() -> Option<u64> {
    Some(std::fs::metadata("/proc/self/ns/net").ok()?.ino())
}

fn listed(instances: &[Status]) -> String {
    let shown = |status: &Status| {
        let names: Vec<&str> = status.interfaces.iter().map(|known| known.name.as_str()).collect();
        format!("{} ({} {})", status.socket, status.command.name(), names.join(", "))
    };
    instances.iter().map(shown).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn instance_that_stays_silent_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let request = Request::Status { flows: 0, reset: false };
        let why = request_within(&socket, &request, Duration::from_millis(50)).unwrap_err();
        let why = format!("{why:#}");
        assert!(why.contains("does not answer within 0.05 s: it is stopped"), "{why}");
    }
}
