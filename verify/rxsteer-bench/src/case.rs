//! A single measurement.

use std::fmt;

/// One variant of a group. All variants of a group do the same work, so their times can be divided.
pub struct Case {
    /// The work, with the same text for all its variants: "toeplitz, 12 bytes".
    pub group: &'static str,
    /// The variant: "gfni, lists of 32".
    pub name: &'static str,
    /// Whether the times of the group's other variants are divided by this one's. A group may have several baselines.
    pub baseline: bool,
    /// How many items one call of `run` handles.
    pub per_iter: u64,
    /// Does the work on `per_iter` items, and returns something that depends on all of them, so that the compiler
    /// cannot leave any out. A case with its own threads keeps them, and returns when all items have arrived. Time
    /// within [`unmeasured`](crate::unmeasured) is not counted.
    pub run: Box<dyn FnMut() -> u64>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("group", &self.group)
            .field("name", &self.name)
            .field("baseline", &self.baseline)
            .field("per_iter", &self.per_iter)
            .finish_non_exhaustive()
    }
}
