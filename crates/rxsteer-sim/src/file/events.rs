//! `[[event]]`: events during the run, in the order of time.

use super::error::FileError;
use super::fields::{Fields, Item, Keys};
use super::settings;
use crate::check::MAX_EVENTS;
use crate::scenario::{Event, EventKind, Steering, Traffic};

/// The keys of an event: its time, and one kind of event.
pub(super) const EVENT: Keys = Keys {
    table: "[[event]]",
    keys: &["at", "offline", "online", "speed", "steering", "clock_step", "burst"],
};

/// The additional keys of `speed`.
pub(super) const SPEED: Keys = Keys { table: "[[event]] with 'speed'", keys: &["cpu"] };

/// The additional keys of `burst`.
pub(super) const BURST: Keys = Keys { table: "[[event]] with 'burst'", keys: &["traffic"] };

type Read<T> = Result<T, FileError>;

/// All events. A change of steering keeps the previous values of the settings that it does not name.
pub(super) fn read(top: &Fields<'_>, steering: &Steering, traffic: &[Traffic]) -> Read<Vec<Event>> {
    let Some(list) = top.get("event") else { return Ok(Vec::new()) };
    let items = list.list("a list of tables, [[event]]")?;
    if items.len() > MAX_EVENTS {
        return Err(list.wrong(format!("there are {} events, at most {MAX_EVENTS}", items.len())));
    }
    let mut before = steering.clone();
    let mut events = Vec::new();
    for item in &items {
        let event = one(item, &before, traffic)?;
        if let EventKind::Steering(steering) = &event.what {
            before = steering.clone();
        }
        events.push(event);
    }
    Ok(events)
}

fn one(item: &Item<'_>, before: &Steering, traffic: &[Traffic]) -> Read<Event> {
    let event = Fields::open(item, EVENT.table, &[&EVENT, &SPEED, &BURST])?;
    let at_ns = event.needed("at", "when it happens, e.g. \"5s\"", Item::time_ns)?;
    let kinds: &[&'static str] = &EVENT.keys[1..];
    let given: Vec<&'static str> =
        kinds.iter().copied().filter(|key| event.get(key).is_some()).collect();
    let [kind] = given[..] else {
        return Err(event.wrong(match given[..] {
            [] => format!("the event has no effect; add one of '{}'", kinds.join("', '")),
            _ => {
                format!(
                    "an event has one of these keys, not '{}'; make two events",
                    given.join("', '")
                )
            }
        }));
    };
    for (key, with) in [("cpu", "speed"), ("traffic", "burst")] {
        if let Some(item) = event.get(key).filter(|_| kind != with) {
            return Err(item.wrong(format!("it goes with '{with}', not with '{kind}'")));
        }
    }
    let value = event.get(kind).ok_or_else(|| event.missing(kind, "its value"))?;
    let what = match kind {
        "offline" => EventKind::Offline(value.cpu()?),
        "online" => EventKind::Online(value.cpu()?),
        "speed" => {
            let cpu = event.needed("cpu", "whose speed changes", Item::cpu)?;
            EventKind::Speed(cpu, value.number()?)
        }
        "steering" => EventKind::Steering(settings::changed(&value, before)?),
        "clock_step" => EventKind::ClockStep(value.step_ns()?),
        _ => {
            let burst = traffic_called(&event, traffic)?;
            EventKind::Burst(burst, value.whole()?)
        }
    };
    Ok(Event { at_ns, what })
}

/// The traffic of a burst; it need not be named if there is only one.
fn traffic_called(event: &Fields<'_>, traffic: &[Traffic]) -> Read<usize> {
    let names: Vec<&str> = traffic.iter().map(|one| one.name.as_str()).collect();
    let Some(item) = event.get("traffic") else {
        let what = format!("which it is more of: '{}'", names.join("', '"));
        return if names.len() == 1 { Ok(0) } else { Err(event.missing("traffic", &what)) };
    };
    let name = item.text()?;
    names.iter().position(|one| *one == name).ok_or_else(|| {
        item.wrong(format!("there is no traffic '{name}'; there is '{}'", names.join("', '")))
    })
}
