//! The most important keys, or the filter while it is typed.

use super::put;
use crate::app::App;
use crate::style::strong;
use crate::text::{clean, joined, shortened};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use std::time::Duration;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let view = &app.view;
    if view.typing {
        let help = "Enter keeps it, Esc clears it";
        let room = usize::from(area.width).saturating_sub(help.len() + 14);
        let line = Line::from(vec![
            Span::styled(" filter: ", strong()),
            Span::raw(shortened(&clean(&view.filter), room)),
            Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
            Span::raw(format!("   {help}")),
        ]);
        put(buffer, area, line);
        return;
    }
    let pause = if view.paused { "continue" } else { "pause" };
    let interval = interval(view.interval);
    let keys = [
        ("q", "quit"),
        ("?", "help"),
        ("space", pause),
        ("s", "sort"),
        ("/", "filter"),
        ("Tab", "panel"),
        ("z", "zoom"),
        ("+-", interval.as_str()),
    ];
    let parts = keys.map(|(key, does)| Span::raw(format!("{key} {does}")));
    put(
        buffer,
        area,
        joined(area.width, parts).style(Style::new().add_modifier(Modifier::REVERSED)),
    );
}

/// An interval in a suitable unit.
pub(super) fn interval(interval: Duration) -> String {
    let ms = interval.as_millis();
    if ms < 1000 { format!("{ms} ms") } else { format!("{} s", interval.as_secs_f64()) }
}
