#![doc = include_str!("../README.md")]
//!
//! ```text
//!  viewers ──► server.rs  at most 32 connections, each with limits of time and size (hyper)
//!                 │
//!              guard.rs   method, Host, Origin, token (token.rs): who may ask
//!                 │
//!              answers.rs a fixed list of paths
//!                 ├── files.rs    the page (../page), as it is in the program
//!                 ├── metrics.rs  families.rs: what each metric is, from the list of counters
//!                 └── api.rs      JSON
//!                        │
//!                     readings.rs shared by all viewers; history.rs while there is a viewer
//!                        │
//!                     reading.rs  all instances and the host at one time
//!                        │ control sockets
//!                     rxsteer-status
//! ```
//!
//! Invariants: the server queries no instance while there is no viewer. No viewer can change anything. Whatever viewers
//! do, an instance answers at most [`READINGS_PER_SECOND`] times a second.
#![forbid(unsafe_code)]

mod answers;
mod api;
mod families;
mod files;
mod guard;
mod history;
mod metrics;
mod reading;
mod readings;
mod server;
mod token;

pub use families::{documentation, names};
pub use reading::{Host, Source};
pub use readings::READINGS_PER_SECOND;
pub use server::{MAX_CONNECTIONS, MAX_HEAD, Running, Server};
pub use token::Token;
