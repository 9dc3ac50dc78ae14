//! The interfaces of an instance: which ones are steered, and how the instance reacts when links change.

use super::change::HostCpus;
use super::datapath::Datapath;
use super::instance::Instance;
use super::queue_names;
use super::steered::{Retry, Steered};
use crate::words::plural;
use rxsteer_host::{Link, Pattern};
use rxsteer_status::{EventKind, NewEvent, State};
use rxsteer_user::core::counters::LiveCounter;
use rxsteer_xdp::{Mode, Settings};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most interfaces that one instance steers.
pub(crate) const MAX_INTERFACES: usize = 64;
/// The most interfaces for which the reason of a refusal is kept.
const MAX_REFUSED: usize = 128;
/// How long the state of the host counts as current. Only interfaces are read each time.
const HOST_STAYS: Duration = Duration::from_secs(3);

/// Why an interface that does not exist is not steered.
const DELETED: &str = "it was deleted, or moved to another network namespace";

impl<P: Datapath> Instance<P> {
    /// Attaches to an interface.
    pub(crate) fn attach(&mut self, link: &Link) -> Result<(), String> {
        if self.interfaces.iter().filter(|known| known.is_live()).count() >= MAX_INTERFACES {
            return Err(format!(
                "{MAX_INTERFACES} interfaces are steered already, which is the limit"
            ));
        }
        let named = |pattern: &Pattern| !pattern.is_open() && pattern.matches(link);
        let is_named = self.fixed.patterns.iter().any(named);
        let tables = tables(self.path.mode(), link, &self.cpus, is_named);
        let partial = link.may_leave_checksums();
        // The former state is published first, since counts may reuse its number now.
        self.show();
        self.attachments += 1;
        let device = self.path.attach(link.index, &link.name, tables, partial)?;
        self.interfaces.push(Steered {
            index: link.index,
            name: link.name.clone(),
            tables,
            rx_queues: (self.fixed.rx_queues)(link),
            state: if link.up { State::Steered } else { State::Down },
            why: None,
            device: Some(device),
            since: Instant::now(),
            counts: Arc::default(),
            needs_recheck: false,
            reported_partial: false,
            address: link.address.clone(),
            remarks: Vec::new(),
            retry: None,
        });
        self.join_rows();
        Ok(())
    }

    /// Keeps one row per name: an interface that was created again, whether steered or refused, replaces the former
    /// one.
    fn join_rows(&mut self) {
        let there = self.interfaces.iter().filter(|known| known.exists());
        let there: Vec<String> = there.map(|known| known.name.clone()).collect();
        let is_over = |known: &mut Steered<P::Device>| {
            known.is_gone() && known.device.is_none() && there.contains(&known.name)
        };
        let gone: Vec<_> = self.interfaces.extract_if(.., is_over).collect();
        for gone in gone {
            let is_successor =
                |known: &&mut Steered<P::Device>| known.exists() && known.name == gone.name;
            if let Some(successor) = self.interfaces.iter_mut().find(is_successor) {
                successor.inherit(&gone);
            }
        }
    }

    /// The interfaces that are steered now, with the fields for sysfs.
    pub(crate) fn live_links(&self) -> Vec<Link> {
        let live = self.interfaces.iter().filter(|known| known.is_live());
        let link = |known: &Steered<P::Device>| Link {
            index: known.index,
            name: known.name.clone(),
            address: known.address.clone(),
            ..Link::default()
        };
        live.map(link).collect()
    }

    /// Notes an interface's RX queues: their number, and those that the kernel steers itself. Both may have changed
    /// since the interface was attached. Returns the events.
    pub(crate) fn see_queues(&mut self, index: u32, used: u32, by_kernel: &[u32]) -> Vec<NewEvent> {
        let is_native = self.path.mode() == Mode::Native;
        let is_it = |known: &&mut Steered<P::Device>| known.index == index && known.is_live();
        let Some(known) = self.interfaces.iter_mut().find(is_it) else { return Vec::new() };
        let mut remarks = Vec::new();
        if !by_kernel.is_empty() {
            let queues: Vec<String> = by_kernel.iter().map(ToString::to_string).collect();
            remarks.push(format!(
                "the kernel's RPS is on for RX queue {}: it moves packets to other CPUs again after rxsteer, so the \
                 kernel determines where and in which order they are processed. To steer by rxsteer alone: \
                 rxsteer host apply {} --off",
                queues.join(", "),
                known.name
            ));
        }
        if is_native && used > u32::from(known.tables) {
            remarks.push(format!(
                "it has {used} RX queues now, and flow tables for {}: frames of the others pass and are not steered. \
                 Restart rxsteer to steer them, too",
                known.tables
            ));
        }
        let before = std::mem::replace(&mut known.remarks, remarks);
        let new = known.remarks.iter().filter(|remark| !before.contains(remark));
        let warning = |text: &str| warning(&known.name, text);
        let mut events: Vec<NewEvent> = new.map(|remark| warning(remark)).collect();
        if known.remarks.is_empty() && !before.is_empty() {
            events.push(warning("its RX queues are steered by rxsteer alone again"));
        }
        events
    }

