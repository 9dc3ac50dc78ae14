//! A running instance: its settings, and what becomes of them when they or the CPUs change. Its interfaces
//! are in `interfaces.rs`.
//!
//! No I/O in either but through [`Datapath`]: what the host looks like is told by the caller
//! ([`Instance::see_links`], [`Instance::see_online`]), and what is to be said comes back as lines.

use super::change::{Change, HostCpus};
use super::count::Former;
use super::datapath::Datapath;
use super::interfaces::Steered;
use super::protocol::{Answer, Changed, Request, SettingsShown};
use crate::explain::flow::FlowArg;
use rxsteer_host::{Link, Pattern};
use rxsteer_user::core::CpuSet;
use rxsteer_xdp::Settings;
use std::path::PathBuf;
use std::time::Instant;

/// What does not change while it runs.
pub(crate) struct Fixed {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) socket: PathBuf,
    pub(crate) network_namespace: Option<u64>,
    pub(crate) flow_cnt: u32,
    pub(crate) sock_flow_entries: u32,
    pub(crate) inner: bool,
    pub(crate) flow_stats: bool,
    pub(crate) begun: Instant,
    /// What stands against steering this interface, if anything does.
    pub(crate) obstacle: fn(&Link, &[Link]) -> Option<String>,
}

/// When a request is answered.
pub(crate) enum Reply {
    Now(Answer),
    /// When the change that it began is done.
    WhenDone,
}

/// A running instance.
pub(crate) struct Instance<P: Datapath> {
    pub(crate) path: P,
    pub(crate) fixed: Fixed,
    pub(crate) settings: Settings,
    pub(crate) cpus: HostCpus,
    pub(crate) interfaces: Vec<Steered<P::Device>>,
    pub(crate) changing: bool,
    /// The settings could not be applied yet, and are to be tried again.
    unapplied: bool,
    /// The last failure to go on that was said.
    failure: Option<String>,
    pub(crate) former: Former,
}

impl<P: Datapath> Instance<P> {
    pub(crate) fn new(path: P, fixed: Fixed, settings: Settings, cpus: HostCpus) -> Instance<P> {
        let interfaces = Vec::new();
        Instance {
            path,
            fixed,
            settings,
            cpus,
            interfaces,
            changing: false,
            unapplied: false,
            failure: None,
            former: Former::default(),
        }
    }

    /// Tells which CPUs are online now; returns what is to be said about it.
    pub(crate) fn see_online(&mut self, online: &CpuSet) -> Vec<String> {
        if self.cpus.online == *online {
            return Vec::new();
        }
        self.cpus.online = online.clone();
        let offline = self.cpus.offline();
        let before = std::mem::replace(&mut self.settings.offline, offline.clone());
        let mut say = Vec::new();
        if let Some(gone) = without(offline.as_ref(), before.as_ref()) {
            say.push(format!(
                "CPU {gone} went offline: what is there is delivered, then its flows go elsewhere"
            ));
        }
        if let Some(back) = without(before.as_ref(), offline.as_ref()) {
            say.push(format!("CPU {back} is online again"));
        }
        if !say.is_empty() {
            self.unapplied = true;
            say.extend(self.apply_again());
        }
        say
    }

    fn apply_again(&mut self) -> Option<String> {
        match self.path.apply(&self.settings) {
            Ok(()) => {
                (self.unapplied, self.changing) = (false, true);
                None
            }
            Err(why) => Some(format!("that is not done yet: {why}")),
        }
    }

    /// To be called ten times a second; returns what is to be said.
    pub(crate) fn tick(&mut self) -> Vec<String> {
        let (changing, failure) = match self.path.tick() {
            Ok(changing) => (changing, None),
            Err(why) => (true, Some(why.to_string())),
        };
        self.changing = changing;
        if self.unapplied && !self.changing {
            // It was said the first time that it failed.
            self.apply_again();
        }
        let news = failure.clone().filter(|_| failure != self.failure);
        self.failure = failure;
        news.into_iter().collect()
    }

    /// Whether everything that was asked for holds.
    pub(crate) fn is_settled(&self) -> bool {
        !self.changing && !self.unapplied
    }

    pub(crate) fn answer(&mut self, request: &Request) -> Reply {
        Reply::Now(match request {
            Request::Status { flows } => {
                Answer::Status(Box::new(super::count::status(self, *flows)))
            }
            Request::Explain { flow } => match flow.parse::<FlowArg>() {
                Ok(flow) => Answer::Explain(Box::new(super::flows::explained(self, &flow.0))),
                Err(why) => Answer::Error(why),
            },
            Request::Set { settings } => match self.set(settings) {
                Ok(()) => return Reply::WhenDone,
                Err(why) => Answer::Error(why),
            },
        })
    }

    fn set(&mut self, settings: &[String]) -> Result<(), String> {
        let wanted = Change::parse(settings)?.onto(&self.settings, &self.cpus)?;
        if wanted != self.settings {
            self.path.apply(&wanted)?;
            (self.settings, self.changing, self.unapplied) = (wanted, true, false);
        }
        Ok(())
    }

    /// What is answered to a change.
    pub(crate) fn changed(&self) -> Answer {
        Answer::Set(Changed { done: self.is_settled(), settings: self.shown() })
    }

    pub(crate) fn shown(&self) -> SettingsShown {
        let Settings { policy, cpus, offline, queue_size, flow_limit, shadow, without_guard } =
            &self.settings;
        SettingsShown {
            policy: policy.to_string(),
            mode: self.path.mode().to_string(),
            cpus: cpus.to_string(),
            offline: offline.as_ref().map(ToString::to_string),
            queue_size: *queue_size,
            flow_limit: *flow_limit,
            shadow: *shadow,
            flow_cnt: self.fixed.flow_cnt,
            sock_flow_entries: self.fixed.sock_flow_entries,
            inner: self.fixed.inner,
            flow_stats: self.fixed.flow_stats,
            order_guard: !without_guard,
        }
    }
}

/// What is in `all` and not in `but`.
fn without(all: Option<&CpuSet>, but: Option<&CpuSet>) -> Option<CpuSet> {
    CpuSet::new(all?.iter().filter(|cpu| but.is_none_or(|but| !but.contains(*cpu))))
}

#[cfg(test)]
#[path = "instance_tests.rs"]
pub(crate) mod tests;
