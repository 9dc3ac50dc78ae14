//! The order guard: whether it applies, what it defers, which flows moved; the flows, and drops by reason.

use super::{draw_title, put, row};
use crate::app::{App, Seen};
use crate::style::{alarm, strong};
use crate::text::{clean, cut, joined, percent, rate};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use rxsteer_core::counters::LiveCounter;
use rxsteer_status::Drops;
use rxsteer_status::figures::grouped;

/// Whether the guard applies.
fn state(seen: &Seen) -> Span<'static> {
    let status = &seen.status;
    if !status.settings.order_guard {
        return Span::styled("! order guard OFF by the settings", alarm());
    }
    let text = match (status.guarded, status.changing) {
        (_, true) => "order guard on, a change is in progress",
        (true, false) => "order guard on",
        (false, false) => "order guard bypassed: no flow moves",
    };
    Span::styled(text, strong())
}

/// All of it in a line.
pub(super) fn line(app: &App, room: u16) -> Line<'static> {
    let Some(seen) = &app.seen else { return Line::default() };
    let totals = seen.rates.as_ref().map(|rates| rates.totals);
    joined(
        room,
        [
            state(seen),
            Span::raw(format!("moves {}/s", rate(totals.map(|totals| totals.moves)))),
            Span::raw(format!("deferred {}/s", rate(totals.map(|totals| totals.deferred)))),
        ],
    )
}

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    draw_title(area, "order guard", false, buffer);
    let Some(seen) = &app.seen else { return };
    let status = &seen.status;
    let totals = seen.rates.as_ref().map(|rates| rates.totals);
    let count = |counter| grouped(status.totals.rx.get(counter));
    let deferred = totals.map(|totals| percent(totals.deferred, totals.received.packets));
    let dropped = dropped(&status.totals.drops);
    let mut lines = vec![
        joined(area.width, [state(seen)]),
        Line::raw(format!(
            " moves      {}/s, {} in all",
            rate(totals.map(|totals| totals.moves)),
            count(LiveCounter::Moves)
        )),
        Line::raw(format!(
            " deferred   {}/s ({} of received), {} in all",
            rate(totals.map(|totals| totals.deferred)),
            deferred.unwrap_or_else(crate::text::unknown),
            count(LiveCounter::Deferred)
        )),
        Line::raw(match &status.flow_statistics {
            Some(flows) => format!(
                " flows      {}, {} packets not counted",
                grouped(flows.flows),
                grouped(flows.refused)
            ),
            None => " flows      not counted".to_owned(),
        }),
        Line::raw(format!(" dropped    {dropped}")),
    ];
    if let Some(why) = &status.threads_problem {
        let room = usize::from(area.width).saturating_sub(3);
        lines.push(Line::styled(format!(" ! {}", cut(&clean(why), room)), alarm()));
    }
    for (index, line) in lines.into_iter().enumerate() {
        put(buffer, row(area, 1 + index as u16), line);
    }
}

/// Drops by reason, since the start.
fn dropped(drops: &Drops) -> String {
    let reasons = [
        (drops.ring_full, "queue full"),
        (drops.alloc, "memory"),
        (drops.flow_limit, "flow limit"),
        (drops.redirect_errors, "redirect"),
    ];
    let known: u64 = reasons.iter().map(|(count, _)| count).sum();
    let reasons = reasons.into_iter().chain([(drops.total() - known, "other")]);
    let reasons = reasons.filter(|(count, _)| *count > 0);
    let reasons: Vec<String> =
        reasons.map(|(count, reason)| format!("{} {reason}", grouped(count))).collect();
    if reasons.is_empty() { "nothing".to_owned() } else { reasons.join(", ") }
}