    /// Finds interfaces that receive frames without a complete checksum; reports each of them once.
    pub(crate) fn check_checksums(&mut self) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for known in self.interfaces.iter_mut().filter(|known| !known.reported_partial) {
            let count = known.device.map_or(0, |device| self.path.partial_checksums(device));
            if count > 0 {
                known.reported_partial = true;
                let text = format!(
                    "{} came without a complete TCP, UDP or SCTP checksum: the sender has checksum offload on. Such \
                     frames pass and are not steered, since receivers would drop them after a redirect; rxsteer status \
                     counts them. To steer them: ethtool -K PEER tx off, where PEER is the interface that sends them (a \
                     veth's other end, in its network namespace; rxsteer peers finds and switches those)",
                    plural(usize::try_from(count).unwrap_or(usize::MAX), "frame")
                );
                events.push(warning(&known.name, &text));
            }
        }
        events
    }

    /// The event of an interface that is steered from now on.
    pub(crate) fn steering(&self, name: &str) -> NewEvent {
        steered(name, self.steering_text(name))
    }

    fn steering_text(&self, name: &str) -> String {
        let known = self.interfaces.iter().find(|known| known.name == name);
        let mode = self.path.mode();
        let (count, of) = match self.path.mode() {
            Mode::Native => (known.map_or(0, |known| known.rx_queues), "RX queue"),
            Mode::Generic => (known.map_or(0, |known| known.tables), "receiving CPU"),
        };
        let settings = &self.settings;
        let how = if settings.shadow { "in shadow, every frame passes: " } else { "" };
        let down =
            if known.is_some_and(|known| known.state == State::Down) { "; it is down" } else { "" };
        format!(
            "steering {name}: {how}{mode}, {}, {} to CPUs {}{down}",
            plural(usize::from(count), of),
            settings.policy,
            settings.cpus
        )
    }

    /// The event of an interface that appeared, with the queues in the settings that it does not have.
    fn steering_from_now(&self, link: &Link) -> NewEvent {
        let there = (link.name.as_str(), (self.fixed.rx_queues)(link));
        let missing = queue_names::missing_queues(&self.settings, there);
        let text = self.steering_text(&link.name);
        steered(
            &link.name,
            missing.map_or_else(|| text.clone(), |missing| format!("{text}; {missing}")),
        )
    }

    /// The interfaces that are steered, with the number of RX queues that they use.
    pub(crate) fn there(&self) -> Vec<queue_names::InterfaceQueues<'_>> {
        let live = self.interfaces.iter().filter(|known| known.is_live());
        live.map(|known| (known.name.as_str(), known.rx_queues)).collect()
    }

    /// Notes which interfaces exist now; returns the events.
    pub(crate) fn see_links(&mut self, links: &[Link], now: Instant) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for known in &mut self.interfaces {
            if known.is_live() {
                events.extend(see(&mut self.path, &self.settings, known, links));
                let link = links.iter().find(|link| link.index == known.index);
                known.rx_queues = link.map_or(known.rx_queues, self.fixed.rx_queues);
            } else if matches!(known.state, State::Detached | State::Refused)
                && !links.iter().any(|link| link.index == known.index)
            {
                if known.state == State::Refused {
                    (known.why, known.retry) = (Some(DELETED.to_owned()), None);
                }
                known.state = State::Deleted;
            }
        }
        self.update_detached();
        // An interface that was refused, and has no former interface, has nothing to show.
        self.interfaces.retain(|known| {
            !known.is_gone() || known.tables > 0 || known.counts.get(LiveCounter::Received) > 0
        });
        self.join_rows();
        self.forget();
        // A number and flow tables may be free a moment later.
        self.has_postponed = self.is_detaching();
        if self.has_postponed {
            return events;
        }
        for link in links {
            if self.is_new(link) {
                events.extend(self.attach_new(link, links, now));
            }
        }
        events
    }

    /// Keeps the counts of detached interfaces once they are complete.
    pub(crate) fn update_detached(&mut self) {
        for known in self.interfaces.iter_mut().filter(|known| !known.is_live()) {
            if let Some(device) =
                known.device.take_if(|device| self.path.is_fully_detached(*device))
            {
                let counts = Arc::make_mut(&mut self.former).keep(&self.path.received(device));
                Arc::make_mut(&mut known.counts).merge(&counts);
                self.attachments += 1;
            }
        }
    }

    /// Retries one refused interface that matches a pattern, if its time has come: the reason for the refusal (an
    /// offload, for example) may be gone. Returns no event if the interface is still refused. Only one interface is
    /// tried at a time, since this thread also makes the ticks that keep flows moving.
    pub(crate) fn retry(&mut self, links: &[Link], now: Instant) -> Option<NewEvent> {
        let place = self.next_retry(now)?;
        let index = self.interfaces[place].index;
        let link = links.iter().find(|link| link.index == index)?;
        let known = self.interfaces.remove(place);
        match self.try_to_attach(link, links, now) {
            Ok(()) => {
                let is_it = |row: &&mut Steered<P::Device>| row.index == index && row.is_live();
                if let Some(row) = self.interfaces.iter_mut().find(is_it) {
                    row.inherit(&known);
                }
                Some(self.steering_from_now(link))
            }
            Err(why) => {
                let retry = known.retry.map(|retry| retry.next(now));
                self.interfaces.insert(place, Steered { why: Some(why), retry, ..known });
                None
            }
        }
    }

    /// Keeps only the latest of the former interfaces.
    fn forget(&mut self) {
        let mut gone = self.interfaces.iter().filter(|known| known.is_gone()).count();
        self.interfaces.retain(|known| {
            let forgotten = known.is_gone() && known.device.is_none() && gone > MAX_INTERFACES;
            gone -= usize::from(forgotten);
            !forgotten
        });
    }

    /// Whether an interface must be read once more soon.
    pub(crate) fn needs_recheck(&self) -> bool {
        self.interfaces.iter().any(|known| known.needs_recheck)
    }

    /// Whether the interfaces for which others were postponed have left.
    pub(crate) fn has_room_again(&self) -> bool {
        self.has_postponed && !self.is_detaching()
    }

    /// Whether a detached interface's counts are not complete.
    fn is_detaching(&self) -> bool {
        self.interfaces.iter().any(|known| !known.is_live() && known.device.is_some())
    }

    /// Whether a refused interface is due for another try.
    pub(crate) fn has_retry(&self, now: Instant) -> bool {
        self.next_retry(now).is_some()
    }

    /// The refused interface that has been due for the longest time.
    fn next_retry(&self, now: Instant) -> Option<usize> {
        let due = (0..).zip(&self.interfaces).filter_map(|(place, known)| {
            let retry = known.retry.filter(|retry| retry.at <= now)?;
            Some((retry.at, place))
        });
        due.min().map(|(_, place)| place)
    }

    /// Whether a program was detached, as far as that is known without listing interfaces.
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

    fn try_to_attach(&mut self, link: &Link, links: &[Link], now: Instant) -> Result<(), String> {
        let host = match self.seen.take() {
            Some((seen, host)) if now < seen + HOST_STAYS => (seen, host),
            _ => (now, (self.fixed.read_host)()),
        };
        let obstacle = (self.fixed.obstacle)(link, links, &host.1);
        self.seen = Some(host);
        obstacle.map_or(Ok(()), Err)?;
        self.attach(link)
    }

    /// Attaches to an interface that appeared.
    fn attach_new(&mut self, link: &Link, links: &[Link], now: Instant) -> Option<NewEvent> {
        let is_refused = |known: &&Steered<P::Device>| known.state == State::Refused;
        if self.interfaces.iter().filter(is_refused).count() >= MAX_REFUSED {
            // Enough interfaces were already reported as refused.
            return None;
        }
        let Err(why) = self.try_to_attach(link, links, now) else {
            return Some(self.steering_from_now(link));
        };
        let text = format!("{} is not steered: {why}", link.name);
        let event = NewEvent::new(EventKind::InterfaceRefused, text)
            .with("interface", link.name.clone())
            .with("why", why.clone());
        self.interfaces.push(Steered {
            index: link.index,
            name: link.name.clone(),
            tables: 0,
            rx_queues: 0,
            state: State::Refused,
            why: Some(why),
            device: None,
            since: now,
            counts: Arc::default(),
            needs_recheck: false,
            reported_partial: false,
            address: link.address.clone(),
            remarks: Vec::new(),
            retry: Some(Retry::first(now)),
        });
        self.join_rows();
        Some(event)
    }

    /// Whether nothing is left to steer: no pattern can match a new interface, and the named interfaces are gone, or
    /// another process detached the program from them.
    pub(crate) fn has_nothing_to_steer(&self) -> bool {
        let is_over =
            |known: &Steered<P::Device>| known.is_gone() || known.state == State::Detached;
        !self.fixed.patterns.iter().any(Pattern::is_open) && self.interfaces.iter().all(is_over)
    }

    /// Detaches all programs.
    pub(crate) fn detach_all(&mut self) {
        for known in self.interfaces.iter().filter(|known| known.is_live()) {
            if let Some(device) = known.device {
                self.path.detach(device);
            }
        }
    }
}

