//! The instance: its name, settings, totals and interfaces.

use super::{put, row};
use crate::app::{App, Connection, Seen};
use crate::style::{alarm, strong};
use crate::text::{clean, cut, joined, rate, running, shortened, width};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use rxsteer_core::counters::LiveCounter;
use rxsteer_status::State;
use rxsteer_status::figures::grouped;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let room = usize::from(area.width);
    put(buffer, row(area, 0), instance(app, area.width));
    let Some(seen) = &app.seen else { return };
    let settings = clean(&seen.status.settings.to_string());
    put(buffer, row(area, 1), Line::raw(format!(" {}", cut(&settings, room - 1))));
    put(buffer, row(area, 2), totals(seen, area.width));
    put(buffer, row(area, 3), interfaces(seen, area.width));
}

/// The name of the instance, and whether it answers.
fn instance(app: &App, room: u16) -> Line<'static> {
    let mut parts = vec![Span::styled("rxsteer top", strong())];
    // After the name.
    let message = |text: &str| cut(text, usize::from(room).saturating_sub(16));
    let attention = alarm().add_modifier(Modifier::REVERSED);
    match &app.connection {
        Connection::Waiting => parts.push(Span::raw("waiting for an answer")),
        Connection::Lost(why) => {
            let text = message(&format!("NO ANSWER, trying again: {why}"));
            parts.push(Span::styled(text, attention));
        }
        Connection::Ended(how) => parts.push(Span::styled(message(how), attention)),
        Connection::Up => {}
    }
    if let Some(seen) = &app.seen {
        let status = &seen.status;
        parts.push(Span::raw(format!(
            "{}, process {}, running for {}",
            status.command.name(),
            status.pid,
            running(status.running_ns)
        )));
        let position = seen.position;
        if position.count > 1 {
            parts.push(Span::raw(format!("instance {} of {}", position.number, position.count)));
        }
        if let Some(rates) = &seen.rates {
            parts.push(Span::raw(format!("over {:.1} s", rates.interval_ns as f64 / 1e9)));
        }
    }
    if app.view.paused {
        parts.push(Span::styled("PAUSED", Style::new().add_modifier(Modifier::REVERSED)));
    }
    joined(room, parts)
}

/// All CPUs together.
fn totals(seen: &Seen, room: u16) -> Line<'static> {
    let totals = seen.rates.as_ref().map(|rates| rates.totals);
    let waiting = seen.status.totals.waiting;
    let dropped = totals.map(|totals| totals.dropped);
    let (mark, style) = if dropped > Some(0.0) { ("! ", alarm()) } else { ("", Style::new()) };
    let received = totals.map(|totals| totals.received);
    joined(
        room,
        [
            Span::styled(format!("received {}/s", rate(received.map(|all| all.packets))), strong()),
            Span::raw(format!("{} bit/s", rate(received.map(|all| all.bits)))),
            Span::styled(format!("{mark}dropped {}/s", rate(dropped)), style),
            Span::raw(format!("delivered {}/s", rate(totals.map(|totals| totals.delivered)))),
            Span::raw(format!("waiting {}", grouped(waiting))),
        ],
    )
}

/// The interfaces that fit, each with its received packets; those that are not steered with their state.
fn interfaces(seen: &Seen, all: u16) -> Line<'static> {
    let known = &seen.status.interfaces;
    let room = usize::from(all);
    let mut parts = Vec::new();
    // Room for " and 12 more".
    let mut left = room.saturating_sub(14);
    for interface in known {
        let rates = seen.rates.as_ref();
        let found = rates
            .and_then(|rates| rates.interfaces.iter().find(|found| found.name == interface.name));
        let name = clean(&interface.name);
        let (text, style) = match interface.state {
            State::Steered => (
                format!(
                    "{name} {}/s {} bit/s",
                    rate(found.map(|found| found.received.packets)),
                    rate(found.map(|found| found.received.bits))
                ),
                Style::new(),
            ),
            state => {
                let total = interface.counts.get(LiveCounter::Received);
                let before = if total > 0 { " now" } else { "" };
                (format!("! {name} is{before} {}", state.name()), alarm())
            }
        };
        if width(&text) + 3 > left && !parts.is_empty() {
            parts.push(Span::raw(format!("and {} more", known.len() - parts.len())));
            break;
        }
        left = left.saturating_sub(width(&text) + 3);
        parts.push(Span::styled(shortened(&text, room.saturating_sub(1)), style));
    }
    joined(all, parts)
}
