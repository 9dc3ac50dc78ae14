//! The C code of the in-kernel path, compiled for the host CPU.
//!
//! The BPF programs consist of headers that call no helper. The shims include the same headers with memory instead of
//! the kernel. So their decisions can be compared with `rxsteer-packet` and `rxsteer-core` millions of times a second,
//! without root, and under a fuzzer. Only tests depend on this crate.
#![deny(unsafe_code)]

pub mod abi;
pub mod check;
#[allow(unsafe_code)]
mod ffi;
mod frames;
mod oracle;

pub use ffi::delay;
pub use ffi::parse::{Class, Packet, hash, parse, parse_options};
pub use ffi::policy;
pub use ffi::seq;
pub use frames::Frames;
pub use oracle::Oracle;