/// The number of flow tables for an interface: one for each RX queue in use. A named interface also gets tables for
/// queues that may be used later (ethtool -L), if there are CPUs for them.
pub(crate) fn tables(mode: Mode, link: &Link, cpus: &HostCpus, is_named: bool) -> u16 {
    let most = link.max_rx_queues.unwrap_or(1);
    let used = link.rx_queues().unwrap_or(most);
    let later = if is_named { most.min(cpus.possible.len() as u32) } else { 0 };
    let queues = used.max(later).clamp(1, 1024) as u16;
    match mode {
        Mode::Native => queues,
        // Flow tables are per CPU; the settings of single RX queues are per queue.
        Mode::Generic => queues.max(cpus.possible.highest().get() + 1),
    }
}

/// Checks an interface that is steered.
fn see<P: Datapath>(
    path: &mut P,
    settings: &Settings,
    known: &mut Steered<P::Device>,
    links: &[Link],
) -> Option<NewEvent> {
    let device = known.device?;
    let attached = path.is_attached(device);
    let link = links.iter().find(|link| link.index == known.index);
    let (true, Some(link)) = (attached, link) else {
        if !std::mem::replace(&mut known.needs_recheck, true) {
            return None;
        }
        known.needs_recheck = false;
        let (state, why) = match (attached, link) {
            (_, Some(_)) => (
                State::Detached,
                "another process detached its XDP program; restart rxsteer to steer it again",
            ),
            (true, None) => (State::Moved, "it moved to another network namespace"),
            (false, None) => (State::Deleted, DELETED),
        };
        // This is also done if another process detached the program, since its number is then free for another
        // interface.
        path.detach(device);
        (known.state, known.why) = (state, Some(why.to_owned()));
        let text = format!("{} is no longer steered: {why}", known.name);
        let event = NewEvent::new(EventKind::InterfaceGone, text);
        return Some(event.with("interface", known.name.clone()).with("state", state.name()));
    };
    known.needs_recheck = false;
    known.address.clone_from(&link.address);
    let mut lines = Vec::new();
    if link.name != known.name {
        lines.push(format!("{} was renamed to {}", known.name, link.name));
        lines.extend(queue_names::of_former_name(settings, &known.name));
        known.name.clone_from(&link.name);
        path.rename(device, &link.name);
    }
    let state = if link.up { State::Steered } else { State::Down };
    if state != known.state {
        known.state = state;
        lines.push(format!("{} is {}", known.name, if link.up { "up again" } else { "down" }));
    }
    (!lines.is_empty()).then(|| {
        let event = NewEvent::new(EventKind::InterfaceChanged, lines.join("; "));
        event.with("interface", known.name.clone()).with("state", known.state.name())
    })
}

fn steered(name: &str, text: String) -> NewEvent {
    NewEvent::new(EventKind::InterfaceSteered, text).with("interface", name)
}

fn warning(name: &str, text: &str) -> NewEvent {
    let event = NewEvent::new(EventKind::InterfaceWarning, format!("{name}: {text}"));
    event.with("interface", name)
}

#[cfg(test)]
#[path = "interfaces_tests.rs"]
mod tests;
