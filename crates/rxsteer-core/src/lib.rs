//! Which CPU: the steering policy of rxsteer.
//!
//! Policy is a function: there is no clock, no I/O and no thread here; time, CPUs and backlogs are
//! arguments. [`Steering::decide`] is the one entry.
//!
//! ```
//! use rxsteer_core::{Arrival, Backlogs, CpuId, FlowHash, Policy, Refusal, SteerConfig, Steering, Verdict};
//!
//! /// Backlogs that always have room.
//! struct Endless;
//! impl Backlogs for Endless {
//!     fn reserve(&mut self, _cpu: CpuId) -> Result<u32, Refusal> { Ok(0) }
//! }
//!
//! let mut steering = Steering::new(&SteerConfig {
//!     policy: Policy::Rps,
//!     cpus: "0-3".parse()?,
//!     rps_maps: vec![],
//!     receiving_cpus: vec![CpuId::new(0).unwrap()],
//! })?;
//! let packet = Arrival { hash: FlowHash::from_raw(0xc000_0000), ..Arrival::default() };
//! let mut verdict = [Verdict::default()];
//! steering.decide(&[packet], &mut Endless, &mut verdict);
//! assert_eq!(verdict[0], Verdict::deliver(CpuId::new(3).unwrap()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bound;
pub mod config;
pub mod counters;
pub mod cpu;
pub mod flow;
pub mod rps;
pub mod steer;
pub mod verdict;

pub use config::{ConfigError, MAX_RX_QUEUES, Policy, PolicyError, SteerConfig};
pub use cpu::{CpuId, CpuSet, CpuSetError};
pub use flow::{FlowHash, FlowKey};
pub use steer::{Arrival, Backlogs, Refusal, Steering};
pub use verdict::{DropReason, Drops, Verdict};
