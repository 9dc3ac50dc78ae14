//! One row per CPU; if they have no room, cells in several columns.

use super::{Column, draw_title, first_row, part_shown, put, row};
use crate::app::{App, Panel, Seen};
use crate::cpus::{CpuRow, Time};
use crate::style::{APPLICATION, RING, SOFTIRQ, alarm, bar, heading};
use crate::text::{cell, rate, share, unknown};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use rxsteer_status::figures::{grouped, nanoseconds};

/// The width of the time bar in a narrow panel.
const BAR: u16 = 10;
/// The width of a cell: CPU, bar, rate, mark, gap.
const CELL: u16 = 20;
const CELL_BAR: u16 = 4;
const CELL_RATE: u16 = 10;

fn time(row: &CpuRow, part: impl Fn(&Time) -> f64) -> String {
    row.time.as_ref().map_or_else(unknown, |time| share(part(time)))
}

fn delay(ns: Option<u64>) -> String {
    ns.map_or_else(unknown, nanoseconds)
}

/// The columns before the bar, and after it.
const BEFORE: [Column<CpuRow>; 4] = [
    Column { title: "CPU", width: 5, from: 0, left: false, text: |row| row.cpu.to_string() },
    Column { title: "received/s", width: 11, from: 0, left: false, text: |row| rate(row.received) },
    Column { title: "bit/s", width: 16, from: 0, left: false, text: |row| rate(row.bits) },
    Column {
        title: "processed/s",
        width: 12,
        from: 0,
        left: false,
        text: |row| rate(row.processed),
    },
];
const BEHIND: [Column<CpuRow>; 10] = [
    Column {
        title: "soft%",
        width: 6,
        from: 106,
        left: false,
        text: |row| time(row, |time| time.softirq),
    },
    Column {
        title: "ring%",
        width: 6,
        from: 106,
        left: false,
        text: |row| time(row, |time| time.ring),
    },
    Column {
        title: "app%",
        width: 6,
        from: 106,
        left: false,
        text: |row| time(row, |time| time.application),
    },
    Column { title: "idle%", width: 6, from: 106, left: false, text: |row| time(row, Time::idle) },
    Column { title: WAITING, width: 8, from: 0, left: false, text: |row| grouped(row.waiting) },
    Column { title: DROPPED, width: 9, from: 0, left: false, text: |row| marked(row) },
    Column { title: "p50", width: 9, from: 116, left: false, text: |row| delay(row.delay_p50_ns) },
    Column { title: "p99", width: 9, from: 0, left: false, text: |row| delay(row.delay_p99_ns) },
    Column { title: "moves/s", width: 9, from: 140, left: false, text: |row| rate(row.moves) },
    Column {
        title: "deferred/s",
        width: 11,
        from: 140,
        left: false,
        text: |row| rate(row.deferred),
    },
];
const DROPPED: &str = "drops/s";
const WAITING: &str = "waiting";
/// Replaces the backlog and delays in shadow mode, where nothing is sent to a CPU.
const WOULD: Column<CpuRow> =
    Column { title: "would/s", width: 11, from: 0, left: false, text: |row| rate(row.would) };
const DELAYS: [&str; 2] = ["p50", "p99"];

fn drops(row: &CpuRow) -> bool {
    row.dropped > Some(0.0)
}

/// Drops with a mark, so that they stand out without colours, too.
fn marked(row: &CpuRow) -> String {
    format!("{}{}", if drops(row) { "!" } else { "" }, rate(row.dropped))
}

/// Whether CPUs are in several columns: by choice, or because they would not fit otherwise.
pub(crate) fn is_compact(app: &App, area: Rect) -> bool {
    let rows = app.seen.as_ref().map_or(0, |seen| seen.cpus.len());
    app.view.compact.unwrap_or(rows > room(area))
}

/// The number of rows after title and headings.
fn room(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(2))
}

/// How many rows are shown at once, and how many there are; a row of cells has several CPUs.
pub(super) fn rows(app: &App, area: Rect, cpus: usize) -> (usize, usize) {
    if is_compact(app, area) {
        (room(area), cpus.div_ceil(cells_in_a_row(area)))
    } else {
        (room(area), cpus)
    }
}

