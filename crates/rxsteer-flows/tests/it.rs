//! All integration tests, one module per file: one program is quicker to build than many.
#![cfg(not(loom))]

mod limits;
mod model;
mod reference;
mod threads;
mod victims;
