//! The state of the view: the last status of the instance, what changed since the previous reading, and what keys have
//! selected. This file does no I/O and reads no clock.

use crate::cpus::{self, CpuRow};
use crate::flows::{FlowRow, Sort, Tracker};
use crate::style::Display;
use crate::text::clean;
use ratatui::layout::Rect;
use rxsteer_core::counters::LiveCounter;
use rxsteer_host::Load;
use rxsteer_status::{Rates, Status};
use std::time::Duration;

/// A reading of an instance and of its host.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The instance's status.
    pub status: Status,
    /// What the host's CPUs have done until now; `None` if the kernel does not report it.
    pub load: Option<Load>,
    /// Which of the instances it is.
    pub position: Position,
}

/// The position of the shown instance among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its place, from 1.
    pub number: usize,
    /// How many there are.
    pub count: usize,
}

/// The connection to the instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Connection {
    /// No answer yet.
    #[default]
    Waiting,
    /// The last query was answered.
    Up,
    /// It does not answer; holds the reason.
    Lost(String),
    /// It ended, as expected; holds how.
    Ended(String),
}

/// The panels with rows to scroll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    #[default]
    Cpus,
    Flows,
    Events,
}

/// What keys have selected.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) sort: Sort,
    /// Only flows that contain this text are shown.
    pub(crate) filter: String,
    /// Whether keys are typed into the filter.
    pub(crate) typing: bool,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// The panel that scrolls.
    pub(crate) focus: Panel,
    /// Whether only that panel is shown.
    pub(crate) zoomed: bool,
    /// Whether CPUs are shown in several columns; `None`: only if they have no room otherwise.
    pub(crate) compact: Option<bool>,
    /// The first row of each panel that scrolls (CPUs, flows, events), if enough rows follow.
    pub(crate) first: [usize; 3],
    pub(crate) interval: Duration,
}

/// The last reading, and what changed since the one before.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) position: Position,
    pub(crate) rates: Option<Rates>,
    pub(crate) cpus: Vec<CpuRow>,
    pub(crate) flows: Vec<FlowRow>,
    /// Packets a second by rule, in the order of [`RULES`].
    pub(crate) rules: Option<[f64; RULES.len()]>,
    load: Option<Load>,
}

/// The rules that choose a target, by their counters, with their names.
pub(crate) const RULES: [(LiveCounter, &str); 6] = [
    (LiveCounter::Local, "local"),
    (LiveCounter::Bound, "bound"),
    (LiveCounter::Hashed, "hash"),
    (LiveCounter::InSlots, "slots"),
    (LiveCounter::Rfs, "rfs"),
    (LiveCounter::Matched, "matched"),
];

/// The state of the view.
#[derive(Clone, Debug)]
pub struct App {
    pub(crate) display: Display,
    pub(crate) view: View,
    pub(crate) connection: Connection,
    pub(crate) seen: Option<Seen>,
    pub(crate) area: Rect,
    tracker: Tracker,
}

impl App {
    /// A view without a reading yet, in a terminal of this size.
    #[must_use]
    pub fn new(display: Display, interval: Duration, area: Rect) -> App {
        let view = View {
            sort: Sort::default(),
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            focus: Panel::default(),
            zoomed: false,
            compact: None,
            first: [0; 3],
            interval,
        };
        let (connection, tracker) = (Connection::default(), Tracker::default());
        App { display, view, connection, seen: None, area, tracker }
    }

    /// Updates the state with a reading.
    pub fn update(&mut self, reading: Reading) {
        let Reading { status, load, position } = reading;
        let before = self.seen.take();
        let rates = before.as_ref().and_then(|before| Rates::between(&before.status, &status));
        // Another instance's readings do not apply to this one.
        let before = before.filter(|_| rates.is_some());
        let busy =
            before.as_ref().and_then(|before| Some(load.as_ref()?.since(before.load.as_ref()?)));
        let then = before.as_ref().map(|before| &before.status);
        let rules = rates.as_ref().zip(then).map(|(rates, then)| {
            let count = |status: &Status, rule| status.totals.rx.get(rule);
            RULES.map(|(rule, _)| rates.per_second(count(then, rule), count(&status, rule)))
        });
        let cpus = cpus::rows(then, &status, rates.as_ref(), busy.as_ref());
        let flows = self.tracker.rows(&status, rates.as_ref());
        self.connection = Connection::Up;
        self.seen = Some(Seen { status, position, rates, cpus, flows, rules, load });
    }

    /// Notes that the instance does not answer; the last reading stays.
    pub fn lose(&mut self, why: &str) {
        self.connection = Connection::Lost(clean(why));
    }

    /// Notes that the instance ended, as expected; the last reading stays.
    pub fn end(&mut self, how: &str) {
        self.connection = Connection::Ended(clean(how));
    }

    /// Notes that the terminal has another size.
    pub fn resize(&mut self, area: Rect) {
        self.area = area;
    }

    /// The flows that match the filter, in their order.
    pub(crate) fn flows(&self) -> Vec<&FlowRow> {
        let filter = self.view.filter.to_lowercase();
        let matches =
            |row: &&FlowRow| filter.is_empty() || row.flow.to_lowercase().contains(&filter);
        let mut rows: Vec<&FlowRow> =
            self.seen.iter().flat_map(|seen| &seen.flows).filter(matches).collect();
        rows.sort_by(|one, other| self.view.sort.compare(one, other));
        rows
    }
}
