//! The C of the in-kernel path, compiled for this machine.
//!
//! The BPF programs are made of headers without a helper call in them; the shims include the same
//! headers with memory in place of the kernel. So what they decide can be compared with
//! `rxsteer-packet` and `rxsteer-core` millions of times a second, without root and under a fuzzer.
//! Nothing but tests depends on this crate.
#![deny(unsafe_code)]

pub mod abi;
pub mod check;
#[allow(unsafe_code)]
mod ffi;
mod frames;
mod oracle;

pub use ffi::parse::{Class, Packet, hash, parse};
pub use ffi::policy;
pub use ffi::seq;
pub use frames::Frames;
pub use oracle::Oracle;
