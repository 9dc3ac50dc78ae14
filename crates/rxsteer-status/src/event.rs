//! What happened, for logs and views.

use serde::{Deserialize, Serialize};

/// Something that happened to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number since the start, from 1; a gap is of events that were suppressed or no longer kept.
    pub number: u64,
    /// When, in nanoseconds of Unix time.
    pub time_ns: u64,
    /// Its kind, e.g. `interface_gone`.
    pub kind: String,
    /// What happened, why, and what to do, as text.
    pub text: String,
}
