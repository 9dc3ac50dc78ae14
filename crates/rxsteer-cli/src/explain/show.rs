//! An explanation as text and as JSON.

use super::Explained;
use super::flow::shown;
use crate::output::lines::field;
use rxsteer_user::core::explain::{DesiredState, Explanation, NoSlot, Reason};
use serde_json::{Value, json};

/// A few lines of text.
pub(crate) fn text(explained: &Explained) -> String {
    let mut text = String::new();
    let decision = &explained.decision;
    let mut line = |name: &str, value: String| field(&mut text, name, 13, &value);
    match &explained.of {
        Some((capture, frame)) => {
            line("frame", format!("{frame} of {capture}, after {} others", explained.before));
        }
        None => line(
            "frame",
            "the flow's first; all tables and slots are empty (--live asks a running rxsteer run)"
                .to_owned(),
        ),
    }
    match &explained.no_flow {
        None => line("flow", shown(&explained.flow)),
        Some(why) => line("flow", format!("none: {why}")),
    }
    if let Some(number) = explained.tunnel {
        line("tunnel", format!("number {number:#x}, hashed instead of ports (--key-tunnels)"));
    }
    line("hash", hash(explained));
    line(
        "RX queue",
        format!(
            "{} of device {}, received by CPU {}",
            decision.rx_queue, decision.device, explained.receiving_cpu
        ),
    );
    line("policy", format!("{}, CPUs {}", explained.policy, explained.cpus));
    if let Some(desired) = decision.desired {
        let state = desired_state(desired.state);
        line(
            "desired",
            format!("sock flow entry {} of {}: {state}", desired.index, desired.entries),
        );
    }
    if let Some(rule) = matched_rule(decision) {
        line("rule", rule);
    }
    line("target", format!("CPU {}: {}", decision.target, why(decision)));
    if let Some(flow) = decision.flow {
        let state = match flow.last {
            None => "unset".to_owned(),
            Some((cpu, ..)) if flow.completed => {
                format!("its last packet went to CPU {cpu} and is processed")
            }
            Some((cpu, ..)) => format!("its last packet went to CPU {cpu} and is under way"),
        };
        // Each queue's table has one more slot, for packets without a flow.
        let index = flow.index % (flow.entries + 1);
        line("flow table", format!("slot {index} of {}: {state}", flow.entries));
    }
    line("goes to", format!("CPU {}", decision.cpu));
    text.push_str("\nIt would move\n");
    for what in moves(explained) {
        field(&mut text, "  -", 4, &what);
    }
    text
}

/// The state of a flow in the sock flow table.
pub(crate) fn desired_state(state: DesiredState) -> String {
    match state {
        DesiredState::Unset => "no desired CPU recorded".to_owned(),
        DesiredState::OfAnotherFlow => "holds the desired CPU of another flow".to_owned(),
        DesiredState::Cpu(cpu) => format!("its application runs on CPU {cpu}"),
        DesiredState::Unusable(cpu) => {
            format!("its application runs on CPU {cpu}, which is offline or not one of --rfs-cpus")
        }
    }
}

fn hash(explained: &Explained) -> String {
    let hash = explained.decision.hash;
    if hash.is_none() {
        return "none".to_owned();
    }
    match explained.hash_seed {
        Some(seed) if explained.seed_is_given => {
            format!("{:#010x}, {} under --hash-seed {seed:x}", hash.get(), explained.hash_name)
        }
        Some(seed) => format!(
            "{:#010x}, {} under a random secret; the same again: --hash-seed {seed:x}",
            hash.get(),
            explained.hash_name
        ),
        None => format!("{:#010x}, {}", hash.get(), explained.hash_name),
    }
}

/// Why the target is that CPU.
pub(crate) fn why(decision: &Explanation) -> String {
    let reason = reason(&decision.reason);
    match decision.own_policy() {
        Some((rule, policy)) => {
            format!(
                "rule {} matches it, before the policy, and has policy {policy}: {reason}",
                rule + 1
            )
        }
        None => reason,
    }
}

