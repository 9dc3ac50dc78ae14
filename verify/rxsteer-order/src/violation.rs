//! The violations that a run can find.

use crate::{Guard, Options};
use rxsteer_core::CpuId;
use std::fmt;

/// A flow in the sense of the order rule: packets with one hash from one RX queue.
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

/// The violation. Packets of a flow are numbered from 0 in the order in which they were accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A packet begins before an earlier one of its flow.
    #[error("reordered ({flow}): packet {number} begins on CPU {cpu} before packet {earlier} does")]
    Overtakes {
        /// The packet's flow.
        flow: FlowName,
        /// The packet's number.
        number: u32,
        /// The CPU where it begins.
        cpu: CpuId,
        /// The first packet that has not begun.
        earlier: u32,
    },
    /// A packet begins while an earlier one of its flow is in hand elsewhere.
    #[error(
        "reordered ({flow}): packet {number} begins on CPU {cpu} while packet {earlier} is in \
         hand on CPU {other}"
    )]
    Beside {
        /// The packet's flow.
        flow: FlowName,
        /// The packet's number.
        number: u32,
        /// The CPU where it begins.
        cpu: CpuId,
        /// The first packet that is in hand.
        earlier: u32,
        /// The CPU that has that packet in hand.
        other: CpuId,
    },
    /// A packet ends before an earlier one of its flow, or before it began.
    #[error("reordered ({flow}): packet {number} ends before packet {earlier} does")]
    EndsEarly {
        /// The packet's flow.
        flow: FlowName,
        /// The packet's number.
        number: u32,
        /// The first packet that has not ended.
        earlier: u32,
    },
    /// A packet was sent to a CPU to which packets cannot be sent.
    #[error("a packet was sent to CPU {0}, which is none of the possible ones")]
    NotPossible(CpuId),
    /// Packets were lost or added.
    #[error("the counts don't add up: {0}")]
    Unbalanced(String),
    /// A transition is under way although no packet is.
    #[error("producer {0} is not drained though nothing is under way")]
    Undrained(u16),
    /// A flow does not go to the plan's target although none of its packets is under way.
    #[error("nothing of the flow ({flow}) is under way, and it goes to CPU {cpu}, not {target}")]
    Misplaced {
        /// The flow.
        flow: FlowName,
        /// The CPU that it goes to.
        cpu: CpuId,
        /// The plan's target.
        target: CpuId,
    },
    /// The code under test panicked.
    #[error("panicked: {0}")]
    Panicked(String),
}

impl Fault {
    /// The flow concerned, if the fault concerns one.
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

/// A failed run, with everything needed to repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The number of packets to receive in the run.
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
