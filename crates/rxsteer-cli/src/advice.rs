//! Advice to the user in addition to the figures: settings without effect, misleading figures, tables that are too
//! small.

use crate::finished::Run;
use crate::steer_args::SteerSettings;
use rxsteer_settings::Steering;
use rxsteer_user::core::limits::{MAX_FLOW_CNT, MAX_FLOW_CNT_OF_ALL, MAX_SOCK_FLOW_ENTRIES};
use rxsteer_user::core::{Fallback, PacketRule, Policy, SteerConfig};
use rxsteer_user::{PipelineConfig, Speed, sys};
use std::fmt::Write;

/// The policy, and those of the rules before it.
pub(crate) fn with_rules(policy: &Policy, rules: &[PacketRule]) -> Vec<Policy> {
    let own = rules.iter().filter_map(|rule| rule.action.policy());
    std::iter::once(policy.clone()).chain(own.map(|own| own.with_settings_of(policy))).collect()
}

/// Every policy that is active in a run, including those of rules, at the start or after a change.
pub(crate) fn policies(config: &PipelineConfig) -> Vec<Policy> {
    let changes = || config.changes.iter().map(|(_, change)| change);
    let changed = changes().filter_map(|change| change.policy.as_ref());
    let new = changes().flat_map(|change| change.packet_rules.iter().flatten());
    let rules: Vec<PacketRule> = config.packet_rules.iter().chain(new).cloned().collect();
    changed.chain([&config.policy]).flat_map(|policy| with_rules(policy, &rules)).collect()
}

/// Why a setting that only rfs uses changes nothing.
const ONLY_RFS: &str = "only rfs looks where applications run";

/// Settings without effect, each with the reason.
pub(crate) fn without_effect(
    steer: &SteerSettings,
    policies: &[Policy],
    changes: bool,
) -> Vec<String> {
    let any = |used: fn(&Policy) -> bool| policies.iter().any(used);
    let tables = &steer.tables;
    let mut notes = unused(&[(
        tables.sock_flow_entries.is_some() && !any(Policy::is_rfs),
        "--sock-flow-entries",
        ONLY_RFS,
    )]);
    notes.extend(steering_without_effect(&steer.steering, policies));
    notes.extend(unused(&[
        (
            tables.flow_cnt.is_some() && !any(Policy::remembers_flows) && !changes,
            "--flow-cnt",
            "only sparse and rfs remember flows",
        ),
        (
            steer.rx_devices.is_some() && !any(|policy| policy.slots().is_some()),
            "--rx-devices",
            "only sparse distinguishes devices",
        ),
    ]));
    notes
}

/// The same for the settings of every datapath, which `rxsteer set` can change.
pub(crate) fn steering_without_effect<const BUCKETS: u32>(
    given: &Steering<BUCKETS>,
    policies: &[Policy],
) -> Vec<String> {
    let any = |used: fn(&Policy) -> bool| policies.iter().any(used);
    // The word for the default requests nothing.
    let is_else = given.fallback.is_some_and(|fallback| fallback != Fallback::default());
    let has_rest = any(|policy| policy.remembers_flows() && policy.balance().is_none());
    unused(&[
        (
            is_else && !has_rest,
            "--else",
            "only rfs and sparse use it, for flows that they do not place themselves",
        ),
        (given.rfs_cpus().flatten().is_some() && !any(Policy::is_rfs), "--rfs-cpus", ONLY_RFS),
    ])
}

/// The settings that are without effect, with their reasons.
pub(crate) fn unused(settings: &[(bool, &str, &str)]) -> Vec<String> {
    let unused = settings.iter().filter(|(is_unused, ..)| *is_unused);
    unused.map(|(_, what, why)| changes_nothing(what, why)).collect()
}

/// The message that an option or a rule has no effect.
pub(crate) fn changes_nothing(what: &str, why: &str) -> String {
    format!("{what} changes nothing here: {why}")
}

/// The notes before packets are received: settings without effect, and that no application is followed. `can_change`:
/// the policy may change later. `apps` describes how to simulate applications, if there are none.
pub(crate) fn before(
    steer: &SteerSettings,
    config: &PipelineConfig,
    can_change: bool,
    apps: Option<&str>,
) -> Vec<String> {
    let policies = policies(config);
    let mut notes = without_effect(steer, &policies, can_change);
    if let Some(apps) = apps
        && let Some(decides) = without_apps(&policies, config.fallback)
    {
        notes.push(format!("{decides}; {apps}"));
    }
    notes
}

