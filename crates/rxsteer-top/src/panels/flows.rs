//! A row per flow.

use super::{Column, draw_title, first_row, part_shown, put, row};
use crate::app::{App, Panel, Seen};
use crate::flows::{FlowRow, Sort};
use crate::style::{heading, strong};
use crate::text::{cell, coarse, rate, unknown, width};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use rxsteer_status::Command;
use rxsteer_status::figures::grouped;

/// The least number of columns for a flow, if there is room.
const SHORTEST_NAME: usize = 34;

/// The columns after the flow. A narrow panel shows either packets or bytes, depending on the sort order.
const COLUMNS: [(Option<Sort>, Column<FlowRow>); 8] = [
    (
        Some(Sort::Rate),
        Column {
            title: "packets/s",
            width: 11,
            from: 0,
            left: false,
            text: |flow| rate(flow.rate),
        },
    ),
    (
        Some(Sort::Packets),
        Column {
            title: "packets",
            width: 14,
            from: 100,
            left: false,
            text: |flow| grouped(flow.packets),
        },
    ),
    (
        Some(Sort::Bytes),
        Column {
            title: "bytes",
            width: 18,
            from: 100,
            left: false,
            text: |flow| grouped(flow.bytes),
        },
    ),
    (
        Some(Sort::Moves),
        Column {
            title: "moves",
            width: 7,
            from: 0,
            left: false,
            text: |flow| grouped(flow.moves.into()),
        },
    ),
    (None, Column { title: "last move", width: 12, from: 0, left: false, text: moved }),
    (None, Column { title: "CPU", width: 5, from: 0, left: false, text: cpu }),
    (
        None,
        Column {
            title: "idle",
            width: 8,
            from: 112,
            left: false,
            text: |flow| coarse(flow.idle_ns),
        },
    ),
    (None, Column { title: "CPUs", width: 26, from: 140, left: true, text: shares }),
];

/// Whether a column is shown: a narrow panel shows only one of packets and bytes.
fn is_shown(sort: Option<Sort>, column: &Column<FlowRow>, room: u16, sorted_by: Sort) -> bool {
    let instead = if sorted_by == Sort::Bytes { Sort::Bytes } else { Sort::Packets };
    column.from <= room || sort == Some(instead)
}

fn cpu(flow: &FlowRow) -> String {
    flow.cpu.map_or_else(unknown, |cpu| cpu.to_string())
}

/// "3→0 12 s": from, to, how long ago.
fn moved(flow: &FlowRow) -> String {
    let Some(moved) = flow.moved else { return unknown() };
    let ago = coarse(flow.seen_ns.saturating_sub(moved.at_ns));
    match moved.cpus {
        Some((from, to)) => format!("{from}→{to} {ago}"),
        None => format!("{}× {ago}", moved.count),
    }
}

/// "0: 75 %, 2: 25 %"
fn shares(flow: &FlowRow) -> String {
    let shares = flow.shares.iter().map(|(cpu, share)| format!("{cpu}: {:.0} %", share * 100.0));
    shares.collect::<Vec<_>>().join(", ")
}

/// The number of rows after title and headings.
pub(super) fn room(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(2))
}

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let flows = app.flows();
    let first = first_row(app, Panel::Flows, room(area), flows.len());
    let focused = app.view.focus == Panel::Flows;
    let Some(seen) = &app.seen else {
        draw_title(area, "flows", focused, buffer);
        return;
    };
    let by = app.view.sort.name();
    let filter = match app.view.filter.as_str() {
        "" => String::new(),
        filter => format!(" with \"{}\"", crate::text::clean(filter)),
    };
    let part = part_shown(first, room(area), flows.len());
    draw_title(area, &format!("flows by {by}{filter}{part}{}", listed(seen)), focused, buffer);
    if flows.is_empty() {
        put(buffer, row(area, 1), Line::raw(format!(" {}", why_none(seen, app))));
        return;
    }
    let sort = app.view.sort;
    let shown = COLUMNS.iter().filter(|(key, column)| is_shown(*key, column, area.width, sort));
    let shown: Vec<_> = shown.collect();
    let taken: u16 = shown.iter().map(|(_, column)| column.width).sum();
    // As wide as the longest one, if there is room.
    let longest = flows.iter().map(|flow| width(&flow.flow)).max().unwrap_or(0).max(SHORTEST_NAME);
    let name_width = area.width.saturating_sub(taken).min(longest as u16 + 2);
    let mut heads = vec![Span::styled(cell("flow", name_width, true), heading())];
    for (key, column) in &shown {
        let sorted = *key == Some(sort);
        let title = if sorted { format!("{}▾", column.title) } else { column.title.to_owned() };
        let style = if sorted { strong() } else { heading() };
        heads.push(Span::styled(cell(&title, column.width, column.left), style));
    }
    put(buffer, row(area, 1), Line::from(heads));
    for (index, flow) in flows.iter().skip(first).take(room(area)).enumerate() {
        let mut text = cell(&flow.flow, name_width, true);
        for (_, column) in &shown {
            text.push_str(&cell(&(column.text)(flow), column.width, column.left));
        }
        put(buffer, row(area, 2 + index as u16), Line::styled(text, Style::new()));
    }
}

/// How many flows the answer contains, and how many there are, if it does not contain all.
fn left_out(seen: &Seen) -> Option<(String, String)> {
    let all = seen.status.flow_statistics.as_ref().map_or(0, |statistics| statistics.flows);
    let listed = seen.flows.len() as u64;
    (all > listed).then(|| (grouped(listed), grouped(all)))
}

fn listed(seen: &Seen) -> String {
    left_out(seen)
        .map_or_else(String::new, |(listed, all)| format!("; the {listed} largest of {all}"))
}

fn why_none(seen: &Seen, app: &App) -> String {
    if !seen.status.settings.flow_stats {
        match seen.status.command {
            Command::Run => "flows are not counted: the instance runs with --no-flow-stats",
            Command::Live | Command::Replay => {
                "flows are not counted: the instance runs without --flows"
            }
        }
        .to_owned()
    } else if !app.view.filter.is_empty() && !seen.flows.is_empty() {
        match left_out(seen) {
            None => "no flow contains the filter's text; Esc clears it".to_owned(),
            Some((listed, _)) => {
                format!(
                    "none of the {listed} largest flows contains the filter's text; Esc clears it"
                )
            }
        }
    } else {
        "no flow counted yet".to_owned()
    }
}
