//! A running instance: its settings, and how it reacts when settings or CPUs change. Its interfaces are in
//! `interfaces.rs`.
//!
//! Both files do I/O only through [`Datapath`]: the caller passes the state of the host ([`Instance::see_links`],
//! [`Instance::see_online`]), and what happened is returned as events.

use super::args::LiveSettings;
use super::args::RfsNamespaces;
use super::change::{HostCpus, changes};
use super::datapath::Datapath;
use super::former::DetachedCounts;
use super::queue_names;
use super::rounds::Rounds;
use super::snapshot::{InterfaceShown, Shown};
use super::steered::Steered;
use rxsteer_host::{Host, Link, Pattern};
use rxsteer_status::protocol::{Answer, Changed};
use rxsteer_status::{EventKind, EventLog, NewEvent, RuleShown, SettingsShown};
use rxsteer_user::core::matching::PacketRule;
use rxsteer_user::core::{CpuSet, ThreadClass};
use rxsteer_user::packet::TunnelKinds;
use rxsteer_xdp::{Latest, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Properties that stay the same while the instance runs.
pub(crate) struct Fixed {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) socket: PathBuf,
    pub(crate) network_namespace: Option<u64>,
    pub(crate) flow_cnt: u32,
    pub(crate) sock_flow_entries: u32,
    pub(crate) rfs_namespaces: RfsNamespaces,
    /// Kernel memory of the BPF maps in bytes, if the kernel reports it.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) inner: bool,
    pub(crate) key_tunnels: TunnelKinds,
    pub(crate) flow_stats: bool,
    pub(crate) started: Instant,
    /// Why this host refuses a scheduling class, if it does.
    pub(crate) threads_refused: fn(ThreadClass) -> Option<String>,
    /// Why an interface cannot be steered, if it cannot.
    pub(crate) obstacle: fn(&Link, &[Link], &Host) -> Option<String>,
    /// Reads the state of the host, which takes long.
    pub(crate) read_host: fn() -> Host,
    /// The RX queues that an interface uses.
    pub(crate) rx_queues: fn(&Link) -> u16,
}

/// A running instance.
pub(crate) struct Instance<P: Datapath> {
    pub(crate) path: P,
    pub(crate) fixed: Fixed,
    pub(crate) settings: Settings,
    pub(crate) cpus: HostCpus,
    pub(crate) interfaces: Vec<Steered<P::Device>>,
    pub(crate) changing: bool,
    /// Whether the settings could not be applied yet, and will be retried.
    unapplied: bool,
    /// The last reported failure.
    failure: Option<String>,
    /// The requests to report once the changes under way are complete.
    requested: Vec<String>,
    /// The events that the next tick returns.
    unreported: Vec<NewEvent>,
    /// The last reported reason why the rings' threads are not in their class.
    pub(super) threads_reported: Option<String>,
    /// The last events, and their limits.
    pub(crate) events: EventLog,
    pub(crate) former: Arc<DetachedCounts>,
    pub(super) attachments: u64,
    /// Whether interfaces that appeared wait until a detached one has left.
    pub(super) has_postponed: bool,
    pub(super) rounds: Arc<Rounds>,
    /// `None` until a thread reads it.
    shown: Option<Latest<Shown<P::Device>>>,
    /// The state of the host, and when it was read.
    pub(crate) seen: Option<(Instant, Host)>,
}

impl<P: Datapath> Instance<P> {
    pub(crate) fn new(path: P, fixed: Fixed, settings: Settings, cpus: HostCpus) -> Instance<P> {
        Instance {
            path,
            fixed,
            settings,
            cpus,
            interfaces: Vec::new(),
            changing: false,
            unapplied: false,
            failure: None,
            requested: Vec::new(),
            unreported: Vec::new(),
            threads_reported: None,
            events: EventLog::new(Instant::now()),
            former: Arc::default(),
            seen: None,
            attachments: 0,
            has_postponed: false,
            rounds: Arc::default(),
            shown: None,
        }
    }

    /// The state for the thread that answers clients; updated whenever something changes.
    pub(crate) fn latest(&mut self) -> Latest<Shown<P::Device>> {
        let latest = Latest::new(self.as_shown());
        self.shown.get_or_insert(latest).clone()
    }

    /// Publishes the present state.
    pub(crate) fn show(&self) {
        if let Some(shown) = &self.shown {
            shown.set(self.as_shown());
        }
    }

