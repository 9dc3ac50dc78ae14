//! What the options and the file of `--config` request: at the start, and when SIGHUP makes the instance read the file
//! again.

use super::args::{FixedSettings, LiveSettings, RunArgs};
use super::change::{HostCpus, changes};
use super::datapath::Datapath;
use super::instance::Instance;
use crate::output::error_text;
use crate::settable::cant_change;
use crate::settings_file;
use rxsteer_status::{EventKind, NewEvent};
use rxsteer_user::core::{CpuSet, Policy, ThreadClass};
use rxsteer_user::shown;
use rxsteer_xdp::Settings;
use std::path::PathBuf;

/// Defaults for settings that neither options nor file give, as determined at the start.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) policy: Policy,
    /// `None` if the host does not report its CPUs.
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) threads: ThreadClass,
}

/// The requested settings on a host with these CPUs; or the reason why one of them is wrong.
pub(crate) fn settings(
    asked: &LiveSettings,
    defaults: &Defaults,
    host: &HostCpus,
) -> Result<Settings, String> {
    let cpus = asked.steering.cpus.is_some().then(|| host.online.clone());
    let cpus = cpus.or_else(|| defaults.cpus.clone()).ok_or_else(|| {
        "cpus: can't find out which CPUs are online and not isolated; name them".to_owned()
    })?;
    let default =
        Settings { threads: defaults.threads, ..Settings::new(defaults.policy.clone(), cpus) };
    asked.onto(&default, host)
}

/// Everything needed to read the file again.
#[derive(Debug)]
pub(crate) struct Reload {
    args: RunArgs,
    /// Settings of options and file at the start that cannot be changed.
    started: FixedSettings,
    defaults: Defaults,
}

impl Reload {
    /// `None` without `--config`.
    pub(crate) fn new(args: RunArgs, started: FixedSettings, defaults: Defaults) -> Option<Reload> {
        args.config.is_some().then_some(Reload { args, started, defaults })
    }

    /// The file's name.
    fn file(&self) -> String {
        self.args.config.as_deref().map(shown).unwrap_or_default()
    }

    /// The reason, with the place of the setting that it names, if that is in the file.
    fn placed(&self, why: String) -> String {
        let text = self
            .args
            .config
            .as_deref()
            .and_then(|path| Some((path, settings_file::text(path).ok()?)));
        let Some((path, text)) = text else { return why };
        let place = settings_file::place_of(&settings_file::parse(&text).0, &why);
        place.map_or(why.clone(), |place| settings_file::placed(path, &text, place, &why))
    }

    /// The settings that the file now requests, or why they are refused.
    fn wanted(&self, host: &HostCpus) -> Result<Settings, String> {
        // A pipe, such as <(…) of a shell, has its text only once, and waiting for more would stop this thread.
        let is_other = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| !meta.is_file());
        if self.args.config.as_ref().is_some_and(is_other) {
            return Err("it is not a regular file, so it is read only at the start".to_owned());
        }
        // Several mistakes are several lines; an event has one.
        let now = self.args.settings();
        let now = now.map_err(|why| error_text(&why).replace('\n', "; also "))?;
        let (started, fixed) = (&self.started, &now.fixed);
        let same = [
            ("mode", started.mode() == fixed.mode()),
            ("flow-cnt", started.tables.flow_cnt == fixed.tables.flow_cnt),
            (
                "sock-flow-entries",
                started.tables.sock_flow_entries == fixed.tables.sock_flow_entries,
            ),
            ("rfs-namespaces", started.rfs_namespaces() == fixed.rfs_namespaces()),
            ("hash-seed", started.flows.hash_seed == fixed.flows.hash_seed),
            ("inner", started.flows.inner() == fixed.flows.inner()),
            ("key-tunnels", started.tunnels.kinds() == fixed.tunnels.kinds()),
            ("no-flow-stats", started.flow_stats() == fixed.flow_stats()),
            ("listen", started.listen.listen == fixed.listen.listen),
            (
                "listen-token-file",
                started.listen.listen_token_file == fixed.listen.listen_token_file,
            ),
            ("events", started.events == fixed.events),
        ];
        let same = same.into_iter().chain(started.records.same(&fixed.records));
        let changed = same.filter(|(_, same)| !same).map(|(name, _)| name);
        let changed: Vec<&str> = changed.collect();
        if !changed.is_empty() {
            return Err(cant_change(&changed));
        }
        let mut wanted =
            settings(&now.live, &self.defaults, host).map_err(|why| self.placed(why))?;
        wanted.without_guard = self.args.without_order_guard;
        Ok(wanted)
    }
}

impl<P: Datapath> Instance<P> {
    /// Reads the file again, and begins the change to its settings; returns the event.
    pub(crate) fn reload(&mut self, reload: &Reload) -> NewEvent {
        let (file, before) = (reload.file(), self.settings.clone());
        let cpus = self.cpus.clone();
        let mut change = |wanted| self.change_to(wanted).map_err(|why| reload.placed(why));
        let (kind, text) = match reload.wanted(&cpus).and_then(&mut change) {
            Err(why) => (
                EventKind::ReloadRefused,
                format!("{file} is not reloaded, and all settings stay: {why}"),
            ),
            Ok(()) => {
                let changed = changes(&before, &self.settings);
                let text = match changed.is_empty() {
                    true => format!("{file} is reloaded: no setting changes"),
                    false => format!("{file} is reloaded: {}", changed.join(", ")),
                };
                (EventKind::Reloaded, text)
            }
        };
        NewEvent::new(kind, text).with("file", file)
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
