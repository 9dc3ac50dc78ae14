//! Live flows: the largest ones, and where a flow is and why.

use super::datapath::DatapathView;
use super::snapshot::Shown;
use crate::explain::flow::shown;
use crate::explain::show::{desired_state, matched_rule, reason_json, rule_policy, why};
use rxsteer_status::{
    DecisionShown, FlowSettingsShown, FlowShown, FlowWhere, LastShown, ShareShown,
};
use rxsteer_user::core::explain::Reason;
use rxsteer_user::core::{CpuId, FlowKey};
use rxsteer_xdp::{DeviceId, LiveDecision, LiveFlow};
use std::time::{Duration, SystemTime};

/// The `count` flows with the most packets, the largest first.
pub(crate) fn largest(mut flows: Vec<LiveFlow>, count: usize) -> Vec<FlowShown> {
    let packets = |flow: &LiveFlow| std::cmp::Reverse(flow.total().packets);
    if count < flows.len() {
        flows.select_nth_unstable_by_key(count, packets);
        flows.truncate(count);
    }
    flows.sort_by_key(|flow| (packets(flow), flow.key));
    flows.iter().map(flow_shown).collect()
}

pub(crate) fn flow_shown(flow: &LiveFlow) -> FlowShown {
    let total = flow.total();
    let share = |(cpu, share): &(rxsteer_user::core::CpuId, rxsteer_xdp::CpuShare)| ShareShown {
        cpu: cpu.get(),
        packets: share.packets,
        bytes: share.bytes,
    };
    let mut cpus: Vec<ShareShown> = flow.cpus.iter().map(share).collect();
    cpus.sort_by_key(|share| share.cpu);
    FlowShown {
        flow: shown(&flow.key),
        packets: total.packets,
        bytes: total.bytes,
        moves: flow.moves,
        idle_s: flow.idle_s,
        last_cpu: Some(flow.last_cpu.get()),
        tcp_flags: flow.tcp_flags,
        cpus,
        other_cpus: flow.other_cpus.packets,
        ended: None,
    }
}

/// A flow that ended, with its number.
pub(crate) fn ended_shown((number, flow): &(u64, LiveFlow)) -> FlowShown {
    FlowShown { ended: Some(*number), ..flow_shown(flow) }
}

/// Where the packets of a flow currently go, and why.
pub(crate) fn explained<D: Copy + PartialEq>(
    instance: &Shown<D>,
    view: &impl DatapathView<D>,
    key: &FlowKey,
) -> FlowWhere {
    let at = view.explain(key);
    let name = |device: DeviceId| {
        let device = view.device(device);
        let known = instance.interfaces.iter().find(|known| known.device == Some(device));
        known.map_or_else(String::new, |known| known.name.clone())
    };
    FlowWhere {
        flow: shown(key),
        policy: instance.settings.policy.to_string(),
        settings: FlowSettingsShown { cpus: instance.settings.cpus.to_string() },
        changing: instance.changing,
        decisions: at.decisions.iter().map(|one| decision(one, name(one.device))).collect(),
        flows: at.flows.iter().map(flow_shown).collect(),
    }
}

/// The last move of its bucket by load.
fn moved(at: &LiveDecision) -> String {
    let Some((when, one)) = &at.moved else { return String::new() };
    let ago = SystemTime::now().duration_since(*when).unwrap_or_default();
    let ago = humantime::format_duration(Duration::from_secs(ago.as_secs()));
    format!("; load moved it from CPU {} to CPU {} {ago} ago: {one}", one.from, one.to)
}

fn decision(at: &LiveDecision, interface: String) -> DecisionShown {
    let explanation = &at.explanation;
    // If the receiving CPU is unknown, it may be any CPU.
    let is_receiving = match &explanation.reason {
        Reason::PolicyNone
        | Reason::NoHash
        | Reason::NoSuchQueue
        | Reason::NotBound
        | Reason::Stays { .. } => true,
        Reason::Hash { offline, .. } => *offline,
        Reason::Matched { .. }
        | Reason::Bound
        | Reason::Bucket { .. }
        | Reason::Slot { .. }
        | Reason::Rfs => false,
    };
    let known = |cpu: CpuId| (!is_receiving || at.received_on.is_some()).then(|| cpu.get());
    let last = explanation.flow.and_then(|flow| Some((flow, flow.last?)));
    DecisionShown {
        interface,
        queue: at.queue,
        seen: at.is_seen,
        received_on: at.received_on.map(CpuId::get),
        reason: reason_json(&explanation.reason),
        why: why(explanation) + &moved(at),
        matched_rule: matched_rule(explanation),
        rule_policy: rule_policy(explanation).map(str::to_owned),
        desired: explanation.desired.map(|desired| desired_state(desired.state)),
        target: known(explanation.target),
        cpu: if explanation.cpu == explanation.target {
            known(explanation.cpu)
        } else {
            Some(explanation.cpu.get())
        },
        guarded: at.is_guarded,
        last: last.map(|(flow, (cpu, ..))| LastShown {
            cpu: cpu.get(),
            delivered: flow.completed,
            hysteresis: flow.hysteresis,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Explained;
    use crate::explain::show::json;
    use rxsteer_user::core::{Arrival, FlowHash, Idle, Plan, SteerConfig, Steering};
    use std::sync::Arc;

    /// `explain --live --json` and `explain --json` use the same names for a rule and its policy.
    #[test]
    fn rule_is_named_as_in_explain() {
        let cpus = "1-3".parse().unwrap();
        let receiving = vec![CpuId::new(0).unwrap()];
        let mut config = SteerConfig::new("none".parse().unwrap(), cpus, receiving);
        for (rule, matched, policy) in [
            ("tcp -> policy rfs+sparse", "tcp → policy rfs+sparse", Some("rfs+sparse")),
            ("tcp -> 2", "tcp → 2", None),
        ] {
            config.packet_rules = vec![rule.parse().unwrap()];
            let plan = Arc::new(Plan::new(&config, 1).unwrap());
            let hash = FlowHash::from_raw(7);
            let packet = Arrival { hash, rule: 1, ..Arrival::default() };
            let explanation = Steering::of_plan(plan, 0..1).explain(&packet, &mut Idle::default());
            let at = LiveDecision {
                device: DeviceId(0),
                queue: 0,
                is_seen: true,
                received_on: None,
                explanation: explanation.clone(),
                moved: None,
                is_guarded: true,
            };
            let live = serde_json::to_value(decision(&at, "eth0".to_owned())).unwrap();
            let explained = json(&Explained {
                of: None,
                no_flow: None,
                flow: FlowKey::default(),
                tunnel: None,
                hash_name: "symmetric",
                hash_seed: None,
                seed_is_given: false,
                policy: "none".to_owned(),
                cpus: config.cpus.clone(),
                settings: serde_json::Map::new(),
                receiving_cpu: CpuId::new(0).unwrap(),
                decision: explanation,
                before: 0,
            });
            for shown in [live, explained] {
                assert_eq!(shown["matched_rule"], matched, "{shown:#}");
                assert_eq!(shown["rule_policy"], serde_json::json!(policy), "{shown:#}");
            }
        }
    }
}
