//! All integration tests, one module per file: one program is quicker to build than many.
#![cfg(not(loom))]

mod abuse;
mod admission;
mod decide;
mod flow_limit_model;
mod matching;
mod reference;
mod rfs_model;
mod sparse_reference;
mod transition;
