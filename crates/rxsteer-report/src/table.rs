//! Tables and figures that several commands show.

use comfy_table::{CellAlignment, Table, presets};
use rxsteer_core::counters::SteerCounter;
use rxsteer_status::figures::nanoseconds;
use std::fmt::Write;
use std::time::Duration;

/// A table whose columns are right-aligned, except for those in `left`.
pub fn new(header: &[&str], left: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for (index, column) in table.column_iter_mut().enumerate() {
        let alignment =
            if left.contains(&index) { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
    }
    table
}

/// How many packets each mechanism steered, where `shown` returns a number; empty if only the hash or the receiving CPU
/// was used.
pub fn steered_by(shown: impl Fn(SteerCounter) -> Option<String>) -> String {
    let by = [
        (SteerCounter::Rfs, "to where their application runs"),
        (SteerCounter::InSlots, "by sparse slot"),
        (SteerCounter::Matched, "by a rule before the policy"),
        (SteerCounter::Bound, "by the binding of their RX queue"),
        (SteerCounter::Hashed, "by hash"),
        (SteerCounter::Local, "left on the CPU that received them"),
    ];
    let deferred = shown(SteerCounter::Deferred);
    let is_plain = |counter| matches!(counter, SteerCounter::Hashed | SteerCounter::Local);
    let is_used =
        |(counter, _): &(SteerCounter, _)| !is_plain(*counter) && shown(*counter).is_some();
    if deferred.is_none() && !by.iter().any(is_used) {
        return String::new();
    }
    let by =
        by.into_iter().filter_map(|(counter, what)| Some(format!("{} {what}", shown(counter)?)));
    let mut text = by.collect::<Vec<String>>().join(", ");
    // These packets also have a target, and their flow moves there later.
    if let Some(deferred) = deferred {
        let _ = write!(text, "; {deferred} of them deferred behind earlier packets of their flow");
    }
    text
}

/// A duration in a suitable unit.
pub fn duration(duration: Duration) -> String {
    nanoseconds(duration.as_nanos() as u64)
}
