//! Whether `rxsteer run` accepts the settings of a file on this host, for `rxsteer config check`. It changes nothing and needs
//! no privilege; whether the host and an interface can be steered at all is for `rxsteer check` to say.

use super::args::RunSettings;
use super::attach::{host_cpus, rx_queues, starves};
use super::change::HostCpus;
use super::queue_names::{self, There};
use super::reload::{Defaults, settings};
use crate::output::error_text;
use rxsteer_host::{Host, Link, default_cpus, default_policy, links};
use rxsteer_user::core::{CpuId, CpuSet, Mechanisms, Policy, ThreadClass};

/// Checks what is wrong on every host, whatever CPUs and interfaces it has.
pub(crate) fn on_any_host(asked: &RunSettings) -> Result<(), String> {
    let all = CpuSet::new((0..=u16::MAX).filter_map(CpuId::new)).ok_or("there are no CPUs")?;
    let cpus = HostCpus { possible: all.clone(), online: all.clone() };
    let defaults = Defaults {
        policy: Policy::Rps,
        cpus: CpuSet::new(CpuId::new(0)),
        threads: ThreadClass::DEFAULT,
    };
    settings(&asked.live, &defaults, &cpus)?.check(&all).map_err(|why| why.to_string())
}

/// What is worth knowing and depends on the interfaces that are steered; or why the settings are refused here.
pub(crate) fn on_this_host(asked: &RunSettings) -> Result<Vec<String>, String> {
    let host = Host::look();
    if let Some(class) = asked.live.kernel.threads
        && let Some(why) = starves(class, &host)
    {
        return Err(format!("threads: {class}: {why}"));
    }
    let policy = default_policy(&host);
    let rules = asked.live.rules.rules().unwrap_or_default();
    let of_flows = asked.live.steering.policy.clone().unwrap_or(Policy::None);
    if Mechanisms::of(&of_flows, &rules).rfs && !policy.is_rfs() {
        let setting = if of_flows.is_rfs() { "policy" } else { "rule" };
        return Err(format!(
            "{setting}: this kernel lacks tracepoints that rfs takes (rxsteer check names them); {policy} needs none"
        ));
    }
    let cpus = host_cpus().map_err(|why| error_text(&why))?;
    let near: [&str; 0] = [];
    let threads = ThreadClass::DEFAULT;
    let defaults = Defaults { policy, cpus: default_cpus(&near).ok(), threads };
    let settings = settings(&asked.live, &defaults, &cpus)?;
    settings.check(&cpus.possible).map_err(|why| why.to_string())?;
    let links = links().map_err(|why| why.to_string())?;
    let there: Vec<There<'_>> =
        links.iter().map(|link: &Link| (link.name.as_str(), rx_queues(link))).collect();
    queue_names::on_host(&settings, &there)
}
