//! Errors of the lab.

use std::io;

/// What failed, and where.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Another program failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it printed to standard error.
        stderr: String,
    },
    /// The system refused an operation.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A BPF program could not be loaded, attached or run.
    #[cfg(feature = "bpf")]
    #[error("cannot {what}: {source}")]
    Bpf {
        /// The operation.
        what: String,
        /// The error of libbpf.
        source: libbpf_rs::Error,
    },
    /// The load of an experiment was not as specified, so it has no figure.
    #[error("the load was not what it should be: {why}")]
    Load {
        /// The difference.
        why: String,
    },
    /// A scenario can't be used.
    #[cfg(feature = "bpf")]
    #[error("the scenario can't be used: {why}")]
    Scenario {
        /// The place and the reason.
        why: String,
    },
    /// Another lab measures.
    #[error(
        "another rxsteer lab measures on this machine{}. Two at once would disturb each other's figures",
        .process.map_or(String::new(), |process| format!(" (process {process})"))
    )]
    Busy {
        /// Its process, if known.
        process: Option<u32>,
    },
    /// Something did not happen in time.
    #[error("{what} within {seconds} s; {stderr}")]
    Late {
        /// The event, in the form "... did not ...".
        what: String,
        /// The timeout.
        seconds: u64,
        /// Further information.
        stderr: String,
    },
    /// Another program printed something that cannot be parsed.
    #[error("cannot read what {who} printed: {why}")]
    Unreadable {
        /// The program.
        who: String,
        /// The problem with its output.
        why: String,
    },
}

impl LabError {
    /// Fails with [`LabError::Load`] unless `is_right`.
    pub(crate) fn check(is_right: bool, why: impl FnOnce() -> String) -> Result<()> {
        if is_right { Ok(()) } else { Err(LabError::Load { why: why() }) }
    }
}

/// The result type of the lab.
pub type Result<T> = std::result::Result<T, LabError>;

/// Adds the operation to an error of the system.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Tried<T> for std::result::Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| LabError::System { what: what(), source: error.into() })
    }
}

/// Adds the operation to an error of libbpf.
#[cfg(feature = "bpf")]
pub(crate) trait Bpf<T> {
    fn bpf(self, what: impl FnOnce() -> String) -> Result<T>;
}

#[cfg(feature = "bpf")]
impl<T> Bpf<T> for std::result::Result<T, libbpf_rs::Error> {
    fn bpf(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| LabError::Bpf { what: what(), source })
    }
}
