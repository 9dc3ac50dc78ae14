//! A deterministic scheduler that tries to bring the packets of a flow out of order.
//!
//! The decisions are [`rxsteer_core::Steering`]'s, unchanged. Everything around it is made up from
//! one seed, in one thread and without a clock: traffic, producers, backlogs, workers that dawdle
//! and die, applications that move, and changes of plan. So a run that finds something finds it
//! again.
//!
//! ```text
//!  applications ──► sock flow table      changes ──► plan, adopted by each producer when it likes
//!                          │                          │
//!  traffic ──► producer ──►└──────── decide ◄─────────┘
//!              (RX thread)             │
//!                                      ▼    completed    dequeued      tail
//!              backlog (producer, CPU) ───────┴─ in hand ───┴─ waiting ──┴─    numbers that wrap
//!                                             └────────► worker: takes a list, completes it later
//! ```
//!
//! What is checked:
//! - order: the accepted packets of an (RX queue, hash) begin one after the other, and none begins
//!   while an earlier one is in hand elsewhere;
//! - conservation: what was received was accepted or dropped, for a reason; what was accepted was
//!   completed, or lost with its worker and counted;
//! - rest: with everything completed no transition goes on, and each flow goes to the target of the
//!   plan.
//!
//! Between any two questions that `decide` asks, workers and applications may go on, as they would
//! beside a real receiver. [`Guard`] takes the order guard out, or half out: a check that could not
//! fail would prove nothing.
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

/// What a run is made of, beside its seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Packets received in a run, by all producers together.
    pub packets: u64,
    /// How the question is answered whether packets are completed.
    pub guard: Guard,
    /// How many of the last events of the flow concerned, and of everything that concerns all
    /// flows, are kept for a violation. They come from a second run.
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
    /// Truly.
    #[default]
    On,
    /// Always yes: the policy without its order guard.
    Off,
    /// Yes as soon as a packet was *taken off* the queue: the kernel's answer, which lets a flow
    /// move while its last list is in work.
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