    fn as_shown(&self) -> Shown<P::Device> {
        let interfaces = self.interfaces.iter().map(|known| InterfaceShown {
            name: known.name.clone(),
            index: known.index,
            state: known.state,
            why: known
                .why
                .clone()
                .or_else(|| (!known.remarks.is_empty()).then(|| known.remarks.join("; "))),
            tables: known.tables,
            device: known.device,
            since: known.device.map(|_| known.since),
            counts: known.counts.clone(),
        });
        Shown {
            socket: self.fixed.socket.clone(),
            network_namespace: self.fixed.network_namespace,
            started: self.fixed.started,
            memory_bytes: self.fixed.memory_bytes,
            program_id: self.path.program_id(),
            settings: self.settings.clone(),
            settings_shown: self.shown(),
            changing: !self.is_change_done(),
            guarded: !self.path.is_unguarded(),
            threads_problem: self.path.threads_problem(),
            interfaces: interfaces.collect(),
            former: self.former.clone(),
            attachments: self.attachments,
            rounds: self.rounds.clone(),
            events: self.events.latest(),
        }
    }

    /// Notes which CPUs are online now; returns the events.
    pub(crate) fn see_online(&mut self, online: &CpuSet) -> Vec<NewEvent> {
        if self.cpus.online == *online {
            return Vec::new();
        }
        self.cpus.online = online.clone();
        let offline = self.cpus.offline();
        let before = std::mem::replace(&mut self.settings.offline, offline.clone());
        let mut events = Vec::new();
        if let Some(gone) = without(offline.as_ref(), before.as_ref()) {
            let text = format!(
                "CPU {gone} went offline: its frames are delivered, then its flows move to other CPUs"
            );
            let event = NewEvent::new(EventKind::CpuOffline, text);
            events.push(event.with("cpus", gone.to_string()));
            self.requested.push(format!("without CPU {gone}"));
        }
        if let Some(back) = without(before.as_ref(), offline.as_ref()) {
            let event = NewEvent::new(EventKind::CpuOnline, format!("CPU {back} is online again"));
            events.push(event.with("cpus", back.to_string()));
            self.requested.push(format!("with CPU {back}"));
        }
        if !events.is_empty() {
            self.unapplied = true;
            events.extend(self.apply_again());
        }
        events
    }

    fn apply_again(&mut self) -> Option<NewEvent> {
        match self.path.apply(&self.settings) {
            Ok(()) => {
                (self.unapplied, self.changing) = (false, true);
                None
            }
            Err(why) => {
                let text = format!("change still pending: {why}");
                Some(NewEvent::new(EventKind::ChangePending, text))
            }
        }
    }

    /// The event thread calls this ten times a second, and more often while the path has work to continue soon; returns
    /// the events.
    pub(crate) fn tick(&mut self) -> Vec<NewEvent> {
        let (changing, failure) = match self.path.tick() {
            Ok(changing) => (changing, None),
            Err(why) => (true, Some(why.to_string())),
        };
        self.changing = changing;
        self.update_detached();
        if self.unapplied && !self.changing {
            // The failure was reported the first time.
            self.apply_again();
        }
        let news = failure.clone().filter(|_| failure != self.failure);
        self.failure = failure;
        let mut events = std::mem::take(&mut self.unreported);
        events.extend(news.map(|why| NewEvent::new(EventKind::ChangePending, why)));
        events.extend(self.check_threads());
        if self.is_change_done() && !self.requested.is_empty() {
            let changes = std::mem::take(&mut self.requested).join(", ");
            let text =
                format!("{changes}: the change is complete, and all earlier frames are delivered");
            let event = NewEvent::new(EventKind::ChangeDone, text);
            events.push(
                event.with("changes", changes).with("policy", self.settings.policy.to_string()),
            );
        }
        events
    }

    /// The event that the rings' threads are no longer in their class, or are in it again.
    fn check_threads(&mut self) -> Option<NewEvent> {
        let problem = self.path.threads_problem();
        if problem == self.threads_reported {
            return None;
        }
        self.threads_reported.clone_from(&problem);
        let text = problem
            .unwrap_or_else(|| format!("the rings' threads are at {}", self.settings.threads));
        Some(NewEvent::new(EventKind::ThreadsProblem, text))
    }

    /// Whether all requested changes are complete.
    pub(crate) fn is_change_done(&self) -> bool {
        !self.changing && !self.unapplied
    }

    /// Begins a change of settings, or returns why it cannot be made.
    pub(crate) fn set(&mut self, settings: &[String]) -> Result<(), String> {
        let wanted = LiveSettings::parse(settings)
            .and_then(|settings| settings.onto(&self.settings, &self.cpus));
        wanted.and_then(|wanted| self.change_to(wanted)).inspect_err(|why| {
            let text = format!("{} is refused: {why}", settings.join(" "));
            let event = NewEvent::new(EventKind::ChangeRefused, text);
            self.unreported.push(event.with("settings", settings.to_vec()));
        })
    }

