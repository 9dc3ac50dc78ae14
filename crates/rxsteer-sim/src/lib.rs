//! Simulates a steering policy on a machine that need not exist.
//!
//! CPUs, NICs, interrupts, backlogs, senders and applications are modelled as discrete events in virtual time. The
//! *decisions* are those of `rxsteer-core` itself, unchanged ([`rxsteer_core::Steering`]). One seed gives one
//! result.
//!
//! # Files
//!
//! - `scenario.rs`: input; `result.rs`: output
//! - `engine/`: the machine
//! - `file/`, `check/`: scenario files
//! - `seeds.rs`, `metric.rs`, `compare.rs`, `sensitivity.rs`: statistics over runs
//! - `renumber.rs`: the same machine with its CPUs numbered in reverse
//! - `published/`, `fit/`: published tables and fits
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
pub mod rebalance;
pub mod recorded;
pub mod renumber;
pub mod result;
#[cfg(test)]
mod sample;
pub mod scenario;
pub mod seeds;
pub mod sensitivity;
pub mod soak;
pub mod summary;
#[cfg(test)]
mod testing;

pub use engine::run;
pub use result::RunResult;
pub use scenario::Scenario;
