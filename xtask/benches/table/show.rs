//! The report as a table and as JSON.

use std::fmt::Write;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use rxsteer_bench::{Measured, Plan, Quartiles, Report, Slices};
use serde_json::{Value, json};

use crate::targets::{self, Limit, Verdict};

/// The table, followed by remarks on its reliability.
pub(crate) fn table(report: &Report, plan: &Plan) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(rule));
    table.set_header([
        "group",
        "case",
        "ns/item",
        "ratio (quartiles)",
        "to baseline",
        "target",
        "",
    ]);
    for column in [2, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut group = "";
    for measured in &report.measured {
        for row in rows(measured) {
            let head = if measured.group == group { "" } else { measured.group };
            group = measured.group;
            table.add_row([vec![head.to_owned()], row].concat());
        }
    }
    format!("{}\n\n{}", table.trim_fmt(), trust(report, plan))
}

/// The rows of a case, without the group: one for each baseline, and one for each target in nanoseconds.
fn rows(measured: &Measured) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for target in targets::of(measured) {
        if let Limit::Ns { .. } = target.limit {
            rows.push([
                String::new(),
                String::new(),
                target.limit.to_string(),
                verdict(&target.limit, measured),
            ]);
        }
    }
    if !measured.baseline {
        for against in &measured.against {
            let limit = targets::of(measured)
                .map(|target| &target.limit)
                .find(|limit| limit.baseline() == Some(against.baseline));
            rows.push([
                match (limit, against.more_ns) {
                    (Some(Limit::MoreNs { .. }), Some(more)) => more_ns(more),
                    _ => against.ratio.map_or_else(|| "-".to_owned(), ratio),
                },
                against.baseline.to_owned(),
                limit.map(ToString::to_string).unwrap_or_default(),
                limit.map(|limit| verdict(limit, measured)).unwrap_or_default(),
            ]);
        }
    }
    if rows.is_empty() {
        let role = if measured.baseline { "baseline" } else { "" };
        rows.push([role.to_owned(), String::new(), String::new(), String::new()]);
    }
    let ns = measured.ns.map_or_else(|| "-".to_owned(), |ns| figure(ns.median));
    let heads = [[measured.name.to_owned(), ns]]
        .into_iter()
        .chain(std::iter::repeat_with(Default::default));
    heads.zip(rows).map(|(head, row)| head.into_iter().chain(row).collect()).collect()
}

fn verdict(limit: &Limit, measured: &Measured) -> String {
    limit.verdict(measured).to_string()
}

fn ratio(q: Quartiles) -> String {
    format!("{} ({}–{})", figure(q.median), figure(q.q1), figure(q.q3))
}

fn more_ns(q: Quartiles) -> String {
    format!("{:+.1} ns ({:+.1}–{:+.1})", q.median, q.q1, q.q3)
}

/// A number with three significant digits.
fn figure(value: f64) -> String {
    let decimals = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else if value >= 0.0995 {
        2
    } else {
        3
    };
    format!("{value:.decimals$}")
}

fn trust(report: &Report, plan: &Plan) -> String {
    let mut text = format!(
        "Medians of {} rounds, slices of {} ms in random order (seed {}). A ratio is taken within \
         a round; below 1 is faster than the baseline.\n",
        plan.rounds,
        plan.slice.as_millis(),
        plan.seed
    );
    let Slices { kept, thrown_away, waits, given_up, one_way_ns } = &report.slices;
    // Writing to a String cannot fail.
    let _ = match &plan.gate {
        Err(why) => {
            writeln!(text, "There was no gate, as {}: all {kept} slices count.", why.reason())
        }
        Ok(gate) => writeln!(
            text,
            "Gate: a cache line from CPU {} to CPU {} in at most {} ns; it took {}. \
             {kept} slices count, {thrown_away} were thrown away, {waits} times one had to wait.",
            gate.cpus.0,
            gate.cpus.1,
            gate.limit_ns,
            one_way_ns.map_or_else(|| "-".to_owned(), ratio),
        ),
    };
    if *given_up > 0 {
        let _ = writeln!(
            text,
            "{given_up} turns have no figure, because the gate stayed shut. Run this again on a \
             quieter machine, or with a wider gate (--gate-ns); a figure from another run does not \
             compare with these."
        );
    }
    text
}

/// The report as JSON.
pub(crate) fn json(report: &Report, plan: &Plan) -> String {
    let Slices { kept, thrown_away, waits, given_up, one_way_ns } = &report.slices;
    let gate = match &plan.gate {
        Ok(gate) => json!({
            "cpus": [gate.cpus.0, gate.cpus.1],
            "limit_ns": gate.limit_ns,
            "one_way_ns": one_way_ns.map(quartiles),
        }),
        Err(why) => json!({ "none_because": why.reason() }),
    };
    let report = json!({
        "rounds": plan.rounds,
        "slice_ms": plan.slice.as_millis() as u64,
        "seed": plan.seed,
        "gate": gate,
        "slices": {
            "kept": kept,
            "thrown_away": thrown_away,
            "waits": waits,
            "given_up": given_up,
        },
        "cases": report.measured.iter().map(case).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn case(measured: &Measured) -> Value {
    let against = measured.against.iter().map(|against| {
        json!({
            "baseline": against.baseline,
            "ratio": against.ratio.map(quartiles),
            "more_ns": against.more_ns.map(quartiles),
        })
    });
    let targets = targets::of(measured).map(|target| {
        let (baseline, at_most, unit) = match target.limit {
            Limit::Ratio { baseline, at_most } => (Some(baseline), at_most, "ratio"),
            Limit::MoreNs { baseline, at_most } => (Some(baseline), at_most, "ns more"),
            Limit::Ns { at_most } => (None, at_most, "ns"),
        };
        let (met, missed_by) = match target.limit.verdict(measured) {
            Verdict::Met => (Some(true), None),
            Verdict::MissedBy(share) => (Some(false), Some(share)),
            Verdict::Open => (None, None),
        };
        json!({
            "unit": unit,
            "baseline": baseline,
            "at_most": at_most,
            "met": met,
            "missed_by": missed_by,
        })
    });
    json!({
        "group": measured.group,
        "case": measured.name,
        "baseline": measured.baseline,
        "ns_per_item": measured.ns.map(quartiles),
        "against": against.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
    })
}

fn quartiles(q: Quartiles) -> Value {
    json!({ "q1": q.q1, "median": q.median, "q3": q.q3 })
}
