//! The other ends of veths, in any network namespace, and their checksum offload.
//!
//! A veth passes a frame on with its TCP or UDP checksum left to a device, but no device follows. The stack recognizes
//! this by a mark in the socket buffer, which an XDP redirect loses. So rxsteer can steer what containers send only if
//! their end of the veth completes checksums (`ethtool -K eth0 tx off` inside the container).
//!
//! ```text
//!  link of this namespace ─► number of the peer's namespace ─► /proc/PID/ns/net, /run/netns ─► a thread enters it:
//!  which features are on ─► journal (fsync) ─► off ─► read back          restore: on again, where the same interface is there
//! ```
//!
//! Invariants: the former state is recorded before anything is switched off, so a kill at any moment loses nothing. No
//! file descriptor keeps a namespace alive. A restore touches only the interface that was changed.

mod journal;
mod namespaces;

use crate::error::HostError;
use crate::link::{Link, Pattern};
use crate::listing::links;
use crate::netlink::{ethtool, route};
use crate::root::Root;
use journal::Journal;
use namespaces::Namespace;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// The features that leave checksums to the device: `ethtool -K IF tx off` switches all of them off.
const TX_CHECKSUMS: &str = "tx-checksum-";

/// Why peers can't be changed.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// Another process already changes them.
    #[error(
        "another rxsteer peers runs on this host (/run/rxsteer/peers.lock is locked); end that one first"
    )]
    Held,
    /// The record of the former state cannot be written.
    #[error("can't keep the record of what was on before, {}: {error}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A peer whose checksum offload was switched off, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switched {
    /// The inode number of its network namespace.
    pub namespace: u64,
    /// Its index there.
    pub index: u32,
    /// Its name there.
    pub name: String,
    /// Its hardware address.
    pub address: Vec<u8>,
    /// The features that were on.
    pub features: Vec<String>,
}

/// The result for the peer of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Its offload was switched off now.
    SwitchedOff,
    /// Its offload is on, and would be switched off.
    On,
    /// Its offload was already off.
    Off,
    /// Its offload could not be switched off.
    Failed {
        /// Why.
        why: String,
    },
}

/// A veth of this namespace, its peer, and the result for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The name of the veth here.
    #[serde(rename = "interface")]
    pub link: String,
    /// The peer's name in its namespace; `None` if it was not found.
    pub peer: Option<String>,
    /// The inode number of that namespace.
    pub namespace: Option<u64>,
    /// The file by which the namespace was found.
    pub found_at: Option<PathBuf>,
    /// The result.
    #[serde(flatten)]
    pub state: State,
}

/// The result of restoring a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Its offload is on again.
    On,
    /// It is gone, or another interface has taken its place.
    Gone,
    /// The kernel refused; the peer stays recorded.
    Failed(String),
}

/// Identifies the peer of a link: the link's index, the peer's index, and the number of the peer's namespace.
type Place = (u32, u32, Option<u32>);

/// The peers whose checksum offload this process switches off.
#[derive(Debug)]
pub struct Peers {
    journal: Journal,
    /// Peers whose offload was switched off, by this process or by an earlier one that was killed.
    switched: Vec<Switched>,
    /// The examined links, and the results for their peers.
    known: Vec<(Place, State)>,
}

impl Peers {
    /// Takes the lock, and reads what a killed process left.
    pub fn open(root: &Root) -> Result<Peers, PeersError> {
        let (journal, switched) = Journal::open(root)?;
        Ok(Peers { journal, switched, known: Vec::new() })
    }

    /// How many peers are recorded, to be switched on again.
    pub fn switched(&self) -> usize {
        self.switched.len()
    }

    /// Switches off the offload of the peers of matching links. Returns the peers that are new, or that fail for
    /// another reason than before.
    pub fn apply(&mut self, patterns: &[Pattern]) -> Result<Vec<Seen>, PeersAtWork> {
        let chosen = chosen(patterns)?;
        self.known.retain(|(known, _)| chosen.iter().any(|(place, _)| place == known));
        let mut seen = Vec::new();
        for (place, link) in chosen {
            let before = self.known.iter().position(|(known, _)| *known == place);
            let before = before.map(|at| self.known.swap_remove(at).1);
            let now = match before {
                Some(state @ (State::SwitchedOff | State::Off)) => {
                    self.known.push((place, state));
                    continue;
                }
                _ => self.switch_off(place, &link)?,
            };
            self.known.push((place, now.state.clone()));
            if before.as_ref() != Some(&now.state) {
                seen.push(now);
            }
        }
        Ok(seen)
    }

