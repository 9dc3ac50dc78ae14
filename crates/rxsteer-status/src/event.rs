//! What happened to an instance: the kinds of events, the last of them, and a limit for each kind.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

macro_rules! kinds {
    ($($variant:ident, $name:literal, $audience:ident, $help:literal;)*) => {
        /// The kind of an event: the only list of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind { $(#[doc = $help] $variant),* }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$variant),*];

            /// Its name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(EventKind::$variant => $name),* }
            }

            /// The meaning, in one sentence.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(EventKind::$variant => $help),* }
            }

            /// Who receives it without `--events`.
            #[must_use]
            pub const fn audience(self) -> Audience {
                match self { $(EventKind::$variant => Audience::$audience),* }
            }
        }
    };
}

/// Who receives an event without `--events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Everyone: a message on standard error.
    Everyone,
    /// The status and the log of events only.
    Log,
}

kinds! {
    InterfaceSteered, "interface_steered", Everyone, "An interface is steered from now on.";
    InterfaceRefused, "interface_refused", Everyone, "An interface matches a pattern and can't be steered.";
    InterfaceGone, "interface_gone", Everyone, "An interface is no longer steered.";
    InterfaceChanged, "interface_changed", Everyone, "An interface has another name, or went up or down.";
    InterfaceWarning, "interface_warning", Everyone, "An interface is steered, but perhaps not as expected.";
    CpuOffline, "cpu_offline", Everyone, "CPUs went offline.";
    CpuOnline, "cpu_online", Everyone, "CPUs are online again.";
    ChangeDone, "change_done", Log, "A change of settings is active, and all earlier frames are delivered.";
    ChangePending, "change_pending", Everyone, "A change could not be made yet; it is tried again.";
    ChangeRefused, "change_refused", Log, "A change of settings was refused.";
    ChangeWithdrawn, "change_withdrawn", Log, "A change took too long and was withdrawn.";
    Reloaded, "reloaded", Everyone, "The settings file was read again.";
    ReloadRefused, "reload_refused", Everyone, "The settings file was read again and refused.";
    ThreadsProblem, "threads_problem", Everyone, "The rings' threads are not in the scheduling class of the settings.";
    Moves, "moves", Log, "How many packets moved their flow to another CPU, and how many were deferred.";
    Drops, "drops", Log, "A CPU's ring, the flow limit or a lack of memory dropped many packets.";
    Warning, "warning", Everyone, "Another warning.";
    Ended, "ended", Everyone, "The instance ends because nothing is left to steer.";
    Suppressed, "suppressed", Everyone, "Too many events of one kind, which were left out.";
}

/// Something that happened to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number since the start, from 1. A gap means events that were suppressed or are no longer kept.
    pub number: u64,
    /// The time, in nanoseconds of Unix time.
    pub time_ns: u64,
    /// The name of its kind ([`EventKind::name`]); a newer version may send an unknown one.
    pub kind: String,
    /// What happened, why, and what to do, as text.
    pub text: String,
    /// The names and numbers in the text, e.g. `interface`, `cpu`, `packets`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

impl Event {
    /// Its kind, if this version knows it.
    #[must_use]
    pub fn known_kind(&self) -> Option<EventKind> {
        EventKind::ALL.iter().copied().find(|kind| kind.name() == self.kind)
    }
}

/// An event before it has a number and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// What happened, why, and what to do, as text.
    pub text: String,
    /// See [`Event::fields`].
    pub fields: Map<String, Value>,
}

impl NewEvent {
    /// An event without fields.
    #[must_use]
    pub fn new(kind: EventKind, text: impl Into<String>) -> NewEvent {
        NewEvent { kind, text: text.into(), fields: Map::new() }
    }

    /// The same with one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> NewEvent {
        self.fields.insert(name.to_owned(), value.into());
        self
    }
}

