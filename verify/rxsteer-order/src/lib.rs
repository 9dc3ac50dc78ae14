//! A deterministic scheduler that tries to reorder the packets of a flow.
//!
//! The decisions are those of [`rxsteer_core::Steering`], unchanged. Everything else is generated from one seed, in one
//! thread and without a clock: traffic, producers, backlogs, workers that are slow or die, applications that move, and
//! changes of plan. So a run that finds something can be repeated.
//!
//! ```text
//!  applications ──► sock flow table      changes ──► plan, which each producer adopts at some time
//!                          │                          │
//!  traffic ──► producer ──►└──────── decide ◄─────────┘
//!              (RX thread)             │
//!                                      ▼    completed    dequeued      tail
//!              backlog (producer, CPU) ───────┴─ in hand ───┴─ waiting ──┴─    numbers that wrap
//!                                             └────────► worker: takes a list, completes it later
//! ```
//!
//! Checks:
//! - order: the accepted packets of an (RX queue, hash) begin one after the other, and none begins while an earlier one
//!   is in hand elsewhere;
//! - conservation: every received packet is accepted, or dropped with a reason; every accepted packet is completed, or
//!   lost with its worker and counted;
//! - rest: once everything is completed, no transition is under way, and each flow goes to the plan's target.
//!
//! Between any two queries of `decide`, workers and applications may continue, as they would beside a real receiver.
//! [`Guard`] disables the order guard completely or partly, since a check that cannot fail would prove nothing.
#![forbid(unsafe_code)]

mod backlog;
mod change;
mod flows;
mod rng;
mod run;
mod search;
mod summary;
mod violation;
mod world;

pub use run::run;
pub use search::{Progress, search};
pub use summary::Summary;
pub use violation::{Fault, FlowName, Violation};

/// The parameters of a run, besides its seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Packets received in a run, by all producers together.
    pub packets: u64,
    /// How queries for completed packets are answered.
    pub guard: Guard,
    /// How many of the last events are kept for a violation: events of the flow concerned, and those that concern all
    /// flows. They come from a second run.
    pub trace: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { packets: 10_000, guard: Guard::On, trace: 0 }
    }
}

/// How [`rxsteer_core::Backlogs::has_completed`] answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// Correctly.
    #[default]
    On,
    /// Always yes: the policy without its order guard.
    Off,
    /// Yes as soon as a packet is *taken off* the queue. This is the kernel's answer, with which a flow can move while
    /// its last list is being processed.
    HeadAtDequeue,
}

impl Guard {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Guard::On => "on",
            Guard::Off => "off",
            Guard::HeadAtDequeue => "head-at-dequeue",
        }
    }
}
