//! The active settings, as an instance shows them.

use rxsteer_core::{Fallback, PacketRule};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A rule before the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleShown {
    /// Its text.
    pub rule: String,
    /// Packets that it has matched since it was set; for a simulation, in the whole run.
    pub packets: u64,
}

/// A rule and the packets that it matched, as plans count them.
impl From<(PacketRule, u64)> for RuleShown {
    fn from((rule, packets): (PacketRule, u64)) -> RuleShown {
        RuleShown { rule: rule.to_string(), packets }
    }
}

/// The active settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsShown {
    /// The policy.
    pub policy: String,
    /// How packets are received: native or generic XDP; packet or AF_XDP sockets (`packet`, `xdp`); from a `capture`,
    /// or `synthetic`.
    pub mode: String,
    /// The CPUs that packets are steered to.
    pub cpus: String,
    /// The rules before the policy, and the packets that each matched since it was set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleShown>,
    /// CPU maps of single interfaces and RX queues: "eth0:0=0-3".
    pub rps_maps: Vec<String>,
    /// How to place a flow that no other rule places: hash or local.
    #[serde(rename = "else")]
    pub fallback: String,
    /// CPUs to which rfs sends a flow whose application runs there; `None`: every online CPU.
    pub rfs_cpus: Option<String>,
    /// The offline CPUs of all CPUs.
    pub offline: Option<String>,
    /// Packets that may wait for one CPU.
    pub queue_size: u32,
    /// Buckets of the flow limit, if it is on.
    pub flow_limit: Option<u32>,
    /// Scheduling class of the rings' threads.
    pub threads: String,
    /// Whether it only decides and counts (shadow mode).
    pub shadow: bool,
    /// Slots of each flow table.
    pub flow_cnt: u32,
    /// Slots of the table of desired CPUs.
    pub sock_flow_entries: u32,
    /// The network namespaces whose sockets set desired CPUs: `own` or `all`; `None`: sockets do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rfs_namespaces: Option<String>,
    /// Whether flows inside tunnels are steered.
    pub inner: bool,
    /// The tunnels that are steered by tunnel number: `none`, `all`, or names separated by commas.
    #[serde(default = "none")]
    pub key_tunnels: String,
    /// Whether flows are counted.
    pub flow_stats: bool,
    /// Whether the order guard is in use.
    pub order_guard: bool,
}

/// The value for an instance of a former version, which does not report tunnels.
fn none() -> String {
    "none".to_owned()
}

/// All settings in one line.
impl fmt::Display for SettingsShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "policy {}, CPUs {}, {} mode, queue size {}, threads {}",
            self.policy, self.cpus, self.mode, self.queue_size, self.threads
        )?;
        for RuleShown { rule, packets } in &self.rules {
            write!(f, ", rule {rule} ({packets} packets)")?;
        }
        for map in &self.rps_maps {
            write!(f, ", map {map}")?;
        }
        if self.fallback != Fallback::default().to_string() {
            write!(f, ", else {}", self.fallback)?;
        }
        if let Some(cpus) = &self.rfs_cpus {
            write!(f, ", rfs to CPUs {cpus}")?;
        }
        if let Some(offline) = &self.offline {
            write!(f, ", CPU {offline} offline")?;
        }
        if let Some(buckets) = self.flow_limit {
            write!(f, ", flow limit {buckets}")?;
        }
        if self.key_tunnels != none() {
            write!(f, ", tunnels {} by their number", self.key_tunnels)?;
        }
        for (holds, word) in [(self.shadow, "shadow"), (!self.order_guard, "WITHOUT ORDER GUARD")] {
            if holds {
                write!(f, ", {word}")?;
            }
        }
        Ok(())
    }
}