/// The number of events that are kept.
pub const KEPT: usize = 100;
/// How many events of one kind may occur at once.
const BURST: u32 = 100;
/// After a burst, one event of a kind is accepted per this time.
const EVERY: Duration = Duration::from_secs(1);
/// How long suppressed events are counted until they are reported.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// The limit of one kind, and what it suppressed.
#[derive(Clone, Copy, Debug)]
struct Limit {
    left: u32,
    /// When the last event was added to `left`.
    filled: Instant,
    suppressed: u64,
    /// When the first of `suppressed` came.
    since: Instant,
}

impl Limit {
    fn new(now: Instant) -> Limit {
        Limit { left: BURST, filled: now, suppressed: 0, since: now }
    }

    /// Whether one more may occur now; counts it in either case.
    fn allow(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.filled).as_nanos() / EVERY.as_nanos();
        let more = u32::try_from(more).unwrap_or(u32::MAX).min(BURST);
        self.left = (self.left + more).min(BURST);
        self.filled = if self.left == BURST { now } else { self.filled + EVERY * more };
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        if self.suppressed == 0 {
            self.since = now;
        }
        self.suppressed += 1;
        false
    }
}

/// The last events of an instance. At most 100 of a kind are accepted at once, then one a second. The others are
/// counted, and an event of the kind [`EventKind::Suppressed`] reports their number.
#[derive(Debug)]
pub struct EventLog {
    kept: VecDeque<Event>,
    /// A copy of `kept` for readers.
    latest: Arc<[Event]>,
    /// How many happened.
    number: u64,
    /// By kind.
    limits: Vec<Limit>,
}

impl EventLog {
    /// A log without events.
    #[must_use]
    pub fn new(now: Instant) -> EventLog {
        EventLog {
            kept: VecDeque::new(),
            latest: Arc::default(),
            number: 0,
            limits: vec![Limit::new(now); EventKind::ALL.len()],
        }
    }

    /// Adds what happened; returns it as an event, unless there are too many of its kind.
    pub fn add(&mut self, event: NewEvent, now: Instant) -> Option<Event> {
        self.number += 1;
        let is_allowed = self.limits[event.kind as usize].allow(now);
        is_allowed.then(|| self.keep(event))
    }

    /// Reports what was suppressed some time ago; call it once a second or so.
    pub fn overdue(&mut self, now: Instant) -> Vec<Event> {
        let is_due = |limit: &Limit| {
            limit.suppressed > 0 && now.saturating_duration_since(limit.since) >= REPORT_AFTER
        };
        self.report(now, is_due)
    }

    /// Reports everything that was suppressed: at the end.
    pub fn rest(&mut self, now: Instant) -> Vec<Event> {
        self.report(now, |limit| limit.suppressed > 0)
    }

    fn report(&mut self, now: Instant, is_due: impl Fn(&Limit) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for kind in EventKind::ALL {
            let limit = &mut self.limits[*kind as usize];
            if !is_due(limit) {
                continue;
            }
            let count = std::mem::take(&mut limit.suppressed);
            let seconds = now.saturating_duration_since(limit.since).as_secs().max(1);
            let text = format!(
                "{count} events of the kind {} were left out in the last {seconds} s: the limit for each kind is \
                 {BURST} at once, then one per second",
                kind.name()
            );
            let event = NewEvent::new(EventKind::Suppressed, text);
            self.number += 1;
            events.push(self.keep(event.with("of", kind.name()).with("count", count)));
        }
        events
    }

    fn keep(&mut self, event: NewEvent) -> Event {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let event = Event {
            number: self.number,
            time_ns: time.as_nanos() as u64,
            kind: event.kind.name().to_owned(),
            text: event.text,
            fields: event.fields,
        };
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(event.clone());
        self.latest = self.kept.iter().cloned().collect();
        event
    }

    /// The last events, the latest last.
    #[must_use]
    pub fn latest(&self) -> Arc<[Event]> {
        self.latest.clone()
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
