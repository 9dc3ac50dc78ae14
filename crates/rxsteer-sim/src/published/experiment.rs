//! The published experiments, by name.

use std::fmt;

/// The published experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Sparse flows on a slow router (sparse-patch).
    Sparse,
    /// Receive flow steering: netperf and the RPC test (rfs-commit).
    Rfs,
    /// Hand-off of forwarded packets (hand-off-patch).
    HandOff,
    /// Receive packet steering on four NICs (rps-slides).
    Rps,
}

impl Experiment {
    /// All experiments.
    pub const ALL: [Experiment; 4] =
        [Experiment::Sparse, Experiment::Rfs, Experiment::HandOff, Experiment::Rps];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Sparse => "sparse",
            Experiment::Rfs => "rfs",
            Experiment::HandOff => "hand-off",
            Experiment::Rps => "rps",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
