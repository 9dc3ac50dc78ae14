//! All integration tests, a module for each file: one program is quicker to build than many.

mod common;
mod engine;
mod published;
mod queueing;
mod scenarios;
mod soak;
