//! Back to what was there before the first apply.

use super::journal::{Change, Journal, JournalError};
use super::plan::Write;
use super::write::{Refusal, set};
use crate::error::HostError;
use crate::knobs::{INTERFACES, InterfaceKnobs};
use crate::root::{Root, Tree};
use serde::Serialize;

/// What became of one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The file.
    pub path: String,
    /// What was there before the first apply.
    pub original: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It is what it was again.
    Restored {
        /// What it was until now.
        from: String,
    },
    /// It was so already.
    AsBefore,
    /// Something else set it since; it was left.
    SetByAnother {
        /// What we had set.
        ours: String,
        /// What it is.
        now: String,
    },
    /// The interface is gone, and its values with it.
    Gone,
    /// It is of an interface in another network namespace, to be restored there; it stays on record.
    OtherNamespace {
        /// The inode of that namespace.
        namespace: u64,
    },
    /// It could not be written; it stays on record.
    Failed {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// Whether it stays on record for another attempt.
    pub fn stays(&self) -> bool {
        matches!(self, Self::OtherNamespace { .. } | Self::Failed { .. })
    }

    /// Whether something of this network namespace is not as before for want of a write.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// Restores all that is on record, the last change first, and takes off the record what needs no other attempt.
///
/// `namespace` is the inode of this network namespace.
pub fn restore(
    root: &Root,
    mut journal: Journal,
    namespace: u64,
) -> Result<Vec<Restored>, JournalError> {
    let changes: Vec<Change> = journal.changes().to_vec();
    let interfaces = identities(root);
    let mut restored = Vec::new();
    for change in changes.iter().rev() {
        let outcome = match file_of(root, &interfaces, change, namespace) {
            Ok(path) => back(root, &mut journal, change, path),
            Err(outcome) => outcome,
        };
        let (path, original) = (change.path.clone(), change.original.clone());
        restored.push(Restored { path, original, outcome });
    }
    let staying: Vec<bool> = restored.iter().rev().map(|one| one.outcome.stays()).collect();
    let stays = |change: &Change| {
        let same = |of: &Change| of.path == change.path && of.owner == change.owner;
        let place = changes.iter().position(same);
        // An interface that was renamed has its last write under the new name.
        place.is_some_and(|place| staying[place])
    };
    journal.keep(stays)?;
    Ok(restored)
}

/// An interface of this network namespace: name, number, address.
type Identity = (String, u32, String);

/// All of them; an error where sysfs shows another namespace.
fn identities(root: &Root) -> Result<Vec<Identity>, HostError> {
    let all = InterfaceKnobs::look_at_all(root)?;
    Ok(all.into_iter().map(|one| (one.name, one.index, one.address)).collect())
}

/// The file that a value is in now, or why there is none. An interface is known by its number and address: one of the same
/// name may be another, and one that was renamed is the same.
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

/// Whether a process is in the network namespace with that inode, or it has a name (`ip netns`).
fn namespace_is_there(root: &Root, inode: u64) -> bool {
    let shown = format!("net:[{inode}]");
    let of_process = |name: &String| {
        let link = root.path(format!("/proc/{name}/ns/net"));
        std::fs::read_link(link).is_ok_and(|to| to.to_string_lossy() == shown)
    };
    root.text("/proc/self/mountinfo").is_some_and(|mounts| mounts.contains(&shown))
        || root.names("/proc").iter().any(of_process)
}

fn back(root: &Root, journal: &mut Journal, change: &Change, path: String) -> Outcome {
    let now = match root.read(&path) {
        Ok(now) => now,
        // A queue that is no more (ethtool -L). What is of no interface is there, in another network namespace.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && change.owner.is_some() => {
            return Outcome::Gone;
        }
        Err(error) => {
            return Outcome::Failed { why: Refusal::Write { path, error }.to_string() };
        }
    };
    if now == change.original {
        return Outcome::AsBefore;
    }
    if !change.may_have_left(&now) {
        return Outcome::SetByAnother { ours: change.new.clone(), now };
    }
    let write = Write {
        path,
        old: now.clone(),
        new: change.original.clone(),
        owner: change.owner.clone(),
        meaning: String::new(),
    };
    match set(root, journal, &write) {
        Ok(()) => Outcome::Restored { from: now },
        Err(refusal) => Outcome::Failed { why: refusal.to_string() },
    }
}
