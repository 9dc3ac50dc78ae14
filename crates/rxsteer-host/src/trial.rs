//! The result of trying what `rxsteer run` will do. This crate loads nothing: a caller that can do so passes the result
//! as a fact.

use serde::Serialize;

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Trial {
    /// It was not tried.
    NotTried {
        /// Why not.
        why: String,
    },
    /// It works.
    Works,
    /// It does not.
    Fails {
        /// What failed, in one sentence.
        what: String,
        /// The whole kernel log about it; may be empty.
        log: String,
    },
}

impl Trial {
    /// It was not tried.
    pub fn not_tried(why: impl Into<String>) -> Trial {
        Trial::NotTried { why: why.into() }
    }
}
