//! Flows in answers over the control socket.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Packets on further CPUs, which are not counted apart.
    #[serde(default)]
    pub(crate) other_cpus: u64,
}

/// Where the packets are that were counted for flows. Once traffic has stopped, `packets`, `ended`, `cleared` and
/// `refused` are all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowStatisticsShown {
    /// Flows with counts.
    pub(crate) flows: u64,
    /// Their packets.
    pub(crate) packets: u64,
    /// Packets of flows that ended.
    pub(crate) ended: u64,
    /// Packets that `status --reset` cleared.
    pub(crate) cleared: u64,
    /// Packets of flows for which there was no room.
    pub(crate) refused: u64,
    /// Flows that ended and are in no list of ended flows, for lack of room.
    pub(crate) records_lost: u64,
}

/// Where a flow is and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowWhere {
    pub(crate) flow: String,
    pub(crate) policy: String,
    pub(crate) cpus: String,
    /// A change is under way: old decisions may still hold.
    pub(crate) changing: bool,
    /// By interface and RX queue that it arrives on, the latest first; else those it may arrive on.
    pub(crate) decisions: Vec<DecisionShown>,
    /// Its statistics, in both directions.
    pub(crate) flows: Vec<FlowShown>,
}

/// Where the flow's next packet goes that arrives on one RX queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DecisionShown {
    pub(crate) interface: String,
    /// RX queue; in generic mode receiving CPU.
    pub(crate) queue: u32,
    /// Its packets are counted there.
    pub(crate) seen: bool,
    /// The CPU that received the last packet, where that is known.
    pub(crate) received_on: Option<u16>,
    /// The rule, as `rxsteer explain --json` has it.
    pub(crate) reason: Value,
    /// The same in words.
    pub(crate) why: String,
    /// What is known of its application, under `rfs`.
    pub(crate) desired: Option<String>,
    /// The CPU that the rule says; `None`: whichever receives.
    pub(crate) target: Option<u16>,
    /// The CPU that the packet goes to; another one while the order guard holds it.
    pub(crate) cpu: Option<u16>,
    /// The order guard is asked.
    pub(crate) guarded: bool,
    /// What the guard's slot, which the flow shares with others, says of the last packet.
    pub(crate) last: Option<LastShown>,
}

/// The last packet of a slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LastShown {
    /// Where it went.
    pub(crate) cpu: u16,
    /// It is delivered, so that the next one may go elsewhere.
    pub(crate) delivered: bool,
    /// How many packets in a row may still follow the slot though only their hash places them.
    pub(crate) hysteresis: u32,
}