    /// Begins the change to other settings, or returns why they are refused.
    pub(super) fn change_to(&mut self, wanted: Settings) -> Result<(), String> {
        let (now, then) = (&self.settings, &wanted);
        PacketRule::check_headers(&then.packet_rules, self.fixed.inner)
            .map_err(|why| format!("rule={why}"))?;
        if (&now.policy, &now.rps_maps) != (&then.policy, &then.rps_maps) {
            queue_names::check(&wanted, Some(now), &self.there(), &self.fixed.patterns)?;
        }
        if wanted.threads != self.settings.threads
            && let Some(why) = (self.fixed.threads_refused)(wanted.threads)
        {
            return Err(format!("threads={}: {why}", wanted.threads));
        }
        if wanted != self.settings {
            self.path.apply(&wanted)?;
            self.requested.extend(changes(&self.settings, &wanted));
            (self.settings, self.changing, self.unapplied) = (wanted, true, false);
        }
        Ok(())
    }

    /// Withdraws a change that takes too long; returns the answer to it.
    pub(crate) fn give_up(&mut self) -> Answer {
        let Some(in_force) = self.path.settings_in_force() else { return self.changed() };
        let in_force = Settings { offline: self.cpus.offline(), ..in_force };
        if self.path.apply(&in_force).is_err() {
            // A CPU went offline meanwhile, so the former settings are no longer possible.
            return self.changed();
        }
        (self.settings, self.changing, self.unapplied) = (in_force, true, false);
        let why = self.failure.clone().unwrap_or_else(|| {
            "frames that were sent under the present settings still wait in a CPU's queue"
                .to_owned()
        });
        let text = format!(
            "the change could not be made in time and was withdrawn: {why}. The settings are unchanged; try again, \
             or with less load"
        );
        let changes = std::mem::take(&mut self.requested).join(", ");
        let event = NewEvent::new(EventKind::ChangeWithdrawn, format!("{changes}: {text}"));
        self.unreported.push(event.with("changes", changes));
        Answer::Error(text)
    }

    /// Which of these settings, requested before, another change has replaced.
    pub(crate) fn replaced(&self, settings: &[String]) -> Option<String> {
        let again = LiveSettings::parse(settings).and_then(|s| s.onto(&self.settings, &self.cpus));
        let differ = changes(&again.ok()?, &self.settings);
        (!differ.is_empty()).then(|| {
            format!(
                "another change replaced this one before it was complete: {}",
                differ.join(", ")
            )
        })
    }

    /// The answer to a change.
    pub(crate) fn changed(&self) -> Answer {
        let holds = self.path.settings_in_force().is_none() && !self.unapplied;
        Answer::Set(Changed {
            done: self.is_change_done(),
            holds,
            settings: Box::new(self.shown()),
        })
    }

    pub(crate) fn shown(&self) -> SettingsShown {
        let Settings {
            policy,
            cpus,
            packet_rules: _,
            rps_maps,
            fallback,
            rfs_cpus,
            offline,
            queue_size,
            flow_limit,
            threads,
            shadow,
            without_guard,
        } = &self.settings;
        SettingsShown {
            rules: self.path.rule_hits().into_iter().map(RuleShown::from).collect(),
            policy: policy.to_string(),
            mode: self.path.mode().to_string(),
            cpus: cpus.to_string(),
            rps_maps: rps_maps.iter().map(|(name, cpus)| format!("{name}={cpus}")).collect(),
            fallback: fallback.to_string(),
            rfs_cpus: rfs_cpus.as_ref().map(ToString::to_string),
            offline: offline.as_ref().map(ToString::to_string),
            queue_size: *queue_size,
            flow_limit: *flow_limit,
            threads: threads.to_string(),
            shadow: *shadow,
            flow_cnt: self.fixed.flow_cnt,
            sock_flow_entries: self.fixed.sock_flow_entries,
            rfs_namespaces: Some(self.fixed.rfs_namespaces.name().to_owned()),
            inner: self.fixed.inner,
            key_tunnels: self.fixed.key_tunnels.to_string(),
            flow_stats: self.fixed.flow_stats,
            order_guard: !without_guard,
        }
    }
}

/// The CPUs that are in `all` and not in `but`.
fn without(all: Option<&CpuSet>, but: Option<&CpuSet>) -> Option<CpuSet> {
    CpuSet::new(all?.iter().filter(|cpu| but.is_none_or(|but| !but.contains(*cpu))))
}

#[cfg(test)]
#[path = "instance_tests.rs"]
pub(crate) mod tests;
