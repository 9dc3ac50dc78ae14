//! The numbers of `bpf/lab.h`, made of it by the build.

#![allow(dead_code, reason = "some are for the programs alone")]

include!(concat!(env!("OUT_DIR"), "/numbers.rs"));

// Datagrams are sent where there is no clang, too.
const _: () = assert!(crate::datagrams::MAGIC == LAB_MAGIC as u64);
