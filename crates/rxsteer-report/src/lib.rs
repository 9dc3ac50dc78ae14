//! Reports of rxsteer: lines and tables that fit a terminal, pages with plots, and the results of simulated runs.
//!
//! This crate reads no command line and no file: a function gets results, and returns text.
#![forbid(unsafe_code)]

#[cfg(feature = "sim")]
pub mod chart;
#[cfg(feature = "sim")]
pub mod html;
pub mod lines;
#[cfg(feature = "sim")]
pub mod sim;
pub mod table;