/// The message that threads are not pinned although they should be.
pub(crate) fn unpinned(config: &PipelineConfig) -> Option<String> {
    (config.pin && !config.pins()).then(|| {
        let host = sys::allowed_cpus().map_or("unknown".to_owned(), |cpus| cpus.to_string());
        format!(
            "this host lacks some of CPUs {} (this process may use {host}), so threads are not pinned. The spread \
             is correct; speed and delays are not those of a host that has these CPUs.",
            config.workers()
        )
    })
}

/// How a policy that follows applications decides if there are none.
fn without_apps(policies: &[Policy], fallback: Fallback) -> Option<String> {
    let policy = policies.iter().find(|policy| policy.is_rfs())?;
    let below = match (policy.slots(), policy.balance(), fallback) {
        (Some(_), None, _) => "sparse",
        (Some(_), Some(_), _) => "sparse+balance",
        (None, Some(_), _) => "rps+balance",
        (None, None, Fallback::Hash) => "rps",
        (None, None, Fallback::Local) => "none",
    };
    Some(format!("no desired CPU is recorded, so {policy} decides as {below} does"))
}

/// The notes after a replay.
pub(crate) fn after(run: &Run, config: &PipelineConfig, speed: Speed) -> Vec<String> {
    let mut notes = Vec::new();
    let counts = &run.report.steering;
    if !policies(config).iter().any(Policy::remembers_flows) {
        return notes;
    }
    let flows = run.report.steered_flows;
    if counts.deferred * 20 > run.report.packets {
        let slots = flow_slots(config);
        let mut note = format!(
            "{} packets went to the CPU in their flow table slot, not to their target.",
            counts.deferred
        );
        if flows > slots / 8 {
            let _ = write!(
                note,
                " {flows} flows share {slots} slots, and flows of one slot move together; \
                 --flow-cnt {} makes that rarer.",
                ample_flow_cnt(flows, config.rx_queues)
            );
        }
        if speed == Speed::Max {
            note += " At --speed max, seconds of traffic are under way within milliseconds, so more packets are \
                     deferred than live; --speed drained shows what a live system does whose CPUs keep up.";
        }
        notes.push(note);
    }
    let entries = u64::from(config.sock_flow_entries.next_power_of_two());
    if counts.rfs > 0 && flows > entries / 2 {
        notes.push(format!(
            "{flows} flows share {entries} entries for the CPUs of their applications, and overwrite \
             one another's; --sock-flow-entries {} makes that rarer",
            (flows * 4).next_power_of_two().min(u64::from(MAX_SOCK_FLOW_ENTRIES))
        ));
    }
    notes
}

/// A number of slots per RX queue at which few of this many flows share a slot, within the limits.
fn ample_flow_cnt(flows: u64, rx_queues: u16) -> u64 {
    let queues = u64::from(rx_queues.max(1));
    let most =
        u64::from(MAX_FLOW_CNT).min((MAX_FLOW_CNT_OF_ALL / queues + 1).next_power_of_two() / 2);
    (flows * 16 / queues).max(1).next_power_of_two().min(most)
}

/// The slots of all RX queues' flow tables.
fn flow_slots(config: &PipelineConfig) -> u64 {
    let receiving = vec![config.cpus.lowest(); usize::from(config.rx_queues)];
    let mut steer = SteerConfig::new(Policy::Rps, config.cpus.clone(), receiving);
    steer.flow_cnt = config.flow_cnt;
    u64::from(steer.flow_cnt().next_power_of_two()) * u64::from(config.rx_queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_effect_are_named() {
        let given = |policy: &str, rule: Option<&str>| {
            let rules: Vec<PacketRule> = rule.iter().map(|rule| rule.parse().unwrap()).collect();
            let steering = Steering::<4096> {
                fallback: Some(Fallback::Local),
                rfs_cpus: Some("0-1".parse().unwrap()),
                ..Steering::default()
            };
            let policies = with_rules(&policy.parse().unwrap(), &rules);
            steering_without_effect(&steering, &policies)
        };
        let notes = given("rps", None);
        assert!(notes.len() == 2 && notes[0].starts_with("--else changes nothing"), "{notes:?}");
        assert!(notes[1].starts_with("--rfs-cpus changes nothing here: only rfs"), "{notes:?}");
        assert_eq!(given("sparse", None).len(), 1);
        assert_eq!(given("rfs", None), [""; 0]);
        assert_eq!(given("rps", Some("udp -> policy rfs")), [""; 0]);
    }

    #[test]
    fn advised_size_can_be_had() {
        for queues in [1, 3, 64, 1000, 1024] {
            for flows in [1, 1000, 300_000, 4_000_000] {
                let size = ample_flow_cnt(flows, queues);
                assert!(size <= u64::from(MAX_FLOW_CNT));
                assert!(size * u64::from(queues) <= MAX_FLOW_CNT_OF_ALL, "{flows} on {queues}");
            }
        }
    }
}
