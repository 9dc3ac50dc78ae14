//! The layout, and what all panels share. One file per panel; each draws into its part of a buffer.
//!
//! ```text
//!  header.rs      the instance, its settings, totals, interfaces
//!  cpus.rs        a row or cell per CPU
//!  decisions.rs │ guard.rs      side by side; a line each where there is little room
//!  flows.rs       a row per flow
//!  events.rs      the last events
//!  footer.rs      keys, or the filter while it is typed
//! ```

pub(crate) mod cpus;
mod decisions;
mod events;
mod flows;
mod footer;
mod guard;
mod header;
mod help;

use crate::app::{App, Panel};
use crate::style::{heading, strong};
use crate::text::{shortened, width};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use rxsteer_status::figures::grouped;

/// The smallest terminal that has room for all panels.
pub const MIN_SIZE: Size = Size { width: 80, height: 24 };

/// From this height on, decisions and order guard have one line per figure.
const TALL: u16 = 34;
const HEADER_LINES: u16 = 4;
/// Title and two lines.
const SHORT_MIDDLE: u16 = 3;
/// Title, heading, six rules.
const TALL_MIDDLE: u16 = 8;

/// The areas of the panels; a hidden panel has no lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) header: Rect,
    pub(crate) cpus: Rect,
    pub(crate) middle: Rect,
    pub(crate) flows: Rect,
    pub(crate) events: Rect,
    pub(crate) footer: Rect,
}

/// The areas of the panels, for the app's state and size.
pub(crate) fn areas(app: &App) -> Areas {
    let area = app.area;
    if area.width < MIN_SIZE.width || area.height < MIN_SIZE.height {
        return Areas::default();
    }
    let mut top = area.y;
    let mut next = |lines: u16| {
        let part = Rect { y: top, height: lines, ..area };
        top += lines;
        part
    };
    let header = next(HEADER_LINES);
    let body = area.height - HEADER_LINES - 1;
    if app.view.zoomed {
        let part = |panel| if app.view.focus == panel { body } else { 0 };
        return Areas {
            header,
            cpus: next(part(Panel::Cpus)),
            middle: next(0),
            flows: next(part(Panel::Flows)),
            events: next(part(Panel::Events)),
            footer: next(1),
        };
    }
    let middle = if area.height >= TALL { TALL_MIDDLE } else { SHORT_MIDDLE };
    let events = 1 + (area.height / 8).clamp(2, 6);
    let rest = body - middle - events;
    let cpus = app.seen.as_ref().map_or(0, |seen| seen.cpus.len());
    // CPUs get at most half of the lines, flows the rest.
    let wanted = u16::try_from(cpus).unwrap_or(u16::MAX).saturating_add(2);
    let cpus = wanted.clamp(3, (rest / 2).max(6));
    Areas {
        header,
        cpus: next(cpus),
        middle: next(middle),
        flows: next(rest - cpus),
        events: next(events),
        footer: next(1),
    }
}

/// How many rows a panel shows at once, and how many it has.
pub(crate) fn rows_of(app: &App, panel: Panel) -> (usize, usize) {
    let areas = areas(app);
    let Some(seen) = &app.seen else { return (0, 0) };
    match panel {
        Panel::Cpus => cpus::rows(app, areas.cpus, seen.cpus.len()),
        Panel::Flows => (flows::room(areas.flows), app.flows().len()),
        Panel::Events => (events::room(areas.events), seen.status.events.len()),
    }
}

/// The first row that a panel shows, given how many it shows at once and how many it has: no panel scrolls beyond its
/// last row.
pub(crate) fn first_row(app: &App, panel: Panel, room: usize, rows: usize) -> usize {
    app.view.first[panel as usize].min(rows.saturating_sub(room))
}

/// Draws the whole view into the area of the buffer.
pub fn draw(app: &App, buffer: &mut Buffer) {
    buffer.reset();
    let areas = areas(app);
    if areas == Areas::default() {
        too_small(app, buffer);
    } else if app.view.help {
        help::draw(app, buffer);
    } else {
        header::draw(app, areas.header, buffer);
        cpus::draw(app, areas.cpus, buffer);
        middle(app, areas.middle, buffer);
        flows::draw(app, areas.flows, buffer);
        events::draw(app, areas.events, buffer);
        footer::draw(app, areas.footer, buffer);
    }
    app.display.apply(buffer);
}

fn middle(app: &App, area: Rect, buffer: &mut Buffer) {
    match area.height {
        0 => {}
        TALL_MIDDLE => {
            let half = area.width / 2;
            decisions::draw(app, Rect { width: half - 1, ..area }, buffer);
            let right = Rect { x: area.x + half, width: area.width - half, ..area };
            guard::draw(app, right, buffer);
        }
        _ => {
            let title = Rect { height: 1, ..area };
            draw_title(title, "decisions and order guard", false, buffer);
            put(buffer, row(area, 1), decisions::line(app, area.width));
            put(buffer, row(area, 2), guard::line(app, area.width));
        }
    }
}

fn too_small(app: &App, buffer: &mut Buffer) {
    let area = app.area;
    let lines = [
        "rxsteer top needs more room:".to_owned(),
        format!("{} columns, {} lines.", MIN_SIZE.width, MIN_SIZE.height),
        format!("Now: {} columns, {} lines.", area.width, area.height),
        "Enlarge it, or quit with q.".to_owned(),
    ];
    for (index, line) in lines.into_iter().enumerate() {
        put(buffer, row(area, index as u16), Line::raw(line));
    }
}

/// The line of an area with this number.
pub(crate) fn row(area: Rect, number: u16) -> Rect {
    let height = u16::from(number < area.height);
    Rect { y: area.y.saturating_add(number), height, ..area }
}

/// Draws a line, if the area has room for it.
pub(crate) fn put(buffer: &mut Buffer, area: Rect, line: Line<'_>) {
    let area = area.intersection(buffer.area);
    if area.height > 0 && area.width > 0 {
        buffer.set_line(area.x, area.y, &line, area.width);
    }
}

/// A rule across the first line of an area, with the panel's title; a mark if its rows scroll by keys.
pub(crate) fn draw_title(area: Rect, title: &str, focused: bool, buffer: &mut Buffer) {
    let room = usize::from(area.width);
    let mark = if focused { "▸ " } else { "" };
    let title = shortened(&format!(" {mark}{title} "), room.saturating_sub(4));
    let rest = room.saturating_sub(2 + width(&title));
    let style = if focused { strong().add_modifier(Modifier::REVERSED) } else { strong() };
    let line = Line::from(vec![
        Span::styled("──", heading()),
        Span::styled(title, style),
        Span::styled("─".repeat(rest), heading()),
    ]);
    put(buffer, row(area, 0), line);
}

/// Which part of the rows is shown, for a title; empty if all are.
pub(crate) fn part_shown(first: usize, room: usize, rows: usize) -> String {
    if rows <= room {
        return String::new();
    }
    let count = |rows: usize| grouped(rows as u64);
    format!(", {} to {} of {}", count(first + 1), count((first + room).min(rows)), count(rows))
}

/// A column of a table.
pub(crate) struct Column<R> {
    pub(crate) title: &'static str,
    /// Columns of the terminal, with the space before it.
    pub(crate) width: u16,
    /// The narrowest panel that shows it.
    pub(crate) from: u16,
    /// Whether it is left-aligned.
    pub(crate) left: bool,
    pub(crate) text: fn(&R) -> String,
}
