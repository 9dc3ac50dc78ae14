//! Restores the values that were there before the first apply.

use super::journal::{Change, Journal, JournalError};
use super::plan::Write;
use super::write::{Refusal, set};
use crate::error::HostError;
use crate::knobs::{INTERFACES, InterfaceKnobs};
use crate::root::{Root, Tree};
use serde::Serialize;

/// The result for one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The file.
    pub path: String,
    /// The value before the first apply.
    pub original: String,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The result of restoring a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It has its original value again.
    Restored {
        /// The value until now.
        from: String,
    },
    /// It already had its original value.
    AsBefore,
    /// Other software has set it since, so it was left.
    SetByAnother {
        /// The value that rxsteer had set.
        ours: String,
        /// The present value.
        now: String,
    },
    /// The interface is gone, and its values with it.
    Gone,
    /// Its interface is in another network namespace, and must be restored there; the value stays recorded.
    OtherNamespace {
        /// The inode of that namespace.
        namespace: u64,
    },
    /// It could not be written; the value stays recorded.
    Failed {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// Whether it stays recorded for another attempt.
    pub fn stays(&self) -> bool {
        matches!(self, Self::OtherNamespace { .. } | Self::Failed { .. })
    }

    /// Whether a value of this network namespace is not the original one.
    pub fn differs(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::SetByAnother { .. })
    }
}

/// Restores all recorded values, the last change first, and removes those from the record that need no further attempt.
///
/// `namespace` is the inode of this network namespace.
pub fn restore(
    root: &Root,
    mut journal: Journal,
    namespace: u64,
) -> Result<Vec<Restored>, JournalError> {
    let changes: Vec<Change> = journal.changes().to_vec();
    let mut restored = preview(root, &journal, namespace);
    for (change, one) in changes.iter().rev().zip(&mut restored) {
        let Outcome::Restored { from } = &one.outcome else { continue };
        let write = Write {
            path: one.path.clone(),
            old: from.clone(),
            new: change.original.clone(),
            owner: change.owner.clone(),
            meaning: String::new(),
        };
        if let Err(refusal) = set(root, &mut journal, &write) {
            one.outcome = Outcome::Failed { why: refusal.to_string() };
        }
    }
    let staying: Vec<bool> = restored.iter().rev().map(|one| one.outcome.stays()).collect();
    let stays = |change: &Change| {
        let same = |of: &Change| of.path == change.path && of.owner == change.owner;
        let place = changes.iter().position(same);
        // The last write of an interface that was renamed is under its new name.
        place.is_some_and(|place| staying[place])
    };
    journal.keep(stays)?;
    Ok(restored)
}

/// What [`restore`] would do, the last change first; this writes nothing.
#[must_use]
pub fn preview(root: &Root, journal: &Journal, namespace: u64) -> Vec<Restored> {
    let interfaces = identities(root);
    let preview = journal.changes().iter().rev().map(|change| {
        let (path, outcome) = match file_of(root, &interfaces, change, namespace) {
            Ok(path) => {
                let outcome = would_be(root, change, &path);
                (path, outcome)
            }
            Err(outcome) => (change.path.clone(), outcome),
        };
        Restored { path, original: change.original.clone(), outcome }
    });
    preview.collect()
}

/// An interface of this network namespace: name, index, address.
type Identity = (String, u32, String);

/// All interfaces; an error if sysfs shows another namespace.
fn identities(root: &Root) -> Result<Vec<Identity>, HostError> {
    let all = InterfaceKnobs::read_all(root)?;
    Ok(all.into_iter().map(|one| (one.name, one.index, one.address)).collect())
}

/// The present path of a value's file, or why there is none. Index and address identify the interface: one with the
/// same name may be another interface, and one that was renamed is still the same.
fn file_of(
    root: &Root,
    interfaces: &Result<Vec<Identity>, HostError>,
    change: &Change,
    namespace: u64,
) -> Result<String, Outcome> {
    let Some(owner) = &change.owner else { return Ok(change.path.clone()) };
    if owner.namespace != namespace {
        let is_there = namespace_is_there(root, owner.namespace);
        let elsewhere = Outcome::OtherNamespace { namespace: owner.namespace };
        return Err(if is_there { elsewhere } else { Outcome::Gone });
    }
    let interfaces =
        interfaces.as_ref().map_err(|error| Outcome::Failed { why: error.to_string() })?;
    let same = |of: &&Identity| of.1 == owner.index && of.2 == owner.address;
    let (name, ..) = interfaces.iter().find(same).ok_or(Outcome::Gone)?;
    let (before, after) =
        (format!("{INTERFACES}/{}/", owner.name), format!("{INTERFACES}/{name}/"));
    Ok(change.path.replacen(&before, &after, 1))
}

/// Whether some process is in the network namespace with that inode, or the namespace has a name (`ip netns`).
fn namespace_is_there(root: &Root, inode: u64) -> bool {
    let shown = format!("net:[{inode}]");
    let of_process = |name: &String| {
        let link = root.path(format!("/proc/{name}/ns/net"));
        std::fs::read_link(link).is_ok_and(|to| to.to_string_lossy() == shown)
    };
    root.text("/proc/self/mountinfo").is_some_and(|mounts| mounts.contains(&shown))
        || root.names("/proc").iter().any(of_process)
}

/// The result that restoring a value would have.
fn would_be(root: &Root, change: &Change, path: &str) -> Outcome {
    let now = match root.read(path) {
        Ok(now) => now,
        // The queue no longer exists (ethtool -L). A file without an interface exists, but in another network
        // namespace.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && change.owner.is_some() => {
            return Outcome::Gone;
        }
        Err(error) => {
            let why = Refusal::Write { path: path.to_owned(), error }.to_string();
            return Outcome::Failed { why };
        }
    };
    if now == change.original {
        Outcome::AsBefore
    } else if change.may_have_left(&now) {
        Outcome::Restored { from: now }
    } else {
        Outcome::SetByAnother { ours: change.new.clone(), now }
    }
}
