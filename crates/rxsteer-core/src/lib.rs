#![doc = include_str!("../README.md")]
//!
//! [`Steering::decide`] is the only entry point.
//!
//! # Files
//!
//! - `steer.rs`: state and `decide`
//! - `loops.rs`: per-packet work
//! - `backlogs.rs`: interface to the queues
//! - `policy.rs`: policies and their grammar
//! - `queue_name.rs`: settings per RX queue
//! - one mechanism each: `rps.rs`, `bound.rs`, `balance.rs` (which buckets move: `rebalance.rs`, `balancer.rs`),
//!   `sparse.rs` (`admission.rs`: after which packet), `rfs.rs`, `flow_limit.rs`
//! - `matching/`: rules before the policy (`text.rs` grammar, `action.rs` actions, `matcher.rs` compiled,
//!   `targets.rs` where to)
//! - `target.rs`: the CPU that the rules choose
//! - `order.rs`: the order guard
//! - `transition.rs`: from one plan to the next
//! - `config.rs`: checks a configuration once
//! - `limits.rs`: sizes
//! - `plan.rs`: compiles a configuration (`maps.rs` CPU maps, `chooser.rs` a policy, `mechanisms.rs` what policy and
//!   rules use)
//! - `slot.rs`: maps a hash to a slot
//! - `explain.rs`: decisions with reasons
//! - `state.rs`: decisions from the tables of another datapath
//! - `verdict.rs`: the result of a decision
//! - `counters.rs`: the only list of counters
//! - `cpu.rs`, `flow.rs`: basic types
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