fn cells_in_a_row(area: Rect) -> usize {
    usize::from((area.width / CELL).max(1))
}

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let Some(seen) = &app.seen else {
        draw_title(area, "CPUs", app.view.focus == Panel::Cpus, buffer);
        return;
    };
    let compact = is_compact(app, area);
    let (room, rows) = rows(app, area, seen.cpus.len());
    let first = first_row(app, Panel::Cpus, room, rows);
    let part = if compact {
        let cells = cells_in_a_row(area);
        part_shown(first * cells, room * cells, seen.cpus.len())
    } else {
        part_shown(first, room, rows)
    };
    let legend = format!("time: {SOFTIRQ} softirq {RING} ring's thread {APPLICATION} applications");
    let title = format!("{} CPUs{part}   {legend}", seen.cpus.len());
    draw_title(area, &title, app.view.focus == Panel::Cpus, buffer);
    if compact {
        cells(seen, area, first, buffer);
    } else {
        table(seen, area, first, buffer);
    }
}

fn table(seen: &Seen, area: Rect, first: usize, buffer: &mut Buffer) {
    let shown = |column: &&Column<CpuRow>| column.from <= area.width;
    let before: Vec<&Column<CpuRow>> = BEFORE.iter().filter(shown).collect();
    let is_shadow = seen.cpus.iter().any(|cpu| cpu.would.is_some());
    let in_shadow = |column: &'static Column<CpuRow>| match column.title {
        WAITING => Some(&WOULD),
        title => (!DELAYS.contains(&title)).then_some(column),
    };
    let behind = BEHIND.iter().filter(shown);
    let behind: Vec<&Column<CpuRow>> =
        if is_shadow { behind.filter_map(in_shadow).collect() } else { behind.collect() };
    let taken: u16 = before.iter().chain(&behind).map(|column| column.width).sum();
    let bar_width = area.width.saturating_sub(taken).clamp(BAR, 40);
    let title = |column: &&Column<CpuRow>| cell(column.title, column.width, column.left);
    let mut heads: String = before.iter().map(title).collect();
    heads.push_str(&cell("time", bar_width, true));
    heads.extend(behind.iter().map(title));
    put(buffer, row(area, 1), Line::styled(heads, heading()));
    for (index, cpu) in seen.cpus.iter().skip(first).take(room(area)).enumerate() {
        let text = |column: &&Column<CpuRow>| {
            let style = if column.title == DROPPED && drops(cpu) { alarm() } else { Style::new() };
            Span::styled(cell(&(column.text)(cpu), column.width, column.left), style)
        };
        let mut spans: Vec<Span<'_>> = before.iter().map(text).collect();
        spans.push(Span::raw(" "));
        spans.extend(time_bar(cpu, usize::from(bar_width) - 1));
        spans.extend(behind.iter().map(text));
        put(buffer, row(area, 2 + index as u16), Line::from(spans));
    }
}

fn cells(seen: &Seen, area: Rect, first: usize, buffer: &mut Buffer) {
    let per_row = cells_in_a_row(area);
    let part = |column: usize| Rect { x: area.x + column as u16 * CELL, width: CELL, ..area };
    for column in 0..per_row {
        let heads = format!("{} time{}", cell("CPU", 5, false), cell("proc./s", CELL_RATE, false));
        put(buffer, row(part(column), 1), Line::styled(heads, heading()));
    }
    let shown = seen.cpus.iter().skip(first * per_row).take(room(area) * per_row);
    for (index, cpu) in shown.enumerate() {
        let (line, column) = (index / per_row, index % per_row);
        let mut spans = vec![Span::raw(cell(&cpu.cpu.to_string(), 5, false)), Span::raw(" ")];
        spans.extend(time_bar(cpu, usize::from(CELL_BAR)));
        let (mark, style) = if drops(cpu) { ("!", alarm()) } else { ("", Style::new()) };
        spans.push(Span::styled(
            cell(&format!("{mark}{}", rate(cpu.processed)), CELL_RATE, false),
            style,
        ));
        put(buffer, row(part(column), 2 + line as u16), Line::from(spans));
    }
}

/// How a CPU spends its time.
fn time_bar(cpu: &CpuRow, width: usize) -> Vec<Span<'static>> {
    match &cpu.time {
        None => vec![Span::raw(cell("-", width as u16 + 1, true)[1..].to_owned())],
        Some(time) => bar(
            width,
            &[(time.softirq, SOFTIRQ), (time.ring, RING), (time.application, APPLICATION)],
        ),
    }
}
