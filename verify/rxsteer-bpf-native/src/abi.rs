//! The numbers of the C side, made of `src/abi.c` by the build; what they mean stands in the headers.

#![allow(missing_docs)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
