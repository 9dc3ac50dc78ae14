//! A running instance: its interfaces, its settings, and what becomes of them when the host changes.
//!
//! No I/O here but through [`Datapath`]: what the host looks like is told by the caller
//! ([`Instance::see_links`], [`Instance::see_online`]), and what is to be said comes back as lines.

use super::change::{Change, HostCpus};
use super::count::Former;
use super::datapath::Datapath;
use super::protocol::{Answer, Changed, Request, RxShown, SettingsShown, State};
use crate::explain::flow::FlowArg;
use crate::words::plural;
use rxsteer_host::{Link, Pattern};
use rxsteer_user::core::CpuSet;
use rxsteer_xdp::{Mode, Settings};
use std::path::PathBuf;
use std::time::Instant;

/// Interfaces that one instance steers at most.
pub(crate) const MAX_INTERFACES: usize = 64;
/// Interfaces of which it is remembered at most why they are not steered.
const MAX_REFUSED: usize = 128;

/// An interface that is steered, was, or could not be.
pub(crate) struct Steered<D> {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) tables: u16,
    pub(crate) state: State,
    pub(crate) why: Option<String>,
    /// Of one that is attached.
    pub(crate) device: Option<D>,
    /// What one that is not attached any more had counted.
    pub(crate) counts: RxShown,
    /// Something does not fit. It is looked at once more before anything is said, since an interface that
    /// is being deleted loses its program and its name one after the other.
    doubtful: bool,
}

impl<D> Steered<D> {
    fn is_live(&self) -> bool {
        matches!(self.state, State::Steered | State::Down)
    }

    fn is_gone(&self) -> bool {
        matches!(self.state, State::Deleted | State::Moved)
    }
}

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

    /// Attaches to an interface.
    pub(crate) fn attach(&mut self, link: &Link) -> Result<(), String> {
        if self.interfaces.iter().filter(|known| known.is_live()).count() >= MAX_INTERFACES {
            return Err(format!(
                "{MAX_INTERFACES} interfaces are steered already, the most there can be"
            ));
        }
        let tables = tables(self.path.mode(), link, &self.cpus);
        let device = self.path.attach(link.index, tables)?;
        self.interfaces.push(Steered {
            index: link.index,
            name: link.name.clone(),
            tables,
            state: if link.up { State::Steered } else { State::Down },
            why: None,
            device: Some(device),
            counts: RxShown::default(),
            doubtful: false,
        });
        Ok(())
    }

    /// What is said of an interface that is steered from now on.
    pub(crate) fn steering(&self, name: &str) -> String {
        let known = self.interfaces.iter().find(|known| known.name == name);
        let tables = known.map_or(0, |known| known.tables);
        let mode = self.path.mode();
        let per = match self.path.mode() {
            Mode::Native => "RX queue",
            Mode::Generic => "receiving CPU",
        };
        let settings = &self.settings;
        let how = if settings.shadow { "in shadow, every frame passes: " } else { "" };
        let down =
            if known.is_some_and(|known| known.state == State::Down) { "; it is down" } else { "" };
        format!(
            "steering {name}: {how}{mode}, {}, {} to CPUs {}{down}",
            plural(usize::from(tables), per),
            settings.policy,
            settings.cpus
        )
    }

    /// Tells what interfaces there are now; returns what is to be said about it.
    pub(crate) fn see_links(&mut self, links: &[Link]) -> Vec<String> {
        let mut say = Vec::new();
        for known in &mut self.interfaces {
            if known.is_live() {
                say.extend(see(&mut self.path, &mut self.former, known, links));
            } else if known.state == State::Detached
                && !links.iter().any(|link| link.index == known.index)
            {
                known.state = State::Deleted;
            }
        }
        self.interfaces.retain(|known| {
            known.state != State::Refused || links.iter().any(|link| link.index == known.index)
        });
        self.forget();
        for link in links {
            if self.is_new(link) {
                say.extend(self.welcome(link, links));
            }
        }
        say
    }

    /// Tries interfaces again that a pattern means and that could not be steered: whatever stood against it (an
    /// offload, say) may have been changed since. Says nothing of those that still can't.
    pub(crate) fn try_refused(&mut self, links: &[Link]) -> Vec<String> {
        let is_refused = |known: &Steered<P::Device>| known.state == State::Refused;
        let (refused, rest) =
            std::mem::take(&mut self.interfaces).into_iter().partition(is_refused);
        self.interfaces = rest;
        let mut say = Vec::new();
        for known in refused {
            let link = links.iter().find(|link| link.index == known.index);
            match link.map(|link| (link, self.try_to_attach(link, links))) {
                Some((link, Ok(()))) => say.push(self.steering(&link.name)),
                Some((_, Err(why))) => {
                    self.interfaces.push(Steered { why: Some(why), ..known });
                }
                None => {}
            }
        }
        say
    }

    /// Of interfaces that come and go, the latest that went are remembered.
    fn forget(&mut self) {
        let mut gone = self.interfaces.iter().filter(|known| known.is_gone()).count();
        self.interfaces.retain(|known| {
            let forgotten = known.is_gone() && gone > MAX_INTERFACES;
            gone -= usize::from(forgotten);
            !forgotten
        });
    }

    /// Whether something is to be looked at once more, soon.
    pub(crate) fn has_doubts(&self) -> bool {
        self.interfaces.iter().any(|known| known.doubtful)
    }

    /// Whether interfaces that a pattern means could not be steered.
    pub(crate) fn has_refused(&self) -> bool {
        self.interfaces.iter().any(|known| known.state == State::Refused)
    }

    /// Whether a program was taken off, as far as that can be told without a listing.
    pub(crate) fn lost_a_program(&self) -> bool {
        self.interfaces.iter().any(|known| {
            known.is_live() && known.device.is_some_and(|device| !self.path.is_attached(device))
        })
    }

    fn is_new(&self, link: &Link) -> bool {
        let fits = |pattern: &Pattern| pattern.is_open() && pattern.matches(link);
        let known = |known: &Steered<P::Device>| known.index == link.index && !known.is_gone();
        self.fixed.patterns.iter().any(fits) && !self.interfaces.iter().any(known)
    }

    fn try_to_attach(&mut self, link: &Link, links: &[Link]) -> Result<(), String> {
        (self.fixed.obstacle)(link, links).map_or(Ok(()), Err)?;
        self.attach(link)
    }

    /// Attaches to an interface that appeared.
    fn welcome(&mut self, link: &Link, links: &[Link]) -> Option<String> {
        let is_refused = |known: &&Steered<P::Device>| known.state == State::Refused;
        if self.interfaces.iter().filter(is_refused).count() >= MAX_REFUSED {
            // As much as there is to say of so many was said.
            return None;
        }
        let Err(why) = self.try_to_attach(link, links) else {
            return Some(self.steering(&link.name));
        };
        let said = format!("{} is not steered: {why}", link.name);
        self.interfaces.push(Steered {
            index: link.index,
            name: link.name.clone(),
            tables: 0,
            state: State::Refused,
            why: Some(why),
            device: None,
            counts: RxShown::default(),
            doubtful: false,
        });
        Some(said)
    }

    /// Whether nothing is left that could be steered. An interface that somebody else took the program off is
    /// still there, and that is to be told to who asks.
    pub(crate) fn is_deserted(&self) -> bool {
        !self.fixed.patterns.iter().any(Pattern::is_open)
            && self.interfaces.iter().all(Steered::is_gone)
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
            Err(why) => (true, Some(format!("a change can't be finished, and is tried on: {why}"))),
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

    /// Takes the programs off.
    pub(crate) fn detach_all(&mut self) {
        for known in self.interfaces.iter().filter(|known| known.is_live()) {
            if let Some(device) = known.device {
                self.path.detach(device);
            }
        }
    }
}

