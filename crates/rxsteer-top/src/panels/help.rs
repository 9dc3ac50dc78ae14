//! What keys do, and what the panels show.

use super::{draw_title, put, row};
use crate::app::App;
use crate::style::strong;
use crate::text::cell;
use ratatui::buffer::Buffer;
use ratatui::text::{Line, Span};

/// The keys of `keys.rs`.
const KEYS: [(&str, &str); 15] = [
    ("q, Ctrl-C", "quit"),
    ("?, h", "this help; any key closes it"),
    ("space", "pause, continue; no requests are sent during a pause"),
    ("+ -", "refresh more often, less often"),
    ("n", "the next instance"),
    ("Tab", "the panel that scrolls: CPUs, flows, events"),
    ("arrows, j k", "scroll it by a line"),
    ("PgUp PgDn Home End", "scroll it by a page, to its ends"),
    ("z", "only that panel; again: all panels"),
    ("c", "CPUs in several columns; again: in one"),
    ("s", "sort flows by the next of rate, packets, bytes, moves"),
    ("r p b m", "sort flows by rate, packets, bytes, moves"),
    ("/", "show only flows that contain a text; Enter keeps it"),
    ("Esc", "clear the filter"),
    ("Ctrl-L", "redraw the screen"),
];

const MEANINGS: [&str; 6] = [
    "received/s  packets that interfaces received on this CPU, and their bits",
    "processed/s packets that its stack or worker processed",
    "waiting     its backlog: packets in its ring now; ! marks drops",
    "p50, p99    delay from arrival to delivery, sampled in the interval",
    "ring        the thread that empties its ring; app: the rest except idle",
    "last move   from which CPU to which, and how long ago",
];

pub(super) fn draw(app: &App, buffer: &mut Buffer) {
    draw_title(app.area, "rxsteer top: keys", true, buffer);
    let keys = KEYS.iter().map(|(key, does)| {
        Line::from(vec![Span::styled(cell(key, 21, true), strong()), Span::raw(*does)])
    });
    let meanings = MEANINGS.iter().map(|text| Line::raw(format!(" {text}")));
    let lines = keys.chain([Line::default()]).chain(meanings);
    for (index, line) in lines.enumerate() {
        put(buffer, row(app.area, 1 + index as u16), line);
    }
}