fn reason(reason: &Reason) -> String {
    match reason {
        Reason::Matched { rule } => format!("rule {} matches it, before the policy", rule + 1),
        Reason::PolicyNone => "the policy leaves every packet where it is received".to_owned(),
        Reason::NoHash => "a frame without a flow stays where it is received".to_owned(),
        Reason::NoSuchQueue => {
            "this RX queue is not configured, so the packet is not steered".to_owned()
        }
        Reason::Bound => "its RX queue is bound to that CPU".to_owned(),
        Reason::NotBound => {
            "its RX queue is not bound, so it stays where it is received".to_owned()
        }
        Reason::Hash { index, entries, offline, no_slot } => {
            let mut text = format!(
                "the hash picks index {index} of the {entries} entries in its queue's CPU map"
            );
            if *offline {
                text += ", whose CPU is offline: the receiving CPU replaces it";
            }
            text + &without_slot(*no_slot)
        }
        Reason::Bucket { index, buckets, no_slot } => {
            let text = format!("the hash picks bucket {index} of {buckets}, and load its CPU");
            text + &without_slot(*no_slot)
        }
        Reason::Slot { slot, held } => format!(
            "{} sparse slot {} of CPU {}",
            if *held { "it holds" } else { "it gets" },
            slot.loop_,
            slot.cpu
        ),
        Reason::Rfs => "its application runs there".to_owned(),
        Reason::Stays { no_slot } => {
            format!("it stays where it is received (--else local){}", without_slot(*no_slot))
        }
    }
}

/// Why a flow has no sparse slot, if it could have one.
fn without_slot(why: Option<NoSlot>) -> String {
    match why {
        None => String::new(),
        Some(NoSlot::HashActive) => {
            "; it gets no sparse slot, because a flow went by hash within the last second"
                .to_owned()
        }
        Some(NoSlot::AllTaken) => "; every sparse slot is taken".to_owned(),
        Some(NoSlot::NotAdmitted { packet, after }) => format!(
            "; it gets no sparse slot: not admitted yet, packet {packet} of {after} within a second"
        ),
    }
}

/// What would move its next packets to another CPU.
fn moves(explained: &Explained) -> Vec<String> {
    let decision = &explained.decision;
    let mut moves = Vec::new();
    if decision.cpu != decision.target {
        let follows = decision.flow.is_some_and(|flow| flow.completed);
        moves.push(if follows {
            let hysteresis = decision.flow.map_or(0, |flow| flow.hysteresis);
            format!(
                "to CPU {}, but not at once: its hash alone steers it, so up to {hysteresis} packets follow \
                 the flows that share its flow table slot",
                decision.target
            )
        } else {
            format!(
                "to CPU {} as soon as its packets on CPU {} are processed",
                decision.target, decision.cpu
            )
        });
    }
    if decision.desired.is_some() {
        let other = match decision.reason {
            Reason::Rfs => "when its application consumes data on another CPU, or the flow ends",
            _ => "when its application consumes data on a CPU that packets can be sent to",
        };
        moves.push(other.to_owned());
    }
    match decision.reason {
        Reason::Slot { .. } => moves.push(
            "when it sends nothing for more than a second: its slot is then free, and it may get another slot, or \
             its hash steers it"
                .to_owned(),
        ),
        Reason::Hash { no_slot: Some(NoSlot::NotAdmitted { after, .. }), .. }
        | Reason::Bucket { no_slot: Some(NoSlot::NotAdmitted { after, .. }), .. }
        | Reason::Stays { no_slot: Some(NoSlot::NotAdmitted { after, .. }) } => moves.push(format!(
            "with its packet {after} within a second: it then gets a slot, if one is free and none \
             of the admitted flows went by hash within a second"
        )),
        Reason::Hash { no_slot: Some(_), .. } | Reason::Bucket { no_slot: Some(_), .. } => moves
            .push(
            "when no flow went by hash for more than a second and a slot is free: it then gets one"
                .to_owned(),
        ),
        _ => {}
    }
    if matches!(decision.reason, Reason::Bucket { .. }) {
        moves.push("when its CPU has more load than its share, and another less".to_owned());
    }
    moves.push(match decision.reason {
        Reason::Matched { .. } => "when the rules change".to_owned(),
        Reason::PolicyNone | Reason::NoHash | Reason::NoSuchQueue => {
            "when the policy or the receiving CPU changes".to_owned()
        }
        Reason::Bound | Reason::NotBound => {
            "when the policy or its queue's binding changes".to_owned()
        }
        _ => "when the policy or the CPU map changes, or the CPU goes offline".to_owned(),
    });
    if decision.own_policy().is_some() {
        moves.push("when the rules change".to_owned());
    }
    if decision.flow.is_some() {
        moves.push("in each case only after its packets under way are processed".to_owned());
    } else {
        moves.push("after a change only once the packets that wait are processed".to_owned());
    }
    moves
}

