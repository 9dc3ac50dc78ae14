//! What would this policy do on a simulated machine?
//!
//! Discrete events in virtual time: CPUs, cards, interrupts, backlogs, senders and applications are modelled; the
//! *decisions* are `rxsteer-core`'s own, unchanged ([`rxsteer_core::Steering`]). One seed gives one
//! result.
#![forbid(unsafe_code)]

pub mod check;
pub mod compare;
pub mod costs;
pub mod engine;
pub mod faults;
pub mod file;
pub mod fit;
pub mod metric;
pub mod published;
pub mod recorded;
pub mod result;
#[cfg(test)]
mod sample;
pub mod scenario;
pub mod seeds;
pub mod soak;
pub mod summary;
#[cfg(test)]
mod testing;

pub use engine::run;
pub use result::RunResult;
pub use scenario::Scenario;
