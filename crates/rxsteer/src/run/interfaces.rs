//! The interfaces of an instance: which are steered, and what becomes of them when links change.

use super::change::HostCpus;
use super::count::Former;
use super::datapath::Datapath;
use super::instance::Instance;
use super::protocol::{RxShown, State};
use crate::words::plural;
use rxsteer_host::{Link, Pattern};
use rxsteer_xdp::Mode;

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

impl<P: Datapath> Instance<P> {
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

#[cfg(test)]
#[path = "interfaces_tests.rs"]
mod tests;
