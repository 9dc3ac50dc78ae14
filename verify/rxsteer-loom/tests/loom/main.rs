//! Tests of ring, policy and flow table under every interleaving of their atomics. Without `--cfg loom`, which `cargo
//! xtask loom` sets, this file contains no tests.
#![cfg(loom)]

mod flow_table;
mod policy;
mod ring;
