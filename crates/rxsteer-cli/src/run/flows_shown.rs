//! Flows in the answers of the control socket.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The packets of a flow on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShareShown {
    pub(crate) cpu: u16,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// The counts of one direction of a flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowShown {
    pub(crate) flow: String,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) moves: u32,
    pub(crate) idle_s: f64,
    pub(crate) tcp_flags: u8,
    pub(crate) cpus: Vec<ShareShown>,
    /// Packets on further CPUs, which are not counted separately.
    #[serde(default)]
    pub(crate) other_cpus: u64,
}

/// Totals of the packets that were counted for flows. Once traffic has stopped, `packets` + `ended` + `cleared` +
/// `refused` is the number of all these packets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowStatisticsShown {
    /// Flows with counts.
    pub(crate) flows: u64,
    /// The packets of these flows.
    pub(crate) packets: u64,
    /// Packets of flows that ended.
    pub(crate) ended: u64,
    /// Packets that `status --reset` cleared.
    pub(crate) cleared: u64,
    /// Packets of flows for which there was no room.
    pub(crate) refused: u64,
    /// Ended flows that are missing in the list of ended flows, because there was no room.
    pub(crate) records_lost: u64,
}

/// Where a flow is, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowWhere {
    pub(crate) flow: String,
    pub(crate) policy: String,
    pub(crate) cpus: String,
    /// Whether a change is under way, so that old decisions may still apply.
    pub(crate) changing: bool,
    /// One decision for each interface and RX queue on which the flow arrives, the latest first; otherwise for those on
    /// which it may arrive.
    pub(crate) decisions: Vec<DecisionShown>,
    /// The flow's statistics in both directions.
    pub(crate) flows: Vec<FlowShown>,
}

/// Where the flow's next packet goes if it arrives on one RX queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DecisionShown {
    pub(crate) interface: String,
    /// The RX queue; in generic mode the receiving CPU.
    pub(crate) queue: u32,
    /// Whether the flow's packets are counted there.
    pub(crate) seen: bool,
    /// The CPU that received the last packet, if it is known.
    pub(crate) received_on: Option<u16>,
    /// The rule, in the form of `rxsteer explain --json`.
    pub(crate) reason: Value,
    /// The rule in words.
    pub(crate) why: String,
    /// Under `rfs`, the desired CPU of the flow.
    pub(crate) desired: Option<String>,
    /// The CPU that the rule chooses; `None`: the receiving CPU.
    pub(crate) target: Option<u16>,
    /// The CPU that the packet goes to. It differs from `target` while the order guard defers the flow.
    pub(crate) cpu: Option<u16>,
    /// Whether the order guard applies.
    pub(crate) guarded: bool,
    /// The last packet in the guard's slot, which the flow shares with others.
    pub(crate) last: Option<LastShown>,
}

/// The last packet of a slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LastShown {
    /// The CPU that it went to.
    pub(crate) cpu: u16,
    /// Whether it is delivered, so that the next packet may go elsewhere.
    pub(crate) delivered: bool,
    /// How many more packets in a row may follow the slot if only their hash places them.
    pub(crate) hysteresis: u32,
}
