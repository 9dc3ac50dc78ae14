//! All integration tests, a module for each file: one program is quicker to build than many.
#![cfg(feature = "bpf")]

mod checksum;
mod frames;
mod parse;
mod policy;
mod rules;
mod unguarded;
mod verified;
