//! Counts which rule before the policy each packet matches, over a whole run, during which rules may be replaced.

use super::packet::Packet;
use rxsteer_core::matching::Facts;
use rxsteer_core::{PacketRule, Plan};

/// The packets that each rule matched.
#[derive(Debug, Default)]
pub(crate) struct RuleHits {
    /// All rules that have been active so far, in order of activation.
    pub(crate) rules: Vec<(PacketRule, u64)>,
    /// Packets that arrived while there were rules, and matched none.
    pub(crate) unmatched: u64,
    /// For each active rule, its index in `rules`.
    held: Vec<usize>,
}

impl RuleHits {
    /// Counts by the rules of `plan` from now on. A rule that was active before continues its count.
    pub(crate) fn hold(&mut self, plan: &Plan) {
        self.held.clear();
        for rule in &plan.config().packet_rules {
            let known = self.rules.iter().position(|(known, _)| known == rule);
            self.held.push(known.unwrap_or(self.rules.len()));
            if known.is_none() {
                self.rules.push((rule.clone(), 0));
            }
        }
    }

    /// The rule of `plan`, which must be active, that `packet` matches, as in [`rxsteer_core::Arrival::rule`]. Counts
    /// the packet.
    pub(crate) fn find(&mut self, plan: &Plan, facts: Option<&[Facts]>, packet: &Packet) -> u16 {
        let of_flow = facts.and_then(|facts| facts.get(packet.flow as usize));
        let (Some(matcher), Some(facts)) = (plan.matcher(), of_flow) else { return 0 };
        let found = matcher.find(facts);
        let count = match found {
            Some(rule) => &mut self.rules[self.held[usize::from(rule)]].1,
            None => &mut self.unmatched,
        };
        *count += 1;
        found.map_or(0, |rule| rule + 1)
    }
}
