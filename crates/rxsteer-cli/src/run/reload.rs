//! What the options and the file of `--config` ask for: at the start, and when SIGHUP has the file read again.

use super::args::RunArgs;
use super::change::HostCpus;
use super::datapath::Datapath;
use super::instance::Instance;
use rxsteer_user::core::{CpuSet, Policy, ThreadClass};
use rxsteer_user::shown;
use rxsteer_xdp::{DEFAULT_QUEUE_SIZE, Settings};

/// Settings that hold where neither options nor file give them, as they were found at the start.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) policy: Policy,
    /// `None` where the host does not say which CPUs there are.
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) threads: ThreadClass,
}

/// The settings that `args` ask for, on a host with these CPUs; or which of them is wrong.
pub(crate) fn settings(
    args: &RunArgs,
    defaults: &Defaults,
    host: &HostCpus,
) -> Result<Settings, String> {
    let cpus = args.cpus.as_ref().map(|choice| choice.cpus(Some(host.online.clone())));
    let settings = Settings {
        policy: args.policy.clone().unwrap_or_else(|| defaults.policy.clone()),
        cpus: cpus.or_else(|| defaults.cpus.clone()).ok_or_else(|| {
            "cpus: this host does not say which CPUs are online and not isolated; name them"
                .to_owned()
        })?,
        rps_maps: args.rps_map.clone(),
        fallback: args.fallback.unwrap_or_default(),
        rfs_cpus: args.rfs_cpus.clone(),
        offline: host.offline(),
        queue_size: args.queue_size.unwrap_or(DEFAULT_QUEUE_SIZE),
        flow_limit: args.flow_limit,
        threads: args.threads.unwrap_or(defaults.threads),
        shadow: args.shadow,
        without_guard: args.without_order_guard,
    };
    host.check(settings.cpus.iter(), "cpus")?;
    host.check(settings.policy.named_cpus(), "policy")?;
    host.check(settings.rps_maps.iter().flat_map(|(_, map)| map.iter()), "rps-map")?;
    host.check(settings.rfs_cpus.iter().flat_map(CpuSet::iter), "rfs-cpus")?;
    Ok(settings)
}

/// What it takes to read the file again.
#[derive(Debug)]
pub(crate) struct Reload {
    /// The options without the file.
    options: RunArgs,
    /// The options with what the file said at the start.
    begun: RunArgs,
    defaults: Defaults,
}

impl Reload {
    /// `None` without `--config`.
    pub(crate) fn new(options: RunArgs, begun: &RunArgs, defaults: Defaults) -> Option<Reload> {
        options.config.is_some().then(|| Reload { options, begun: begun.clone(), defaults })
    }

    /// The file's name.
    fn file(&self) -> String {
        self.options.config.as_deref().map(shown).unwrap_or_default()
    }

    /// The settings that the file asks for now, or why they can't be had.
    fn wanted(&self, host: &HostCpus) -> Result<Settings, String> {
        let mut args = self.options.clone();
        args.add_file().map_err(|why| crate::output::error_text(&why))?;
        let fixed = [
            ("mode", args.mode() == self.begun.mode()),
            ("flow-cnt", args.flow_cnt == self.begun.flow_cnt),
            ("sock-flow-entries", args.sock_flow_entries == self.begun.sock_flow_entries),
            (
                "rfs-namespaces",
                args.rfs_namespaces.unwrap_or_default()
                    == self.begun.rfs_namespaces.unwrap_or_default(),
            ),
            ("hash-seed", args.hash_seed == self.begun.hash_seed),
            ("inner", args.inner == self.begun.inner),
            ("no-flow-stats", args.no_flow_stats == self.begun.no_flow_stats),
        ];
        let changed = fixed.iter().filter(|(_, same)| !same).map(|(key, _)| *key);
        let changed: Vec<&str> = changed.collect();
        if !changed.is_empty() {
            return Err(format!(
                "{} can't change while rxsteer runs; restart it for that",
                changed.join(", ")
            ));
        }
        settings(&args, &self.defaults, host)
    }
}

impl<P: Datapath> Instance<P> {
    /// Reads the file again and begins the change to what it asks for; what is to be said of it, in one line.
    pub(crate) fn reload(&mut self, reload: &Reload) -> String {
        let (file, before) = (reload.file(), self.settings.clone());
        match reload.wanted(&self.cpus).and_then(|wanted| self.change_to(wanted)) {
            Err(why) => format!("{file} is not reloaded, and all settings stay: {why}"),
            Ok(()) => {
                let (before, after) = (listed(&before), listed(&self.settings));
                let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
                let changed: Vec<String> = changed
                    .map(|((key, before), (_, after))| format!("{key}={after} (was {before})"))
                    .collect();
                match changed.is_empty() {
                    true => format!("{file} is reloaded: no setting changes"),
                    false => format!("{file} is reloaded: {}", changed.join(", ")),
                }
            }
        }
    }
}

/// Settings as `rxsteer set` names them.
fn listed(settings: &Settings) -> [(&'static str, String); 9] {
    let maps = settings.rps_maps.iter().map(|(name, cpus)| format!("{name}={cpus}"));
    let maps: Vec<String> = maps.collect();
    let rfs_cpus = settings.rfs_cpus.as_ref();
    let flow_limit = settings.flow_limit.map(|buckets| buckets.to_string());
    [
        ("policy", settings.policy.to_string()),
        ("cpus", settings.cpus.to_string()),
        ("rps-map", if maps.is_empty() { "none".to_owned() } else { maps.join(" ") }),
        ("else", settings.fallback.to_string()),
        ("rfs-cpus", rfs_cpus.map_or("all".to_owned(), ToString::to_string)),
        ("queue-size", settings.queue_size.to_string()),
        ("flow-limit", flow_limit.unwrap_or("off".to_owned())),
        ("threads", settings.threads.to_string()),
        ("shadow", if settings.shadow { "on" } else { "off" }.to_owned()),
    ]
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
