//! Code that several tests share.

pub(crate) mod backlogs;
pub(crate) mod sparse;
