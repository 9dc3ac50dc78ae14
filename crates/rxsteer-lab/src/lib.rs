//! Testbeds, load, and what live tests measure.
//!
//! A test of steering in the kernel needs a network that is nobody else's, more packets than a
//! socket can send, and somebody who knows whether they arrived in order. Here are all three:
//!
//! - [`Testbed`]: network namespaces joined by veth pairs, gone when it is dropped;
//! - `LiveFrames`: numbered frames, millions a second, made by an XDP program;
//! - `OrderCheck`: a program at the door of the network stack that checks the numbers of each flow;
//! - [`MovingApplication`]: real sockets, whose reader keeps changing CPU;
//! - [`Steering`]: `rxsteer run` in a namespace, and what it reports;
//! - [`clients`]: iperf3, nginx with wrk, and ping, and what they report.
//!
//! What must hold: nothing outlives its owner. Namespaces and processes go when their value is
//! dropped, also when a test panics; what a killed test left is removed by the next.
#![forbid(unsafe_code)]

mod application;
pub mod clients;
mod cpus;
mod error;
#[cfg(feature = "bpf")]
mod fixed;
#[cfg(feature = "bpf")]
mod live;
mod namespace;
#[cfg(feature = "bpf")]
mod objects;
#[cfg(feature = "bpf")]
mod order;
mod process;
#[cfg(feature = "bpf")]
mod recorded;
mod skip;
mod steering;
mod testbed;

pub use application::{Heard, MovingApplication};
pub use cpus::{RingThread, offline, online_cpus, pin, ring_threads};
pub use error::{LabError, Result};
#[cfg(feature = "bpf")]
pub use fixed::{Arrivals, EmptySwitch, Fixed, FixedRoute};
#[cfg(feature = "bpf")]
pub use live::{Family, LiveFrames, Pass, Protocol, Traffic};
pub use namespace::Namespace;
#[cfg(feature = "bpf")]
pub use order::{OrderCheck, Seen};
pub use process::Process;
#[cfg(feature = "bpf")]
pub use recorded::send_recorded;
pub use skip::{alone, missing, skipped, slice};
pub use steering::{Steering, Totals, rxsteer};
pub use testbed::{End, Link, LinkOptions, Testbed};
