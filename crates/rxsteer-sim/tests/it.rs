//! All integration tests, one module per file: one program is quicker to build than many.

mod common;
mod engine;
mod published;
mod queueing;
mod scenarios;
mod soak;
