//! Reliable ratios on a small, shared machine.
//!
//! A core that also runs other work has modes: the same code runs 1.4 times slower for some seconds, and a cache line
//! that took 45 ns to the other core takes 160. Two variants that are measured one after the other then differ by more
//! than they really do. Therefore
//!
//! - the variants of a group take turns in short slices, in random order, round after round ([`interleave`]);
//! - a figure is compared only with the others of its round; the result is the median of those ratios, with quartiles
//!   ([`stats`]);
//! - a slice counts only if the two CPUs were close to each other before and after it ([`gate`]).
//!
//! ```text
//!  round 1   | gate B gate | gate A gate | gate C gate |   ->  A1/B1, C1/B1   (B is the baseline)
//!  round 2   | gate C gate | gate B gate | gate A gate |   ->  A2/B2, C2/B2
//!  ...                                                         median, quartiles over the rounds
//! ```
//!
//! The crate does not depend on packets, so the crates that it measures can use its [`Case`] in their own benches.
#![forbid(unsafe_code)]

pub mod case;
pub mod gate;
pub mod interleave;
mod left_out;
pub mod stats;
mod under_criterion;

pub use case::Case;
pub use gate::{Gate, NoGate};
pub use interleave::{Against, Measured, Plan, Report, Slices, measure};
pub use left_out::{leave_out, unmeasured};
pub use stats::Quartiles;
pub use under_criterion::under_criterion;
