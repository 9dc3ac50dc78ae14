//! Checks for `rxsteer config check` whether `rxsteer run` accepts the settings of a file. It changes nothing and
//! requires no privileges. `rxsteer check` checks whether the host and an interface can be steered at all.

use super::args::RunSettings;
use super::attach::{host_cpus, rx_queues, starvation_warning};
use super::change::HostCpus;
use super::queue_names::{self, InterfaceQueues};
use super::reload::{Defaults, settings};
use crate::advice::{steering_without_effect, with_rules};
use crate::output::error_text;
use crate::record_args::RunRecordArgs;
use crate::steer_args::covered;
use rxsteer_host::{Host, Link, default_cpus, default_policy, links};
use rxsteer_user::core::{CpuId, CpuSet, Mechanisms, PacketRule, Policy, Slots, ThreadClass};
use rxsteer_xdp::Settings;

/// Notes about the settings that can change while frames flow, or why they are refused: on this host (`here`), or
/// independent of the host's CPUs and interfaces.
pub(crate) fn live(asked: &RunSettings, here: bool) -> Result<Vec<String>, String> {
    let (settings, mut notes) = if here { on_this_host(asked)? } else { on_any_host(asked)? };
    PacketRule::check_headers(&settings.packet_rules, asked.fixed.flows.inner())
        .map_err(|why| format!("rule: {why}"))?;
    notes.extend(covered(&asked.live.rules));
    let policies = with_rules(&settings.policy, &settings.packet_rules);
    notes.extend(steering_without_effect(&asked.live.steering, &policies));
    Ok(notes)
}

/// Why settings that are fixed during a run are refused, each with the names of the settings that may cause it.
pub(crate) fn fixed(asked: &RunSettings, here: bool) -> Vec<(Vec<String>, String)> {
    let asked = &asked.fixed;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut of_records = rxsteer_settings::names::<RunRecordArgs>();
    of_records.push("no-flow-stats".to_owned());
    let records = || match here {
        true => asked.records.check_here(),
        false => asked.records.check().map(drop),
    };
    let checked = [
        (
            names(&["listen", "listen-token-file"]),
            if here { asked.listen.check_here() } else { asked.listen.check() },
        ),
        (names(&["events"]), if here { asked.events.check() } else { Ok(()) }),
        (of_records, asked.check_records().and_then(|()| records())),
    ];
    let wrong = |(names, checked): (_, anyhow::Result<()>)| {
        checked.err().map(|why| (names, error_text(&why)))
    };
    checked.into_iter().filter_map(wrong).collect()
}

/// The settings, with notes, checked for mistakes that do not depend on the host's CPUs and interfaces.
fn on_any_host(asked: &RunSettings) -> Result<(Settings, Vec<String>), String> {
    let all = CpuSet::new((0..=u16::MAX).filter_map(CpuId::new)).ok_or("there are no CPUs")?;
    let cpus = HostCpus { possible: all.clone(), online: all.clone() };
    let defaults = Defaults {
        // If rfs is available, it is the default.
        policy: Policy::RfsSparse(Slots::default()),
        cpus: CpuSet::new(CpuId::new(0)),
        threads: ThreadClass::DEFAULT,
    };
    let settings = settings(&asked.live, &defaults, &cpus)?;
    settings.check(&all).map_err(|why| why.to_string())?;
    Ok((settings, Vec::new()))
}

/// The same on this host; the notes depend on the steered interfaces.
fn on_this_host(asked: &RunSettings) -> Result<(Settings, Vec<String>), String> {
    let host = Host::read();
    if let Some(class) = asked.live.kernel.threads
        && let Some(why) = starvation_warning(class, &host)
    {
        return Err(format!("threads: {class}: {why}"));
    }
    let policy = default_policy(&host);
    let rules = asked.live.rules.rules().unwrap_or_default();
    let of_flows = asked.live.steering.policy.clone().unwrap_or(Policy::None);
    if Mechanisms::of(&of_flows, &rules).rfs && !policy.is_rfs() {
        let setting = if of_flows.is_rfs() { "policy" } else { "rule" };
        return Err(format!(
            "{setting}: this kernel lacks tracepoints that rfs requires (rxsteer check names them); {policy} needs none"
        ));
    }
    let cpus = host_cpus().map_err(|why| error_text(&why))?;
    let near: [&str; 0] = [];
    let threads = ThreadClass::DEFAULT;
    let defaults = Defaults { policy, cpus: default_cpus(&near).ok(), threads };
    let settings = settings(&asked.live, &defaults, &cpus)?;
    settings.check(&cpus.possible).map_err(|why| why.to_string())?;
    let links = links().map_err(|why| why.to_string())?;
    let there: Vec<InterfaceQueues<'_>> =
        links.iter().map(|link: &Link| (link.name.as_str(), rx_queues(link))).collect();
    let notes = queue_names::on_host(&settings, &there)?;
    Ok((settings, notes))
}
