//! What a user should know beside the figures: settings without effect, figures that mislead, tables
//! that are too small.

use crate::replay::Run;
use crate::steer_args::SteerArgs;
use rxsteer_user::core::{Policy, SteerConfig};
use rxsteer_user::{PipelineConfig, Speed};

/// Every policy that holds in a run, by itself or after a change.
fn policies<'a>(policy: &'a Policy, config: &'a PipelineConfig) -> Vec<&'a Policy> {
    let changed = config.changes.iter().filter_map(|(_, change)| change.policy.as_ref());
    std::iter::once(policy).chain(changed).collect()
}

/// Settings that change nothing, each with the reason.
pub(crate) fn without_effect(steer: &SteerArgs, policies: &[&Policy]) -> Vec<String> {
    let any = |used: fn(&Policy) -> bool| policies.iter().any(|policy| used(policy));
    let mut notes = Vec::new();
    let mut note = |given: bool, used: bool, option: &str, why: &str| {
        if given && !used {
            notes.push(format!("{option} changes nothing here: {why}"));
        }
    };
    note(
        steer.sock_flow_entries.is_some(),
        any(Policy::is_rfs),
        "--sock-flow-entries",
        "only rfs looks where applications run",
    );
    note(
        steer.flow_cnt.is_some(),
        any(Policy::remembers_flows) || policies.len() > 1,
        "--flow-cnt",
        "only sparse and rfs remember flows",
    );
    note(
        steer.rx_devices.is_some(),
        any(|policy| policy.loops().is_some()),
        "--rx-devices",
        "only sparse tells devices apart",
    );
    note(
        steer.hash.is_some() || steer.hash_seed.is_some(),
        any(Policy::has_maps),
        "the hash",
        "this policy goes by RX queue alone",
    );
    notes
}

/// What to say before a replay.
pub(crate) fn before(steer: &SteerArgs, config: &PipelineConfig, has_apps: bool) -> Vec<String> {
    let policies = policies(&config.policy, config);
    let mut notes = without_effect(steer, &policies);
    if !has_apps && let Some(policy) = policies.iter().find(|policy| policy.is_rfs()) {
        let below = if policy.loops().is_some() { "sparse" } else { "rps" };
        notes.push(format!(
            "nobody says where applications run, so {policy} decides as {below} does; name their \
             CPUs with --app-cpus"
        ));
    }
    notes
}

/// What to say after a replay.
pub(crate) fn after(run: &Run, config: &PipelineConfig, speed: Speed) -> Vec<String> {
    let mut notes = Vec::new();
    let counts = &run.report.steering;
    let policies = policies(&config.policy, config);
    if !policies.iter().any(|policy| policy.remembers_flows()) {
        return notes;
    }
    let many = counts.held * 20 > run.report.packets;
    let slots = flow_slots(config);
    if many && run.report.steered_flows > slots / 4 {
        notes.push(format!(
            "{} flows share {slots} slots of the flow tables, and flows of one slot move together; \
             raise --flow-cnt above {}",
            run.report.steered_flows,
            run.report.steered_flows * 4
        ));
    } else if many && speed == Speed::Max {
        notes.push(format!(
            "{} packets went where earlier ones of their flow were still under way. At --speed max \
             the packets of seconds are received within milliseconds, so more are under way than \
             live; --speed recorded (or 100x) shows what a live system would do",
            counts.held
        ));
    }
    if counts.wished > 0 && run.report.steered_flows > u64::from(config.sock_flow_entries) / 2 {
        notes.push(format!(
            "{} flows share {} entries for the CPUs of their applications, and overwrite one \
             another's; raise --sock-flow-entries above {}",
            run.report.steered_flows,
            config.sock_flow_entries,
            run.report.steered_flows * 2
        ));
    }
    notes
}

/// Slots of all RX queues' flow tables.
fn flow_slots(config: &PipelineConfig) -> u64 {
    let receiving = vec![config.cpus.lowest(); usize::from(config.rx_queues)];
    let mut steer = SteerConfig::new(Policy::Rps, config.cpus.clone(), receiving);
    steer.flow_cnt = config.flow_cnt;
    u64::from(steer.flow_cnt().next_power_of_two()) * u64::from(config.rx_queues)
}
