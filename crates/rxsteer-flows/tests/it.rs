//! All integration tests, a module for each file: one program is quicker to build than many.
#![cfg(not(loom))]

mod limits;
mod model;
mod reference;
mod threads;
mod victims;
