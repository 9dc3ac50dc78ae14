//! The range over hash secrets as a table, and as JSON.

use super::{Figure, Spread};
use crate::output::json::issues;
use crate::output::lines::{field, lines};
use crate::output::table::{duration, largest_flow, left_out, new, unsteered};
use rxsteer_status::figures::grouped;
use serde_json::{Map, Value, json};

impl Figure {
    /// Its name in the table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Figure::Imbalance => "imbalance",
            Figure::BusiestShare => "busiest CPU",
            Figure::Dropped => "dropped",
            Figure::Moves => "moves",
            Figure::Deferred => "deferred",
            Figure::AtHome => "applications",
        }
    }

    /// What it means.
    const fn meaning(self) -> &'static str {
        match self {
            Figure::Imbalance => {
                "Busiest CPU over the average, by packets decided for it; 1 is even."
            }
            Figure::BusiestShare => "Its share of the packets.",
            Figure::Dropped => "Packets dropped.",
            Figure::Moves => "Times that a flow went to another CPU than before.",
            Figure::Deferred => "Packets deferred behind earlier packets of their flow.",
            Figure::AtHome => "Share of their packets that were processed where they run.",
        }
    }

    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Figure::Imbalance => format!("{value:.2}"),
            Figure::BusiestShare | Figure::AtHome => format!("{:.1} %", value * 100.0),
            Figure::Dropped | Figure::Moves | Figure::Deferred => grouped(value as u64),
        }
    }

    pub(crate) fn json(self, value: Option<f64>) -> Value {
        match self {
            Figure::Imbalance | Figure::BusiestShare | Figure::AtHome => json!(value),
            Figure::Dropped | Figure::Moves | Figure::Deferred => json!(value.map(|it| it as u64)),
        }
    }

    /// Whether the table has a row for it even if it is always 0.
    const fn is_always_shown(self) -> bool {
        matches!(self, Figure::Imbalance | Figure::BusiestShare | Figure::Dropped | Figure::Moves)
    }
}

/// A table of minimum, median and maximum, the meaning of its rows, and totals.
pub(super) fn text(spread: &Spread) -> String {
    let mut table = new(&["", "minimum", "median", "maximum"], &[0]);
    let mut meanings = String::new();
    for figure in Figure::ALL {
        let Some(range) = spread.draws.range(figure) else { continue };
        if range[2].0 == 0.0 && !figure.is_always_shown() {
            continue;
        }
        let values = range.map(|(value, _)| figure.text(value));
        table.add_row([figure.title().to_owned()].into_iter().chain(values));
        field(&mut meanings, figure.title(), 13, figure.meaning());
    }
    let mut text = format!("{}\n{meanings}\n", lines(&table));
    totals(&mut text, spread);
    text
}

fn totals(text: &mut String, spread: &Spread) {
    let mut line = |name: &str, value: String| field(text, name, 13, &value);
    let report = &spread.draws.last;
    let first = spread.secrets.first.0;
    line("policy", format!("{}, CPUs {}", spread.policy, spread.cpus));
    line(
        "hash",
        format!(
            "symmetric, {} secrets; the same again: --seeds {0} --hash-seed {first:x}",
            spread.secrets.count
        ),
    );
    if let Some([even, _, uneven]) = spread.draws.range(Figure::Imbalance) {
        for (name, (value, draw)) in [("most even", even), ("least even", uneven)] {
            let imbalance = Figure::Imbalance.text(value);
            line(name, format!("imbalance {imbalance} with --hash-seed {:x}", draw.secret.0));
        }
    }
    line(
        "packets",
        format!(
            "{} ({} bytes) in each of {} replays, which took {}",
            grouped(report.packets),
            grouped(report.bytes),
            spread.draws.count(),
            duration(spread.elapsed)
        ),
    );
    line("flows", format!("{} steered", grouped(report.steered_flows)));
    line("largest flow", largest_flow(report));
    line("not steered", unsteered(report));
    if spread.skipped > 0 {
        line("left out", left_out(spread.skipped));
    }
    line("order", format!("{} reordered", grouped(spread.draws.reordered)));
    if spread.interrupted {
        let (done, count) = (spread.draws.count(), spread.secrets.count);
        line("interrupted", format!("the report covers {done} of {count} secrets"));
    }
}

/// The same for programs.
pub(super) fn json(spread: &Spread) -> Value {
    let figures = |value: &dyn Fn(Figure) -> Value| -> Map<String, Value> {
        let all = Figure::ALL.into_iter();
        all.map(|figure| (figure.name().to_owned(), value(figure))).collect()
    };
    let draws = spread.draws.draws.iter().map(|draw| {
        let mut object = Map::new();
        object.insert("hash_seed".to_owned(), json!(format!("{:032x}", draw.secret.0)));
        object.extend(figures(&|figure| figure.json(draw.get(figure))));
        Value::Object(object)
    });
    let summary = figures(&|figure| {
        spread.draws.range(figure).map_or(Value::Null, |range| {
            let [minimum, median, maximum] = range.map(|(value, _)| figure.json(Some(value)));
            json!({ "minimum": minimum, "median": median, "maximum": maximum })
        })
    });
    let report = &spread.draws.last;
    json!({
        "policy": spread.policy,
        "version": env!("CARGO_PKG_VERSION"),
        "hash": "symmetric",
        "hash_seed": format!("{:032x}", spread.secrets.first.0),
        "seeds": spread.secrets.count,
        "summary": summary,
        "runs": draws.collect::<Vec<Value>>(),
        "packets": report.packets,
        "bytes": report.bytes,
        "flows_steered": report.steered_flows,
        "largest_flow_packets": report.largest_flow,
        "frames_not_ip": report.not_ip,
        "malformed": report.malformed.iter().sum::<u64>(),
        "records_skipped": spread.skipped,
        "reordered": spread.draws.reordered,
        "errors": issues(&spread.issues),
        "settings": spread.settings,
        "interrupted": spread.interrupted,
        "elapsed_ns": spread.elapsed.as_nanos() as u64,
    })
}

/// Further notes.
pub(super) fn notes(spread: &Spread) -> Vec<String> {
    let mut notes: Vec<String> = spread.issues.iter().map(ToString::to_string).collect();
    notes.extend(spread.draws.failures.iter().cloned());
    if spread.draws.reordered > 0 {
        notes.push(format!(
            "{} packets were processed out of order. That is a bug in rxsteer: please report it with this command line.",
            spread.draws.reordered
        ));
    }
    notes
}