/// Flow tables an interface needs.
pub(crate) fn tables(mode: Mode, link: &Link, cpus: &HostCpus) -> u16 {
    match mode {
        Mode::Native => link.max_rx_queues.unwrap_or(1).clamp(1, 1024) as u16,
        Mode::Generic => cpus.possible.highest().get() + 1,
    }
}

/// Looks at an interface that is steered.
fn see<P: Datapath>(
    path: &mut P,
    former: &mut Former,
    known: &mut Steered<P::Device>,
    links: &[Link],
) -> Option<String> {
    let device = known.device?;
    let attached = path.is_attached(device);
    let link = links.iter().find(|link| link.index == known.index);
    let (true, Some(link)) = (attached, link) else {
        if !std::mem::replace(&mut known.doubtful, true) {
            return None;
        }
        known.doubtful = false;
        let (state, why) = match (attached, link) {
            (_, Some(_)) => (
                State::Detached,
                "somebody took the program off, and it is not put back; end and start again to steer it",
            ),
            (true, None) => (State::Moved, "it went to another network namespace"),
            (false, None) => {
                (State::Deleted, "it was deleted, or went to another network namespace")
            }
        };
        // Also where somebody else took the program off: its number is free for another interface then.
        path.detach(device);
        known.device = None;
        known.counts = former.keep(&path.counted(), device);
        (known.state, known.why) = (state, Some(why.to_owned()));
        return Some(format!("{} is no longer steered: {why}", known.name));
    };
    known.doubtful = false;
    let mut said = Vec::new();
    if link.name != known.name {
        said.push(format!("{} is called {} now", known.name, link.name));
        known.name.clone_from(&link.name);
    }
    let state = if link.up { State::Steered } else { State::Down };
    if state != known.state {
        known.state = state;
        said.push(format!("{} is {}", known.name, if link.up { "up again" } else { "down" }));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// What is in `all` and not in `but`.
fn without(all: Option<&CpuSet>, but: Option<&CpuSet>) -> Option<CpuSet> {
    CpuSet::new(all?.iter().filter(|cpu| but.is_none_or(|but| !but.contains(*cpu))))
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
