//! Testbeds, load, and measurements for live tests.
//!
//! A test of steering in the kernel needs a network without other flows, more packets than a socket can send, and a
//! check whether they arrived in order. This crate has all three:
//!
//! - [`Testbed`]: network namespaces joined by veth pairs, which are deleted when it is dropped, or by two NICs of this
//!   machine;
//! - `LiveFrames`: numbered frames, millions a second, made by an XDP program;
//! - [`Datagrams`]: the same numbers from real sockets, with any driver;
//! - `OrderCheck`: a program at the entry of the network stack that checks the numbers of each flow;
//! - `DelayCheck` and `SocketLoad`: paced datagrams, and their delay until they reach the stack;
//! - [`BusyProcesses`]: other work of a CPU that receives;
//! - [`MovingApplication`]: real sockets whose reader moves from CPU to CPU;
//! - [`Steering`]: `rxsteer run` in a namespace, and its reports;
//! - `experiment`: experiments that compare methods of steering, their rounds and reports;
//! - `calibrate` and `validate`: what a packet costs here, and whether the simulator predicts this machine from that;
//! - [`FlowLoad`]: what the statistics of flows cost;
//! - [`clients`]: iperf3, nginx with wrk, and ping, and their reports.
//!
//! Invariant: nothing outlives its owner. Namespaces and processes are removed when their value is dropped, also when a
//! test panics; the next test removes what a killed test left.
//!
//! # Files
//!
//! - `testbed.rs`, `live.rs`, `order.rs` with `bpf/order.bpf.c`: testbed, load and check of order
//! - `begin.rs`: runs one lab at a time, and first removes what a killed one left
//! - `cards.rs`, `lent.rs`: move real interfaces into a testbed and back
//! - `method.rs`: methods of steering
//! - `rr_load/`: requests and replies
//! - `receiving.rs`: packet sockets; `dpdk.c`: DPDK
//! - `flow_costs.rs`: what flow statistics cost
//! - `calibrate/`, `validate/`: the machine for the simulator, and its predictions
//! - `experiment/`: `mod.rs` the trait and the list, `run.rs` rounds, `figures.rs` statistics, a file per experiment
#![forbid(unsafe_code)]

mod application;
mod begin;
mod busy;
#[cfg(feature = "bpf")]
pub mod calibrate;
mod cards;
#[cfg(feature = "bpf")]
mod channels;
pub mod clients;
mod cpu_use;
mod cpus;
mod datagrams;
#[cfg(feature = "bpf")]
mod delay;
#[cfg(feature = "bpf")]
mod dpdk;
mod error;
#[cfg(feature = "bpf")]
pub mod experiment;
#[cfg(feature = "bpf")]
mod fixed;
mod flow_costs;
#[cfg(feature = "bpf")]
mod forwarding;
mod lent;
#[cfg(feature = "bpf")]
mod live;
#[cfg(feature = "bpf")]
mod method;
mod namespace;
#[cfg(feature = "bpf")]
mod numbers;
#[cfg(feature = "bpf")]
mod objects;
#[cfg(feature = "bpf")]
mod order;
mod process;
#[cfg(feature = "bpf")]
mod programs;
#[cfg(feature = "bpf")]
mod receiving;
#[cfg(feature = "bpf")]
mod recorded;
#[cfg(feature = "bpf")]
mod requests;
#[cfg(feature = "bpf")]
mod rounds;
mod rr_load;
mod skip;
#[cfg(feature = "bpf")]
mod sock_flow_entries;
#[cfg(feature = "bpf")]
mod socket_load;
mod steering;
mod testbed;
#[cfg(feature = "bpf")]
pub mod validate;

pub use application::{MovingApplication, ReadCounts};
pub use begin::{ActiveLab, begin};
pub use busy::BusyProcesses;
pub use cards::{Cards, InUse, chosen_cards, in_use, use_cards};
pub use cpu_use::CpuUse;
pub use cpus::{RingThread, offline, online_cpus, pin, ring_threads};
pub use datagrams::Datagrams;
#[cfg(feature = "bpf")]
pub use delay::{DelayCheck, Delays, monotonic_ns};
pub use error::{LabError, Result};
#[cfg(feature = "bpf")]
pub use fixed::{Arrivals, EmptySockets, EmptySwitch, Fixed, FixedRoute};
pub use flow_costs::{FlowCosts, FlowLoad, FlowStore};
#[cfg(feature = "bpf")]
pub use live::{Family, LiveFrames, Pass, Protocol, Traffic};
pub use namespace::Namespace;
#[cfg(feature = "bpf")]
pub use order::{OrderCheck, Seen};
pub use process::Process;
#[cfg(feature = "bpf")]
pub use programs::{Loaded, is_loaded, loaded};
#[cfg(feature = "bpf")]
pub use receiving::{Gate, Receiving, Seen as DoneByThread};
#[cfg(feature = "bpf")]
pub use recorded::send_recorded;
pub use rr_load::{RrLoad, RrReport, request_response};
pub use skip::{alone, missing, skipped, slice};
#[cfg(feature = "bpf")]
pub use socket_load::{SENDER_PRIORITY, SocketLoad};
pub use steering::{Steering, Totals, rxsteer, use_program};
pub use testbed::{End, Link, LinkOptions, Testbed};
