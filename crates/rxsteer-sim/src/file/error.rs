//! What is wrong with a scenario file, and where.

use rxsteer_settings::Refused;
use rxsteer_settings::suggestion;
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
    #[error("{place}: {table} has no key '{key}'{}", suggestion(key, keys))]
    UnknownKey {
        /// Where.
        place: Place,
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
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
    /// A setting of the steering that is unknown, or set to what it does not take.
    #[error("{place}: {path}: {refused}")]
    Setting {
        /// Where.
        place: Place,
        /// The path of the table.
        path: String,
        /// Why.
        refused: Refused,
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
            | FileError::Setting { place, .. }
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
        }
    }
}
