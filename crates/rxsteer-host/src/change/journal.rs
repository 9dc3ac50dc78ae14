//! The journal of old values: a file of lines, each on disk (fsync) before the value that it describes is written.
//!
//! The first line has the kernel's boot id. Each write has one line with its old and new value before it, and one line
//! after it that marks it as done. If a kill cut off the last line, its write had not begun, so the line is dropped.

use super::STATE;
use super::plan::{Owner, Write};
use crate::mask;
use crate::root::Root;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The version of this format.
const VERSION: u32 = 1;

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Journal { version: u32, boot: String },
    Set { path: String, old: String, new: String, owner: Option<Owner> },
    Done { path: String },
}

/// A value that rxsteer changed, over all applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: String,
    /// The interface that it belongs to.
    pub owner: Option<Owner>,
    /// The value before the first change, byte for byte.
    pub original: String,
    /// The value before the last write.
    pub old: String,
    /// The last value written.
    pub new: String,
    /// Whether the last write is known to be done.
    pub done: bool,
}

impl Change {
    /// Whether `now` can be the result of our writes: the value written; or, if a kill came in between, the value
    /// before, or what the kernel may have made of the new value (it removes CPUs from masks).
    pub fn may_have_left(&self, now: &str) -> bool {
        let is_part = || {
            let (Some(now), Some(new)) = (mask::bits(now), mask::bits(&self.new)) else {
                return false;
            };
            now.iter().all(|bit| new.contains(bit))
        };
        now == self.new || (!self.done && (now == self.old || is_part()))
    }
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A system call failed.
    #[error("can't keep the journal of old values {}: {error}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line other than the last one is damaged.
    #[error(
        "line {line} of the journal of old values {} is damaged; rxsteer host restore restores the values of the \
         other lines",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
}

/// The journal, open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    boot: String,
    changes: Vec<Change>,
    damaged: Option<usize>,
}

impl Journal {
    /// The path of the journal.
    pub fn path(root: &Root) -> PathBuf {
        root.path(STATE).join("host-journal.jsonl")
    }

    /// Opens the journal, and creates it if necessary. The caller holds the [`Lock`](super::Lock).
    pub fn open(root: &Root) -> Result<Journal, JournalError> {
        let path = Self::path(root);
        let failed = |error| JournalError::System { path: path.clone(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(root.path(STATE)).map_err(failed)?;
        let boot = root.text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        let mut file = options.open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let (changes, damaged) = read(&text, &boot);
        let is_of_this_boot = text.lines().next().and_then(parsed).is_some_and(
            |line| matches!(line, Line::Journal { boot: of, version: VERSION } if of == boot),
        );
        // A file whose first line is damaged must not be mistaken for one of another boot.
        let kept = if is_of_this_boot || damaged.is_some() { whole } else { 0 };
        let journal_failed = |error| JournalError::System { path: path.clone(), error };
        let mut cut = || {
            file.set_len(kept as u64)?;
            file.seek(SeekFrom::Start(kept as u64))
        };
        cut().map_err(journal_failed)?;
        let mut journal = Journal { path, file, boot, changes, damaged };
        if kept == 0 {
            journal.begin()?;
        }
        Ok(journal)
    }

    fn begin(&mut self) -> Result<(), JournalError> {
        let boot = self.boot.clone();
        self.append(&Line::Journal { version: VERSION, boot })?;
        // The directory entry must be on disk, too.
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::System { path: self.path.clone(), error }
    }

    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let mut text = serde_json::to_string(line).map_err(|error| self.failed(error.into()))?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| self.failed(error))
    }

    /// The recorded changes, without opening the journal for writing; none if there is no journal.
    pub fn recorded(root: &Root) -> Vec<Change> {
        let boot = root.text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let bytes = fs::read(Self::path(root)).unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        read(&String::from_utf8_lossy(&bytes[..whole]), &boot).0
    }

    /// The changes, in the order in which each value was first changed.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Fails if a line is damaged: then old values may be missing, and no new value should be set.
    pub fn check(&self) -> Result<(), JournalError> {
        match self.damaged {
            Some(line) => Err(JournalError::Damaged { path: self.path.clone(), line }),
            None => Ok(()),
        }
    }

    /// Records a write before it is made.
    pub(super) fn record(&mut self, write: &Write) -> Result<(), JournalError> {
        let line = Line::Set {
            path: write.path.clone(),
            old: write.old.clone(),
            new: write.new.clone(),
            owner: write.owner.clone(),
        };
        self.append(&line)?;
        note(&mut self.changes, line);
        Ok(())
    }

    /// Records that a write was made, and read back.
    pub(super) fn done(&mut self, path: &str) -> Result<(), JournalError> {
        let line = Line::Done { path: path.to_owned() };
        self.append(&line)?;
        note(&mut self.changes, line);
        Ok(())
    }

    /// Keeps only these changes; without any, the file is removed. At any time either the old or the new file exists.
    pub(super) fn keep(mut self, keep: impl Fn(&Change) -> bool) -> Result<(), JournalError> {
        self.changes.retain(keep);
        if self.changes.is_empty() {
            return fs::remove_file(&self.path).map_err(|error| self.failed(error));
        }
        let next = self.path.with_extension("next");
        let file = File::create(&next).map_err(|error| self.failed(error))?;
        let mut journal = Journal {
            path: next.clone(),
            file,
            boot: self.boot.clone(),
            changes: Vec::new(),
            damaged: None,
        };
        journal.begin()?;
        for change in &self.changes {
            let Change { path, owner, original, new, .. } = change.clone();
            journal.append(&Line::Set { path, old: original, new, owner })?;
            if change.done {
                journal.append(&Line::Done { path: change.path.clone() })?;
            }
        }
        fs::rename(&next, &self.path).map_err(|error| self.failed(error))
    }

    /// Removes changes whose value is the original one again.
    pub fn forget_unchanged(self) -> Result<(), JournalError> {
        self.keep(|change| !(change.done && change.new == change.original))
    }
}

fn parsed(line: &str) -> Option<Line> {
    serde_json::from_str(line).ok()
}

/// The changes of this boot, and the number of the first damaged line.
fn read(text: &str, boot: &str) -> (Vec<Change>, Option<usize>) {
    let (mut changes, mut damaged) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        match parsed(line) {
            Some(Line::Journal { boot: of, .. }) if of != boot => return (Vec::new(), None),
            Some(line) => note(&mut changes, line),
            None => damaged = damaged.or(Some(number)),
        }
    }
    (changes, damaged)
}

fn note(changes: &mut Vec<Change>, line: Line) {
    match line {
        Line::Journal { .. } => {}
        Line::Done { path } => {
            if let Some(change) = changes.iter_mut().rfind(|change| change.path == path) {
                change.done = true;
            }
        }
        Line::Set { path, old, new, owner } => {
            let known =
                changes.iter_mut().find(|change| change.path == path && change.owner == owner);
            match known {
                // If other software has set the value meanwhile, its value becomes the one to restore.
                Some(change) => {
                    if !change.may_have_left(&old) && old != change.original {
                        change.original.clone_from(&old);
                    }
                    (change.old, change.new, change.done) = (old, new, false);
                }
                None => changes.push(Change {
                    original: old.clone(),
                    path,
                    owner,
                    old,
                    new,
                    done: false,
                }),
            }
        }
    }
}
