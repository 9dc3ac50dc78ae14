//! Flows in the answers of the control socket.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The packets of a flow on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareShown {
    /// The CPU.
    pub cpu: u16,
    /// Packets that were sent to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The counts of one direction of a flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowShown {
    /// The flow, in the syntax of `rxsteer explain`.
    pub flow: String,
    /// Its packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often it moved to another CPU. In the userspace path this is 0: it is not counted for each flow.
    pub moves: u32,
    /// Seconds since its last packet.
    pub idle_s: f64,
    /// The CPU that its last packet was sent to, if it is known.
    #[serde(default)]
    pub last_cpu: Option<u16>,
    /// All TCP flags that were seen.
    pub tcp_flags: u8,
    /// Its packets by CPU.
    pub cpus: Vec<ShareShown>,
    /// Packets on further CPUs, which have no separate counts.
    #[serde(default)]
    pub other_cpus: u64,
    /// For a flow that ended, its number among those that ended, from 1. A viewer uses it to recognize flows that it
    /// already has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
}

/// Totals of the packets that were counted for flows. Once traffic has stopped, `packets` + `ended` + `cleared` +
/// `refused` is the number of all these packets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowStatisticsShown {
    /// Flows with counts.
    pub flows: u64,
    /// The packets of these flows.
    pub packets: u64,
    /// Packets of flows that ended.
    pub ended: u64,
    /// Packets that `status --reset` cleared.
    pub cleared: u64,
    /// Packets of flows for which there was no room.
    pub refused: u64,
    /// Flows whose final counts were lost because there was no room. They are in no list of ended flows.
    pub records_lost: u64,
}

/// The counts of flow records (`--flows`, `--ipfix`). Once traffic has stopped and all flows have ended, `packets` +
/// `packets_lost` is the number of packets counted for flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRecordsShown {
    /// Records that were made.
    pub records: u64,
    /// The packets in them.
    pub packets: u64,
    /// Flows whose final counts were lost before they became a record: too many ended at once.
    pub records_lost: u64,
    /// The packets of these counts.
    pub packets_lost: u64,
    /// The files, if records are written.
    pub files: Option<RecordFilesShown>,
    /// The collector, if records are sent.
    pub ipfix: Option<IpfixShown>,
}

/// Files of flow records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFilesShown {
    /// Complete files; of a data set, complete sets of files.
    pub complete: u64,
    /// Records in complete files, and in those that are being written.
    pub records: u64,
    /// The packets in these records.
    pub packets: u64,
    /// Records that could not be written.
    pub records_lost: u64,
    /// The packets in these records.
    pub packets_lost: u64,
    /// The last error.
    pub problem: Option<String>,
}

/// Flow records that were sent to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpfixShown {
    /// Its address and port.
    pub collector: String,
    /// Records in messages that were passed to the network.
    pub records: u64,
    /// These messages.
    pub messages: u64,
    /// Records in messages that the network refused.
    pub records_lost: u64,
}

/// Where a flow is, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowWhere {
    /// The requested flow.
    pub flow: String,
    /// The policy.
    pub policy: String,
    /// The other settings that affect the decision.
    pub settings: FlowSettingsShown,
    /// Whether a change is under way, so that old decisions may still apply.
    pub changing: bool,
    /// One decision for each interface and RX queue on which the flow arrives, the latest first; otherwise for those on
    /// which it may arrive.
    pub decisions: Vec<DecisionShown>,
    /// The flow's statistics in both directions.
    pub flows: Vec<FlowShown>,
}

/// The settings that an explanation names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowSettingsShown {
    /// The CPUs that packets are steered to.
    pub cpus: String,
}

/// Where the flow's next packet goes if it arrives on one RX queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecisionShown {
    /// The interface.
    pub interface: String,
    /// The RX queue; in generic mode the receiving CPU.
    pub queue: u32,
    /// Whether the flow's packets are counted there.
    pub seen: bool,
    /// The CPU that received the last packet, if it is known.
    pub received_on: Option<u16>,
    /// The rule, in the form of `rxsteer explain --json`.
    pub reason: Value,
    /// The rule in words.
    pub why: String,
    /// The rule before the policy that matches, as it is written.
    #[serde(default)]
    pub matched_rule: Option<String>,
    /// This rule's own policy, if it has one.
    #[serde(default)]
    pub rule_policy: Option<String>,
    /// Under `rfs`, the desired CPU of the flow.
    pub desired: Option<String>,
    /// The CPU that the rule chooses; `None`: the receiving CPU.
    pub target: Option<u16>,
    /// The CPU that the packet goes to. It differs from `target` while the order guard defers the flow.
    pub cpu: Option<u16>,
    /// Whether the order guard applies.
    pub guarded: bool,
    /// The last packet in the guard's slot, which the flow shares with others.
    pub last: Option<LastShown>,
}

/// The last packet of a slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastShown {
    /// The CPU that it went to.
    pub cpu: u16,
    /// Whether it is delivered, so that the next packet may go elsewhere.
    pub delivered: bool,
    /// How many more packets in a row may follow the slot if only their hash places them.
    pub hysteresis: u32,
}
