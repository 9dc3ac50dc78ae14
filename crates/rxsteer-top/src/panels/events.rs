//! The last events, the latest first.

use super::{draw_title, first_row, part_shown, put, row};
use crate::app::{App, Panel};
use crate::style::heading;
use crate::text::{clean, clock, cut};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// The number of rows after the title.
pub(super) fn room(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(1))
}

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let events = app.seen.as_ref().map_or(&[][..], |seen| &seen.status.events);
    let first = first_row(app, Panel::Events, room(area), events.len());
    let title = format!("events{}, times in UTC", part_shown(first, room(area), events.len()));
    draw_title(area, &title, app.view.focus == Panel::Events, buffer);
    if events.is_empty() {
        put(buffer, row(area, 1), Line::styled(" none yet", heading()));
    }
    for (index, event) in events.iter().rev().skip(first).take(room(area)).enumerate() {
        let begin = format!(" {} {}  ", clock(event.time_ns), clean(&event.kind));
        let left = usize::from(area.width).saturating_sub(crate::text::width(&begin));
        let text = cut(&clean(&event.text), left);
        let line = Line::from(vec![Span::styled(begin, heading()), Span::raw(text)]);
        put(buffer, row(area, 1 + index as u16), line);
    }
}
