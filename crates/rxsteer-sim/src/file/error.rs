//! Errors in a scenario file, with their places.

use rxsteer_settings::Refused;
use rxsteer_settings::suggestion;
use std::fmt;

/// The place of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    Line {
        /// The name of the file.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// In a value that replaces one of the file.
    Set {
        /// The path of the key.
        path: String,
        /// The value.
        value: String,
    },
}

/// Why a scenario file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file is not valid TOML.
    #[error("{place}: {what}")]
    Syntax {
        /// The place.
        place: Place,
        /// The reason.
        what: String,
    },
    /// The file has an unknown key.
    #[error("{place}: {table} has no key '{key}'{}", suggestion(key, keys))]
    UnknownKey {
        /// The place.
        place: Place,
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
        /// All valid keys of the table.
        keys: Box<[&'static str]>,
    },
    /// A required key is missing.
    #[error("{place}: {table} needs the key '{key}': {what}")]
    Missing {
        /// Where the table begins.
        place: Place,
        /// The table.
        table: &'static str,
        /// The key.
        key: &'static str,
        /// What the key specifies.
        what: String,
    },
    /// A setting of the steering is unknown or has an invalid value.
    #[error("{place}: {path}: {refused}")]
    Setting {
        /// The place.
        place: Place,
        /// The path of the table.
        path: String,
        /// The reason.
        refused: Refused,
    },
    /// A value does not have the type of its key.
    #[error("{place}: {path}: {what}")]
    Value {
        /// The place.
        place: Place,
        /// The path of the key.
        path: String,
        /// The problem with the value, and the valid values.
        what: String,
    },
    /// The scenario is invalid.
    #[error("{place}: {path}: {what}")]
    Impossible {
        /// The place.
        place: Place,
        /// The path of the key.
        path: String,
        /// The reason.
        what: String,
    },
}

impl FileError {
    /// The place of the error.
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