    /// Examines the peer of one link, and switches its offload off.
    fn switch_off(&mut self, place: Place, link: &Link) -> Result<Seen, PeersError> {
        let (mut seen, found) = examine(place, link);
        let Some((namespace, peer)) = found else { return Ok(seen) };
        if seen.state != State::On {
            self.follow(peer)?;
            return Ok(seen);
        }
        let (index, features) = (peer.index, peer.features.clone());
        // A namespace that has ended took its interfaces with it.
        let there = namespaces::inodes();
        self.switched
            .retain(|known| known.address != peer.address && there.contains(&known.namespace));
        self.switched.push(peer);
        self.journal.keep(&self.switched)?;
        let done = namespace.inside(move || {
            ethtool::set_features(index, &features, false)?;
            tx_checksums(index)
        });
        seen.state = match done {
            Ok(on) if on.is_empty() => State::SwitchedOff,
            Ok(on) => State::Failed {
                why: format!("the kernel did not turn these off: {}", on.join(", ")),
            },
            Err(error) => State::Failed { why: refused(&error) },
        };
        if seen.state != State::SwitchedOff {
            self.switched.pop();
            self.journal.keep(&self.switched)?;
        }
        Ok(seen)
    }

    /// Updates where a recorded peer is. A veth may move into its container after it was switched off.
    fn follow(&mut self, peer: Switched) -> Result<(), PeersError> {
        let known = self.switched.iter_mut().find(|known| known.address == peer.address);
        let Some(known) = known else { return Ok(()) };
        *known = Switched { features: std::mem::take(&mut known.features), ..peer };
        self.journal.keep(&self.switched)
    }

    /// Switches on again what was switched off. A peer for which this fails stays recorded.
    pub fn restore(self) -> Result<Vec<(Switched, Restored)>, PeersError> {
        let Peers { journal, switched, .. } = self;
        let mut all = Vec::new();
        for peer in switched {
            let restored = restore(&peer);
            all.push((peer, restored));
        }
        let failed =
            |(_, restored): &&(Switched, Restored)| matches!(restored, Restored::Failed(_));
        let left: Vec<Switched> = all.iter().filter(failed).map(|(peer, _)| peer.clone()).collect();
        journal.keep(&left)?;
        Ok(all)
    }
}

/// Why a whole call failed.
#[derive(Debug, thiserror::Error)]
pub enum PeersAtWork {
    /// Links cannot be listed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The record cannot be written.
    #[error(transparent)]
    Peers(#[from] PeersError),
}

/// What [`Peers::apply`] would find; changes nothing.
pub fn examine_all(patterns: &[Pattern]) -> Result<Vec<Seen>, HostError> {
    Ok(chosen(patterns)?.iter().map(|(place, link)| examine(*place, link).0).collect())
}

/// The veths that match.
fn chosen(patterns: &[Pattern]) -> Result<Vec<(Place, Link)>, HostError> {
    let meant = links()?
        .into_iter()
        .filter(|link| link.is("veth") && patterns.iter().any(|pattern| pattern.matches(link)));
    Ok(meant
        .filter_map(|link| Some(((link.index, link.lower?, link.lower_namespace), link)))
        .collect())
}

/// Examines the peer of a link: which features are on, and where it is.
fn examine((_, index, number): Place, link: &Link) -> (Seen, Option<(Namespace, Switched)>) {
    let mut seen = Seen {
        link: link.name.clone(),
        peer: None,
        namespace: None,
        found_at: None,
        state: State::Failed {
            why: "its network namespace was not found in /proc and /run/netns: finding it requires CAP_SYS_PTRACE, \
                  and in a \
                  container the host's PID namespace"
                .to_owned(),
        },
    };
    let namespace = match number {
        None => Namespace::own().ok(),
        Some(number) => namespaces::by_number(number),
    };
    let Some(namespace) = namespace else { return (seen, None) };
    seen.namespace = Some(namespace.inode);
    seen.found_at = number.map(|_| namespace.path.clone());
    match namespace.inside(|| Ok((identity(index)?, tx_checksums(index)?))) {
        Ok(((name, address), features)) => {
            seen.peer = Some(name.clone());
            seen.state = if features.is_empty() { State::Off } else { State::On };
            let peer = Switched { namespace: namespace.inode, index, name, address, features };
            (seen, Some((namespace, peer)))
        }
        Err(error) => {
            seen.state = State::Failed { why: refused(&error) };
            (seen, None)
        }
    }
}

fn refused(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!(
                "{error}: entering a network namespace requires CAP_SYS_ADMIN, and CAP_NET_ADMIN there"
            )
        }
        _ => error.to_string(),
    }
}

