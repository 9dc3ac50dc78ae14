//! Every interleaving of the atomics of ring, policy and flow table; without `--cfg loom` (`cargo xtask loom`) nothing.
#![cfg(loom)]

mod flow_table;
mod policy;
mod ring;
