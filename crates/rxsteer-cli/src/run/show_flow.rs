//! Where a flow is, and why, as text: the answer of `explain --live`.

use super::show_tables::flows;
use crate::output::lines::field;
use rxsteer_status::{Command, DecisionShown, FlowWhere};

/// Where a flow is, and why.
pub(crate) fn explained(at: &FlowWhere) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| field(&mut text, name, 13, &value);
    line("flow", at.flow.clone());
    line("policy", format!("{}, CPUs {}", at.policy, at.settings.cpus));
    if at.changing {
        line("change", "under way: what was sent before it may still hold the flow".to_owned());
    }
    if at.decisions.is_empty() {
        line("target", "none: no interface is steered".to_owned());
    }
    for decision in &at.decisions {
        let seen = if decision.seen { "" } else { ", if it arrives there: it was not seen" };
        line("arrives on", format!("{} RX queue {}{seen}", decision.interface, decision.queue));
        if let Some(rule) = &decision.matched_rule {
            line("rule", rule.clone());
        }
        line("target", format!("{}: {}", cpu_of(decision.target), decision.why));
        if let Some(desired) = &decision.desired {
            line("desired CPU", desired.clone());
        }
        line("order guard", guard(decision));
        line("goes to", cpu_of(decision.cpu));
    }
    match at.flows.is_empty() {
        true => line("statistics", "none: not seen, ended, or not counted".to_owned()),
        false => {
            text.push('\n');
            text.push_str(&flows(&at.flows, Command::Run));
        }
    }
    text
}

fn cpu_of(cpu: Option<u16>) -> String {
    cpu.map_or("the CPU that receives it".to_owned(), |cpu| format!("CPU {cpu}"))
}

/// The state of the order guard.
fn guard(at: &DecisionShown) -> String {
    let from = at.received_on.map_or(String::new(), |cpu| format!(" from CPU {cpu}"));
    match &at.last {
        _ if !at.guarded => "not asked: under this policy no flow moves".to_owned(),
        None => "free: no packet of its slot is known".to_owned(),
        Some(last) if !last.delivered => format!(
            "the last packet of its slot went{from} to CPU {} and is not delivered yet: the next one follows it",
            last.cpu
        ),
        Some(last) if at.cpu != at.target => format!(
            "the last packet of its slot went{from} to CPU {} and is delivered; {} more may follow it against their hash",
            last.cpu, last.hysteresis
        ),
        Some(last) => format!(
            "the last packet of its slot went{from} to CPU {} and is delivered: the next one may go elsewhere",
            last.cpu
        ),
    }
}
