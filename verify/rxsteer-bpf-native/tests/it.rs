//! All integration tests, one module per file: one program is quicker to build than many.

mod change;
mod delay;
mod order;
mod parse;
mod policy;
mod seq;
