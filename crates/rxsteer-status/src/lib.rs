#![doc = include_str!("../README.md")]
//!
//! # Files
//!
//! - `status.rs`, `settings.rs`, `flow.rs`, `event.rs`, `delay.rs`: the state and its parts
//! - `rates.rs`: rates from two readings
//! - `userspace.rs`: the state of a userspace path
//! - `protocol.rs`, `control.rs`, `client.rs`, `registry.rs`: the control socket
//! - `figures.rs`: numbers as text
//! - `testing/`: invented instances
#![forbid(unsafe_code)]

pub mod client;
pub mod control;
mod delay;
mod event;
pub mod figures;
mod flow;
pub mod protocol;
mod rates;
pub mod registry;
mod settings;
mod status;
#[doc(hidden)]
pub mod testing;
pub mod userspace;

pub use delay::Delay;
pub use event::{Audience, Event, EventKind, EventLog, KEPT as EVENTS_KEPT, NewEvent};
pub use flow::{
    DecisionShown, FlowRecordsShown, FlowSettingsShown, FlowShown, FlowStatisticsShown, FlowWhere,
    IpfixShown, LastShown, RecordFilesShown, ShareShown,
};
pub use rates::{CpuRates, InterfaceRates, Rates, RxRates};
pub use settings::{RuleShown, SettingsShown};
pub use status::{
    BalanceShown, BucketsShown, Command, Counts, CpuStatus, Drops, InterfaceStatus, MoveShown,
    RxShown, State, Status, ThreadShown,
};
