//! The interfaces that the kernel steers, tracked by their indices while `rxsteer run --fallback` runs.

use crate::interface_state;
use rxsteer_host::Link;
use rxsteer_status::{NewEvent, State};

/// Interfaces, with their names and states at the last update.
pub(super) struct Followed(Vec<(u32, (String, State))>);

impl Followed {
    /// The interfaces with these names, in their present state; those that do not exist are left out.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a String>, links: &[Link]) -> Followed {
        let follow = |name: &String| {
            let index = links.iter().find(|link| link.name == *name)?.index;
            Some((index, interface_state::of(name, Some(index), Some(links))))
        };
        Followed(names.filter_map(follow).collect())
    }

    /// What happened to them since the last update.
    pub(super) fn update(&mut self, links: &[Link]) -> Vec<NewEvent> {
        let changed = |(index, before): &mut (u32, (String, State))| {
            let now = interface_state::of(&before.0, Some(*index), Some(links));
            let event = interface_state::changed(before, &now);
            *before = now;
            event
        };
        self.0.iter_mut().filter_map(changed).collect()
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, (_, state))| *state == State::Deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_status::EventKind;

    fn link(index: u32, name: &str, up: bool) -> Link {
        Link { index, name: name.to_owned(), up, ..Link::default() }
    }

    #[test]
    fn interfaces_are_followed_by_index_until_none_is_left() {
        let names = ["eth0".to_owned(), "eth1".to_owned(), "gone0".to_owned()];
        let (eth0, eth1) = (link(2, "eth0", true), link(3, "eth1", true));
        let mut followed = Followed::new(names.iter(), &[eth0.clone(), eth1.clone()]);
        let mut update = |links: &[Link]| {
            let events = followed.update(links);
            let texts = events.into_iter().map(|event| (event.kind, event.text));
            (texts.collect::<Vec<_>>(), followed.is_empty())
        };
        assert_eq!(update(&[eth0, eth1.clone()]), (vec![], false));
        let changed = |text: &str| (EventKind::InterfaceChanged, text.to_owned());
        let gone = |text: &str| (EventKind::InterfaceGone, text.to_owned());
        assert_eq!(
            update(&[link(2, "lan0", true), link(3, "eth1", false)]),
            (
                vec![
                    changed("eth0 was renamed to lan0"),
                    changed("eth1 is down: no packets come from it"),
                ],
                false
            )
        );
        // Another interface may have the name.
        assert_eq!(
            update(&[link(9, "lan0", true), eth1]),
            (vec![gone("lan0 is gone: no packets come from it"), changed("eth1 is up")], false)
        );
        assert_eq!(update(&[]), (vec![gone("eth1 is gone: no packets come from it")], true));
        assert_eq!(update(&[]), (vec![], true), "it is reported once");
    }
}
