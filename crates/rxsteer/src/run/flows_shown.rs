//! Flows in answers over the control socket.

use serde::{Deserialize, Serialize};

/// A flow's packets on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShareShown {
    pub(crate) cpu: u16,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// One direction of a flow, as it is counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowShown {
    pub(crate) flow: String,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) moves: u32,
    pub(crate) idle_s: f64,
    pub(crate) tcp_flags: u8,
    pub(crate) cpus: Vec<ShareShown>,
}

/// Where a flow is and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowWhere {
    pub(crate) flow: String,
    pub(crate) policy: String,
    pub(crate) cpus: String,
    /// The CPU where its application consumes data.
    pub(crate) wish: Option<u16>,
    /// Sparse slots it holds.
    pub(crate) sparse: Vec<SparseShown>,
    /// Where the rules want it.
    pub(crate) wanted: Place,
    /// What the order guard knows of the slot it shares with others, by interface and RX queue.
    pub(crate) slots: Vec<SlotShown>,
    /// The order guard is asked; else it has nothing to know.
    pub(crate) guarded: bool,
    /// Its statistics, in both directions.
    pub(crate) flows: Vec<FlowShown>,
}

/// A CPU, and the rule that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// none, bound, hash, slot or wish.
    pub(crate) rule: String,
    /// `None`: it depends on the CPU that receives.
    pub(crate) cpu: Option<u16>,
    /// Of a hash: which place of how many in the CPU map.
    pub(crate) place: Option<(usize, usize)>,
}

/// A slot for a sparse flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SparseShown {
    pub(crate) interface: String,
    pub(crate) cpu: u16,
}

/// A slot of a flow table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SlotShown {
    pub(crate) interface: String,
    /// RX queue; in generic mode receiving CPU.
    pub(crate) queue: u32,
    /// Where the last packet went.
    pub(crate) cpu: u16,
    pub(crate) received_on: u16,
    /// It is delivered, so that the next one may go elsewhere.
    pub(crate) delivered: bool,
    /// How often in a row packets may still follow it against their hash.
    pub(crate) patience: u32,
}
