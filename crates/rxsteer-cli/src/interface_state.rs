//! Tracks an interface while a command runs: its name and state, and the event of a change.

use rxsteer_host::Link;
use rxsteer_status::{EventKind, NewEvent, State};

/// The name and the state of an interface. Its index identifies it, so it may be renamed. Without an index it is not an
/// interface, and without links its state is unknown; both count as unchanged.
pub(crate) fn of(name: &str, index: Option<u32>, links: Option<&[Link]>) -> (String, State) {
    let (Some(index), Some(links)) = (index, links) else {
        return (name.to_owned(), State::Steered);
    };
    match links.iter().find(|link| link.index == index) {
        None => (name.to_owned(), State::Deleted),
        Some(link) if link.up => (link.name.clone(), State::Steered),
        Some(link) => (link.name.clone(), State::Down),
    }
}

/// The event of a change, if there was one.
pub(crate) fn changed(before: &(String, State), now: &(String, State)) -> Option<NewEvent> {
    let ((was_called, was), (name, state)) = (before, now);
    let (kind, text) = match state {
        _ if before == now => return None,
        State::Deleted => {
            (EventKind::InterfaceGone, format!("{was_called} is gone: no packets come from it"))
        }
        _ if was_called != name => {
            (EventKind::InterfaceChanged, format!("{was_called} was renamed to {name}"))
        }
        State::Down => {
            (EventKind::InterfaceChanged, format!("{name} is down: no packets come from it"))
        }
        _ if *was == State::Deleted => (EventKind::InterfaceChanged, format!("{name} is back")),
        _ => (EventKind::InterfaceChanged, format!("{name} is up")),
    };
    Some(NewEvent::new(kind, text).with("interface", name.clone()).with("state", state.name()))
}