/// The explanation as JSON.
pub(crate) fn json(explained: &Explained) -> Value {
    let decision = &explained.decision;
    let key = &explained.flow;
    let flow = key.src_addr().zip(key.dst_addr()).map(|(src, dst)| {
        json!({
            "src": src.to_string(),
            "dst": dst.to_string(),
            "protocol": key.protocol,
            "src_port": key.src_port,
            "dst_port": key.dst_port,
        })
    });
    json!({
        "capture": explained.of.as_ref().map(|(capture, _)| capture),
        "frame": explained.of.as_ref().map(|(_, frame)| frame),
        "flow": flow,
        "no_flow": explained.no_flow,
        "tunnel": explained.tunnel,
        "flow_hash": decision.hash.get(),
        "hash": explained.hash_name,
        "hash_seed": explained.hash_seed.map(|seed| format!("{seed:032x}")),
        "rx_queue": decision.rx_queue,
        "device": decision.device,
        "receiving_cpu": explained.receiving_cpu.get(),
        "policy": explained.policy,
        "settings": explained.settings,
        "desired": decision.desired.map(|desired| {
            let (state, cpu) = match desired.state {
                DesiredState::Unset => ("unset", None),
                DesiredState::OfAnotherFlow => ("of_another_flow", None),
                DesiredState::Cpu(cpu) => ("cpu", Some(cpu.get())),
                DesiredState::Unusable(cpu) => ("unusable", Some(cpu.get())),
            };
            json!({ "entry": desired.index, "entries": desired.entries, "state": state, "cpu": cpu })
        }),
        "target": decision.target.get(),
        "reason": reason_json(&decision.reason),
        "flow_table": decision.flow.map(|flow| {
            json!({
                "slot": flow.index % (flow.entries + 1),
                "slots": flow.entries,
                "cpu": flow.last.map(|(cpu, _, _)| cpu.get()),
                "completed": flow.completed,
                "hysteresis": flow.hysteresis,
            })
        }),
        "matched_rule": matched_rule(decision),
        "rule_policy": rule_policy(decision),
        "cpu": decision.cpu.get(),
        "frames_before": explained.before,
        "would_move": moves(explained),
    })
}

/// The rule before the policy that matches, as it is written.
pub(crate) fn matched_rule(decision: &Explanation) -> Option<String> {
    decision.rule.as_ref().map(|(_, rule)| rule.to_string())
}

/// The name of the matching rule's own policy.
pub(crate) fn rule_policy(decision: &Explanation) -> Option<&'static str> {
    decision.own_policy().map(|(_, policy)| policy.name())
}

pub(crate) fn reason_json(reason: &Reason) -> Value {
    match reason {
        Reason::Matched { rule } => json!({ "rule": "matched", "number": rule + 1 }),
        Reason::PolicyNone => json!({ "rule": "none" }),
        Reason::NoHash => json!({ "rule": "no_hash" }),
        Reason::NoSuchQueue => json!({ "rule": "no_such_queue" }),
        Reason::Bound => json!({ "rule": "bound" }),
        Reason::NotBound => json!({ "rule": "not_bound" }),
        Reason::Hash { index, entries, offline, no_slot } => json!({
            "rule": "hash",
            "index": index,
            "entries": entries,
            "offline": offline,
            "no_slot": no_slot.map(no_slot_json),
        }),
        Reason::Bucket { index, buckets, no_slot } => json!({
            "rule": "bucket",
            "bucket": index,
            "buckets": buckets,
            "no_slot": no_slot.map(no_slot_json),
        }),
        Reason::Stays { no_slot } => {
            json!({ "rule": "stays", "no_slot": no_slot.map(no_slot_json) })
        }
        Reason::Slot { slot, held } => json!({
            "rule": "slot",
            "cpu": slot.cpu.get(),
            "loop": slot.loop_,
            "held": held,
        }),
        Reason::Rfs => json!({ "rule": "rfs" }),
    }
}

fn no_slot_json(why: NoSlot) -> Value {
    match why {
        NoSlot::HashActive => json!({ "why": "hash_active" }),
        NoSlot::AllTaken => json!({ "why": "all_taken" }),
        NoSlot::NotAdmitted { packet, after } => {
            json!({ "why": "not_admitted", "packet": packet, "after": after })
        }
    }
}
