//! Tests that run under loom, which tries every interleaving of atomics: `cargo xtask loom`.
//!
//! They are in a crate of their own because `--cfg loom` applies to every crate of a build. In a test folder of the tested
//! crates they would have the dependencies of all other tests built once more.
