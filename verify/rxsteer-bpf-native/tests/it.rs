//! All integration tests, a module for each file: one program is quicker to build than many.

mod change;
mod delay;
mod order;
mod parse;
mod policy;
mod seq;
