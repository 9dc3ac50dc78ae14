//! What a run can find.

use crate::{Guard, Options};
use rxsteer_core::CpuId;
use std::fmt;

/// A flow as the order rule knows it: what came in through one RX queue with one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// The RX queue.
    pub rx_queue: u16,
    /// The flow hash; 0 is "no hash".
    pub hash: u32,
}

impl fmt::Display for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RX queue {}, hash {:#010x}", self.rx_queue, self.hash)
    }
}

/// What went wrong. Packets of a flow are numbered from 0 as they were accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A packet begins before an earlier one of its flow.
    #[error("reordered ({flow}): packet {number} begins on CPU {cpu} before packet {earlier} does")]
    Overtakes {
        /// Whose packet.
        flow: FlowName,
        /// Which.
        number: u32,
        /// Where it begins.
        cpu: CpuId,
        /// The first one that has not begun.
        earlier: u32,
    },
    /// A packet begins while an earlier one of its flow is in hand elsewhere.
    #[error(
        "reordered ({flow}): packet {number} begins on CPU {cpu} while packet {earlier} is in \
         hand on CPU {other}"
    )]
    Beside {
        /// Whose packet.
        flow: FlowName,
        /// Which.
        number: u32,
        /// Where it begins.
        cpu: CpuId,
        /// The first one that is in hand.
        earlier: u32,
        /// Whose hand.
        other: CpuId,
    },
    /// A packet ends before an earlier one of its flow, or before it began.
    #[error("reordered ({flow}): packet {number} ends before packet {earlier} does")]
    EndsEarly {
        /// Whose packet.
        flow: FlowName,
        /// Which.
        number: u32,
        /// The first one that has not ended.
        earlier: u32,
    },
    /// A packet was sent to a CPU that packets can't be sent to.
    #[error("a packet was sent to CPU {0}, which is none of the possible ones")]
    NotPossible(CpuId),
    /// Packets got lost, or were made.
    #[error("the counts don't add up: {0}")]
    Unbalanced(String),
    /// Nothing is under way, and a transition goes on.
    #[error("producer {0} is not drained though nothing is under way")]
    Undrained(u16),
    /// Nothing is under way, and a flow does not go to the target of the plan.
    #[error("nothing of the flow ({flow}) is under way, and it goes to CPU {cpu}, not {target}")]
    Misplaced {
        /// The flow.
        flow: FlowName,
        /// Where it goes.
        cpu: CpuId,
        /// The target of the plan.
        target: CpuId,
    },
    /// The code under test panicked.
    #[error("panicked: {0}")]
    Panicked(String),
}

impl Fault {
    /// The flow concerned, if it is one.
    pub(crate) fn flow(&self) -> Option<FlowName> {
        match self {
            Fault::Overtakes { flow, .. }
            | Fault::Beside { flow, .. }
            | Fault::EndsEarly { flow, .. }
            | Fault::Misplaced { flow, .. } => Some(*flow),
            _ => None,
        }
    }
}

/// A run that went wrong, and how to have it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The packets it was to receive.
    pub packets: u64,
    /// The guard it ran with.
    pub guard: Guard,
    /// What happened.
    pub fault: Fault,
    /// The last events of the flow, and those that concern all flows, oldest first.
    pub trace: Vec<String>,
}

impl Violation {
    pub(crate) fn new(seed: u64, options: &Options, fault: Fault) -> Violation {
        let Options { packets, guard, .. } = *options;
        Violation { seed, packets, guard, fault, trace: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { seed, packets, guard, fault, trace } = self;
        write!(f, "seed {seed}: {fault}")?;
        for line in trace {
            write!(f, "\n  {line}")?;
        }
        write!(f, "\nrepeat it by: cargo xtask order --seed {seed} --packets {packets}")?;
        if *guard == Guard::On { Ok(()) } else { write!(f, " --guard {}", guard.name()) }
    }
}

impl std::error::Error for Violation {}
