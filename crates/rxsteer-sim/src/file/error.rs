//! What is wrong with a scenario file, and where.

use std::fmt;

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    Line {
        /// What the file is called.
        file: String,
        /// Its line, from 1.
        line: usize,
    },
    /// In a value given in place of the file's.
    Set {
        /// The key's path.
        path: String,
        /// The value.
        value: String,
    },
    /// In a word of a change of steering.
    Change(String),
}

/// Why a scenario file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is no TOML.
    #[error("{place}: {what}")]
    Syntax {
        /// Where.
        place: Place,
        /// Why.
        what: String,
    },
    /// A key that isn't there.
    #[error("{place}: {table} has no key '{key}'{}", hint(nearest, keys))]
    UnknownKey {
        /// Where.
        place: Place,
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
        /// The key most like it.
        nearest: Option<&'static str>,
        /// All keys the table has.
        keys: Box<[&'static str]>,
    },
    /// A key that has to be there.
    #[error("{place}: {table} needs the key '{key}': {what}")]
    Missing {
        /// Where the table begins.
        place: Place,
        /// The table.
        table: &'static str,
        /// The key.
        key: &'static str,
        /// What it says.
        what: String,
    },
    /// A value that is not of its key's kind.
    #[error("{place}: {path}: {what}")]
    Value {
        /// Where.
        place: Place,
        /// The key's path.
        path: String,
        /// What is wrong with it, and what it takes.
        what: String,
    },
    /// A scenario that can't be.
    #[error("{place}: {path}: {what}")]
    Impossible {
        /// Where.
        place: Place,
        /// The key's path.
        path: String,
        /// Why it can't be.
        what: String,
    },
}

impl FileError {
    /// Where to look.
    #[must_use]
    pub fn place(&self) -> &Place {
        match self {
            FileError::Syntax { place, .. }
            | FileError::UnknownKey { place, .. }
            | FileError::Missing { place, .. }
            | FileError::Value { place, .. }
            | FileError::Impossible { place, .. } => place,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line } => write!(f, "{file}:{line}"),
            Place::Set { path, value } => write!(f, "--set {path}={value}"),
            Place::Change(word) => write!(f, "'{word}'"),
        }
    }
}

fn hint(nearest: &Option<&str>, keys: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("; nearest key '{nearest}'"),
        None => format!("; its keys are '{}'", keys.join("', '")),
    }
}

/// The word of `valid` most like `word`, if any is like it at all: a third of its letters may differ.
pub(super) fn nearest<'a>(word: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let most = (word.chars().count() / 3).max(2);
    valid
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
