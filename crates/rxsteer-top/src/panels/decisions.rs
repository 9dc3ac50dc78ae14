//! How many packets each rule places.

use super::{draw_title, put, row};
use crate::app::{App, RULES};
use crate::style::{SOFTIRQ, bar, heading};
use crate::text::{cell, joined, percent, rate, unknown};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use rxsteer_status::figures::grouped;

/// All rules in a line.
pub(super) fn line(app: &App, room: u16) -> Line<'static> {
    let rules = app.seen.as_ref().and_then(|seen| seen.rules);
    let sum: f64 = rules.iter().flatten().sum();
    let part = |index: usize| rules.map_or_else(unknown, |rules| percent(rules[index], sum));
    let parts = RULES.iter().enumerate();
    joined(room, parts.map(|(index, (_, name))| Span::raw(format!("{name} {}", part(index)))))
}

/// The widths of rule, rate, share and total; the bar takes the rest.
const WIDTHS: [u16; 4] = [8, 13, 9, 19];

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    draw_title(area, "decisions by rule", false, buffer);
    let taken: u16 = WIDTHS.iter().sum();
    let bar_width = usize::from(area.width.saturating_sub(taken + 2).min(40));
    let heads = ["rule", "packets/s", "share", "packets"];
    let heads = heads.iter().zip(WIDTHS).enumerate();
    let heads: String = heads.map(|(index, (head, width))| cell(head, width, index == 0)).collect();
    put(buffer, row(area, 1), Line::styled(heads, heading()));
    let Some(seen) = &app.seen else { return };
    let sum: f64 = seen.rules.iter().flatten().sum();
    for (index, (rule, name)) in RULES.iter().enumerate() {
        let per_second = seen.rules.map(|rules| rules[index]);
        let texts = [
            (*name).to_owned(),
            rate(per_second),
            per_second.map_or_else(unknown, |per_second| percent(per_second, sum)),
            grouped(seen.status.totals.rx.get(*rule)),
        ];
        let texts = texts.iter().zip(WIDTHS).enumerate();
        let text: String =
            texts.map(|(index, (text, width))| cell(text, width, index == 0)).collect();
        let mut spans = vec![Span::raw(text), Span::raw("  ")];
        let share = per_second.filter(|_| sum > 0.0).map_or(0.0, |per_second| per_second / sum);
        spans.extend(bar(bar_width, &[(share, SOFTIRQ)]));
        put(buffer, row(area, 2 + index as u16), Line::from(spans));
    }
}
