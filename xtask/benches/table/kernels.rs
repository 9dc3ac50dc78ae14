//! The cases of all crates.
#![allow(
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "the files belong to other targets too"
)]

use rxsteer_bench::Case;

/// Takes in a crate's cases. The file is what that crate's own benches run; it may bring its own
/// `Case`, so that it needs nothing from here.
macro_rules! cases_of {
    ($into:ident, $module:ident) => {
        $into.extend($module::all().into_iter().map(|case| Case {
            group: case.group,
            name: case.name,
            baseline: case.baseline,
            per_iter: case.per_iter,
            run: case.run,
        }))
    };
}

#[path = "../../../crates/rxsteer-packet/benches/kernels.rs"]
mod packet;
#[path = "../../../crates/rxsteer-ring/benches/kernels.rs"]
mod ring;
#[path = "../../../crates/rxsteer-user/benches/kernels.rs"]
mod user;

/// All of them, crate by crate.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases_of!(cases, packet);
    cases_of!(cases, ring);
    cases_of!(cases, user);
    cases
}
