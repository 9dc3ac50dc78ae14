//! The numbers of the C side, which the build generates from `src/abi.c`; the headers describe them.

#![allow(missing_docs)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
