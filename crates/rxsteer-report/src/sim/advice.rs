//! The conclusion of a comparison, in words. It can be "leave it alone".

use super::figure;
use super::results::Results;
use rxsteer_sim::compare::{Difference, Finding, LEVEL, WORTH};
use rxsteer_sim::metric::Subject;
use rxsteer_sim::published::{KNOWN_ERRORS, KnownError};

/// The metrics that decide: the first one that the scenario has, so that a scenario with requests is judged by
/// transactions.
const GOALS: [&str; 2] = ["transactions_per_second", "bits_per_second"];

/// The least relative loss that is named, as a share: [`figure::relative`] has one decimal of a per cent.
const SHOWN: f64 = 0.0005;

/// The advice; `None` if nothing was compared.
pub fn advice(results: &Results) -> Option<String> {
    let baseline = &results.cells[0].label;
    if results.cells.len() < 2 {
        return None;
    }
    if results.is_unfinished() {
        return Some("no comparison: it was interrupted before any run was complete".to_owned());
    }
    if results.differences.is_empty() {
        return Some(
            "no comparison: it requires at least two seeds of each policy (--seeds)".to_owned(),
        );
    }
    let sound = |it: &&Difference| results.cells[it.cell].reordered() == 0;
    let differences: Vec<&Difference> = results.differences.iter().filter(sound).collect();
    let advice =
        on_goal(results, &differences).or_else(|| other_improvement(results, &differences));
    Some(advice.unwrap_or_else(|| {
        let any = |finding| differences.iter().any(|it| it.finding() == finding);
        let why = if any(Finding::Better) {
            format!(" by {} % or more", WORTH * 100.0)
        } else if differences.iter().any(|it| it.within_model() == Finding::Better) {
            " beyond the allowed difference".to_owned()
        } else {
            String::new()
        };
        format!("leave it alone: no policy is significantly better than {baseline}{why} here")
    }))
}

/// The policy that improves the scenario's main metric most, if any does. Of policies with about the same gain, it is
/// the one with the least CPU time, and of these the first in the list.
fn on_goal(results: &Results, differences: &[&Difference]) -> Option<String> {
    let goal = goal(differences)?;
    let of_goal = || differences.iter().filter(|it| it.metric.name == goal && it.is_worth_it());
    let gain = |it: &Difference| it.relative().unwrap_or(f64::INFINITY);
    let most = of_goal().map(|it| gain(it)).reduce(f64::max)?;
    let cost = |cell: usize| results.cells[cell].mean("cpu_per_packet_ns", Subject::Run);
    let alike = || of_goal().filter(|it| gain(it) > most - WORTH || gain(it) == most);
    let least = alike().map(|it| cost(it.cell)).reduce(f64::min)?;
    let best = alike().find(|it| cost(it.cell) <= least * (1.0 + WORTH))?;
    Some(format!("{}{}", sentence(results, best), drawbacks(results, differences, best)))
}

/// The policy that improves another metric most, without a loss in the main metric.
fn other_improvement(results: &Results, differences: &[&Difference]) -> Option<String> {
    let goal = goal(differences)?;
    let costs = |cell| {
        let worse = |it: &&&Difference| it.cell == cell && it.within_model() == Finding::Worse;
        differences.iter().filter(worse).any(|it| it.metric.name == goal)
    };
    let gains = differences.iter().filter(|it| it.is_worth_it() && !costs(it.cell));
    let size = |it: &Difference| it.relative().map_or(f64::INFINITY, f64::abs);
    let best = gains.max_by(|a, b| size(a).total_cmp(&size(b)))?;
    let price = drawbacks(results, differences, best);
    Some(format!(
        "{}, with the {} not significantly less{price}",
        sentence(results, best),
        title(goal)
    ))
}

fn goal(differences: &[&Difference]) -> Option<&'static str> {
    main_figure(differences.iter().map(|it| it.metric.name))
}

/// The metric among `names` that a scenario is judged by.
pub(crate) fn main_figure<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'static str> {
    GOALS.into_iter().find(|goal| names.clone().any(|name| name == *goal))
}

pub(crate) fn title(name: &str) -> &'static str {
    rxsteer_sim::metric::Metric::named(name).map_or("rest", |metric| metric.title)
}

/// `sparse: throughput +12.3 % …`.
fn sentence(results: &Results, best: &Difference) -> String {
    let by = match best.relative() {
        Some(_) => figure::relative(best.relative()),
        None => figure::difference(best.metric.unit, best.paired.difference, best.paired.interval),
    };
    format!(
        "{} is better than {}: {} {by} (p {})",
        results.cells[best.cell].label,
        results.cells[0].label,
        figure::name(results.scenario(), best.metric, best.subject),
        figure::probability(best.corrected),
    )
}

/// What gets worse under the advised policy. A loss that no printed digit shows is not a price.
fn drawbacks(results: &Results, differences: &[&Difference], best: &Difference) -> String {
    let shows = |it: &Difference| it.relative().is_none_or(|by| by.abs() >= SHOWN);
    let worse = |it: &&&Difference| {
        it.cell == best.cell && it.within_model() == Finding::Worse && shows(it)
    };
    let parts: Vec<String> = differences
        .iter()
        .filter(worse)
        .map(|it| {
            let name = figure::name(results.scenario(), it.metric, it.subject);
            format!("{name} {}", figure::relative(it.relative()))
        })
        .collect();
    if parts.is_empty() { String::new() } else { format!("; it costs {}", parts.join(", ")) }
}

/// How to read a comparison.
pub(crate) fn legend(results: &Results) -> String {
    let compared = |known: &&KnownError| {
        results.differences.iter().any(|it| known.metrics.contains(&it.metric.name))
    };
    let known = KNOWN_ERRORS.iter().filter(compared).map(|known| known_error(results, known));
    let known: Vec<String> = known.collect();
    format!(
        "p is the probability that chance alone makes such a difference (paired t-test over {} seeds, \
         Holm's correction for {} comparisons); a difference with p below {LEVEL} is significant.\n\
         Allowed is how much larger one figure may be than the other before the difference counts: the model's known error \
         times the change under {} if its CPUs are numbered backwards.\n\
         The known error is the model's largest deviation from published tables (--published): {}; for other figures it \
         is unknown.",
        results.differences.iter().map(|it| it.paired.count).min().unwrap_or(0),
        results.differences.len(),
        results.cells[0].label,
        known.join("; "),
    )
}

/// A known error in words, for the figures that are compared.
fn known_error(results: &Results, known: &KnownError) -> String {
    let mut titles: Vec<&str> = Vec::new();
    for it in results.differences.iter().filter(|it| known.metrics.contains(&it.metric.name)) {
        if !titles.contains(&it.metric.title) {
            titles.push(it.metric.title);
        }
    }
    format!("{} {} by {}", titles.join(" and "), figure::allowed(known.factor), known.source)
}
