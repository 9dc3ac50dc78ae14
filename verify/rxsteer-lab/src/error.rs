//! What can go wrong in the lab.

use std::io;

/// What went wrong, and where.
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
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A BPF program could not be loaded, attached or run.
    #[cfg(feature = "bpf")]
    #[error("cannot {what}: {source}")]
    Bpf {
        /// What was tried.
        what: String,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// Something did not happen in the time it had.
    #[error("{what} within {seconds} s; {stderr}")]
    Late {
        /// What was waited for, as "... did not ...".
        what: String,
        /// How long.
        seconds: u64,
        /// What is known.
        stderr: String,
    },
    /// Another program printed what we cannot read.
    #[error("cannot read what {who} printed: {why}")]
    Unreadable {
        /// The program.
        who: String,
        /// What is wrong with it.
        why: String,
    },
}

/// What the lab returns.
pub type Result<T> = std::result::Result<T, LabError>;

/// Says what was tried when the system refuses it.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Tried<T> for std::result::Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| LabError::System { what: what(), source: error.into() })
    }
}

/// Says what was tried when libbpf fails.
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
