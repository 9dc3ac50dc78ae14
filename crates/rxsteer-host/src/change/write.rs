//! Writes the values of a plan: records each before, reads it back after, and can undo all of them.

use super::journal::{Journal, JournalError};
use super::plan::{Plan, Write};
use crate::mask;
use crate::root::{Root, Tree};
use std::io;

/// Why a value could not be set.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The system refused the write.
    #[error("{}: {error}{}", path, advice(error))]
    Write {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The kernel accepted the value, and changed it.
    #[error("{path}: {}", filtered(wrote, found))]
    Filtered {
        /// The file.
        path: String,
        /// What was written.
        wrote: String,
        /// The value after the write.
        found: String,
    },
    /// Other software wrote the file between reading and writing.
    #[error(
        "{path}: it was {} when rxsteer read it, and {} before rxsteer wrote it; something else is changing it",
        planned.trim(), found.trim()
    )]
    Meanwhile {
        /// The file.
        path: String,
        /// The value when the plan was made.
        planned: String,
        /// The present value.
        found: String,
    },
    /// The journal cannot be written, so nothing else is.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Why a plan was not applied.
#[derive(Debug, thiserror::Error)]
#[error("{refusal}")]
pub struct ApplyError {
    /// The first error.
    pub refusal: Refusal,
    /// How many values had been set, and are restored.
    pub undone: usize,
    /// Values that could not be restored, and why.
    pub left: Vec<Refusal>,
}

/// Whether this process may write all values of a plan; this writes nothing.
pub fn may_apply(root: &Root, plan: &Plan) -> Result<(), Refusal> {
    plan.writes.iter().try_for_each(|write| {
        let path = write.path.clone();
        root.may_write(&write.path).map_err(|error| Refusal::Write { path, error })
    })
}

/// Applies a plan, as a whole or not at all.
pub fn apply(tree: &impl Tree, journal: &mut Journal, plan: &Plan) -> Result<(), ApplyError> {
    for (place, write) in plan.writes.iter().enumerate() {
        if let Err(refusal) = set(tree, journal, write) {
            // A refused write may have changed the value, too.
            let touched = match refusal {
                Refusal::Meanwhile { .. } | Refusal::Journal(_) => place,
                Refusal::Write { .. } | Refusal::Filtered { .. } => place + 1,
            };
            let left = set_back(tree, journal, &plan.writes[..touched]);
            return Err(ApplyError { undone: place, left, refusal });
        }
    }
    Ok(())
}

/// Restores the values that a plan set; returns those for which this failed.
pub fn undo(tree: &impl Tree, journal: &mut Journal, plan: &Plan) -> Vec<Refusal> {
    set_back(tree, journal, &plan.writes)
}

fn set_back(tree: &impl Tree, journal: &mut Journal, writes: &[Write]) -> Vec<Refusal> {
    let back = |write: &Write| -> Result<(), Refusal> {
        let path = &write.path;
        let read = tree.read(path);
        let now = read.map_err(|error| Refusal::Write { path: path.clone(), error })?;
        let change = journal.changes().iter().rfind(|change| change.path == *path);
        if now != write.old && change.is_none_or(|change| !change.may_have_left(&now)) {
            let (path, planned) = (path.clone(), write.new.clone());
            return Err(Refusal::Meanwhile { path, planned, found: now });
        }
        let undone = Write { old: now, new: write.old.clone(), ..write.clone() };
        if undone.old == undone.new {
            // The write was refused, and its record is not marked as done. This removes the ambiguity.
            journal.record(&undone)?;
            return Ok(journal.done(path)?);
        }
        set(tree, journal, &undone)
    };
    writes.iter().rev().map(back).filter_map(Result::err).collect()
}

/// Makes one write: records it, writes, reads back, and marks it as done.
pub(super) fn set(tree: &impl Tree, journal: &mut Journal, write: &Write) -> Result<(), Refusal> {
    let path = &write.path;
    let failed = |error| Refusal::Write { path: path.clone(), error };
    let now = tree.read(path).map_err(failed)?;
    if now != write.old {
        let (path, planned) = (path.clone(), write.old.clone());
        return Err(Refusal::Meanwhile { path, planned, found: now });
    }
    journal.record(write)?;
    tree.write(path, &write.new).map_err(failed)?;
    let found = tree.read(path).map_err(failed)?;
    if found != write.new {
        // Records the value that is there, not the requested one.
        journal.record(&Write { new: found.clone(), ..write.clone() })?;
        journal.done(path)?;
        let (path, wrote) = (path.clone(), write.new.clone());
        return Err(Refusal::Filtered { path, wrote, found });
    }
    Ok(journal.done(path)?)
}

/// What the user can do about a system error.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; writing it requires root, and CAP_NET_ADMIN in the first user namespace (sudo; in a container: --privileged)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; it is mounted read-only, as in most containers: run this on the host itself, or in a container that was \
             started with --privileged and --network host"
        }
        io::ErrorKind::NotFound => {
            "; the queue or the interface is gone, or this is not the first network namespace, and only that one \
             shows it"
        }
        io::ErrorKind::InvalidInput => {
            "; the kernel refuses the value: all of these CPUs are offline, isolated, or reserved by nohz_full"
        }
        _ => "",
    }
}

fn filtered(wrote: &str, found: &str) -> String {
    let (wrote, found) = (wrote.trim(), found.trim());
    let text = format!("rxsteer wrote {wrote}, and the kernel changed it to {found}");
    match (mask::bits(wrote), mask::bits(found)) {
        (Some(wrote), Some(found)) if found.iter().all(|bit| wrote.contains(bit)) => {
            let out: Vec<String> =
                wrote.iter().filter(|bit| !found.contains(bit)).map(ToString::to_string).collect();
            format!(
                "{text}: it left out CPU {}, because that is offline, isolated or reserved by nohz_full; name others with \
                 --cpus",
                out.join(", ")
            )
        }
        _ => text,
    }
}
