//! The functions of the two shims: all code of this crate that calls C.

pub mod delay;
pub(crate) mod parse;
pub mod policy;
pub mod seq;
