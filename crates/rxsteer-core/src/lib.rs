#![doc = include_str!("../README.md")]
//!
//! [`Steering::decide`] is the only entry point.
#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod backlogs;
pub mod balance;
pub mod balancer;
pub mod bound;
mod chooser;
pub mod config;
pub mod counters;
pub mod cpu;
pub mod explain;
pub mod flow;
pub mod flow_limit;
mod last_seen;
pub mod limits;
mod loops;
mod maps;
pub mod matching;
mod mechanisms;
pub mod order;
pub mod other_work;
pub mod plan;
pub mod policy;
pub mod queue_name;
pub mod rebalance;
pub mod rfs;
pub mod rps;
pub mod slot;
mod slot_request;
pub mod sparse;
pub mod state;
pub mod steer;
mod sync;
mod target;
pub mod thread_class;
pub mod transition;
pub mod verdict;

pub use admission::Slots;
pub use backlogs::{Arrival, Backlogs, Idle, Refusal};
pub use balance::Balance;
pub use balancer::{Balancer, CpuLoad, Move};
pub use config::{ConfigError, SteerConfig};
pub use counters::SteerCounts;
pub use cpu::{CpuId, CpuSet, CpuSetError};
pub use flow::{FlowHash, FlowKey, FlowWords};
pub use limits::MAX_RX_QUEUES;
pub use matching::{Facts, PacketRule};
pub use mechanisms::Mechanisms;
pub use order::DevFlow;
pub use other_work::OtherWork;
pub use plan::Plan;
pub use policy::{Fallback, Policy, PolicyError};
pub use queue_name::{QueueName, QueueNameError};
pub use rfs::SockFlowTable;
pub use slot::SlotOrder;
pub use state::State;
pub use steer::Steering;
pub use thread_class::{ThreadClass, ThreadClassError};
pub use verdict::{DropReason, Drops, Verdict};