/// Name and hardware address of an interface of this thread's namespace.
fn identity(index: u32) -> io::Result<(String, Vec<u8>)> {
    let links = route::links()?;
    let link = links.into_iter().find(|link| link.index == index);
    link.map(|link| (link.name, link.address)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The features of an interface that are on and leave checksums to the device.
fn tx_checksums(index: u32) -> io::Result<Vec<String>> {
    let active = ethtool::active_features(index)?;
    Ok(active.into_iter().filter(|name| name.starts_with(TX_CHECKSUMS)).collect())
}

fn restore(peer: &Switched) -> Restored {
    let Some(namespace) = namespaces::by_inode(peer.namespace) else { return Restored::Gone };
    let done = namespace.inside(|| {
        // The kernel reuses numbers of namespaces and interfaces, but the hardware addresses of veths are random.
        if !identity(peer.index).is_ok_and(|(_, address)| address == peer.address) {
            return Ok(Restored::Gone);
        }
        ethtool::set_features(peer.index, &peer.features, true)?;
        let on = tx_checksums(peer.index)?;
        let missing: Vec<&str> =
            peer.features.iter().filter(|name| !on.contains(name)).map(String::as_str).collect();
        Ok(match missing[..] {
            [] => Restored::On,
            _ => Restored::Failed(format!(
                "the kernel did not turn these on: {}",
                missing.join(", ")
            )),
        })
    });
    done.unwrap_or_else(|error| Restored::Failed(refused(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched() -> Switched {
        Switched {
            namespace: 4_026_532_345,
            index: 2,
            name: "eth0".to_owned(),
            address: vec![2, 0, 0, 0, 0, 1],
            features: vec!["tx-checksum-ip-generic".to_owned()],
        }
    }

    #[test]
    fn what_a_killed_process_left_is_known_until_the_next_boot() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let boot = folder.path().join("proc/sys/kernel/random");
        std::fs::create_dir_all(&boot).unwrap();
        std::fs::write(boot.join("boot_id"), "a\n").unwrap();
        let mut peers = Peers::open(&root).unwrap();
        peers.switched.push(switched());
        peers.journal.keep(&peers.switched).unwrap();
        assert!(matches!(Peers::open(&root), Err(PeersError::Held)), "one at a time");
        drop(peers);
        assert_eq!(Peers::open(&root).unwrap().switched, [switched()]);
        std::fs::write(boot.join("boot_id"), "b\n").unwrap();
        assert_eq!(Peers::open(&root).unwrap().switched, []);
    }

    #[test]
    fn record_that_makes_no_sense_stops_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        drop(Peers::open(&root).unwrap());
        std::fs::write(folder.path().join("run/rxsteer/peers.json"), "{\"boot\":").unwrap();
        let why = Peers::open(&root).unwrap_err().to_string();
        assert!(why.contains("peers.json"), "{why}");
    }

    #[test]
    fn peer_that_is_gone_leaves_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let mut peers = Peers::open(&root).unwrap();
        peers.switched.push(Switched { namespace: 1, ..switched() });
        peers.journal.keep(&peers.switched).unwrap();
        let restored = peers.restore().unwrap();
        assert_eq!(restored[0].1, Restored::Gone);
        assert!(!folder.path().join("run/rxsteer/peers.json").exists());
    }
}
