//! The cases of all crates.
#![allow(
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "the files belong to other targets too"
)]

use rxsteer_bench::Case;

#[path = "../../../crates/rxsteer-core/benches/kernels.rs"]
mod core;
#[path = "../../../crates/rxsteer-flows/benches/kernels.rs"]
mod flows;
#[path = "../../../crates/rxsteer-packet/benches/kernels.rs"]
mod packet;
#[path = "../../../crates/rxsteer-ring/benches/kernels.rs"]
mod ring;
#[path = "../../../crates/rxsteer-sim/benches/kernels.rs"]
mod sim;
#[path = "../../../crates/rxsteer-user/benches/kernels.rs"]
mod user;

/// All of them, crate by crate.
pub(crate) fn all() -> Vec<Case> {
    [core::all(), packet::all(), ring::all(), flows::all(), user::all(), sim::all()]
        .into_iter()
        .flatten()
        .collect()
}
