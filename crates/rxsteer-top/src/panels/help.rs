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
    ("space", "pause, and go on; meanwhile the instance is not asked"),
    ("+ -", "look more often, less often"),
    ("n", "the next instance"),
    ("Tab", "the panel that scrolls: CPUs, flows, events"),
    ("arrows, j k", "scroll it by a line"),
    ("PgUp PgDn Home End", "scroll it by a page, to its ends"),
    ("z", "only that panel, and all again"),
    ("c", "CPUs in several columns, and in one"),
    ("s", "sort flows by the next: rate, packets, bytes, moves"),
    ("r p b m", "sort flows by rate, packets, bytes, moves"),
    ("/", "only flows that contain a text; Enter keeps it"),
    ("Esc", "all flows again"),
    ("Ctrl-L", "draw the whole screen again"),
];

const MEANINGS: [&str; 6] = [
    "received/s  packets that this CPU's interfaces received, and their bits",
    "processed/s packets that went up its stack, or to its worker",
    "waiting     its backlog: packets in its ring now; ! marks drops",
    "p50, p99    delay from arrival to delivery, of samples in the interval",
    "ring        the thread that empties its ring; app: everything else but idle",
    "last move   from which CPU to which, and how long ago it was seen",
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
