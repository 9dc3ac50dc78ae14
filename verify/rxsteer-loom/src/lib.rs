//! Tests that run under loom, which tries every interleaving of atomics: `cargo xtask loom`.
//!
//! They are in a separate crate because `--cfg loom` applies to every crate of a build. In a test folder of the tested
//! crates, they would cause the dependencies of all other tests to be built again.
