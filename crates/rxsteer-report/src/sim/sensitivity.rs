//! The text output of `--sensitivity`: how each figure changes with half and with twice each assumed cost.

use super::advice;
use super::figure;
use super::results::{Results, Varied};
use crate::lines::{fitted, paragraphs};
use crate::table;
use rxsteer_sim::compare::WORTH;
use rxsteer_sim::metric::{Metric, Subject};
use rxsteer_sim::sensitivity::Change;

/// With more traffics than this, the table has only figures of the whole run; the JSON has all.
const MAX_TRAFFICS: usize = 3;

/// The table, and the costs that the main figure depends on.
pub fn all(results: &Results) -> String {
    let columns = columns(results);
    let names = columns.iter().map(|(metric, of)| figure::name(results.scenario(), metric, *of));
    let names: Vec<String> = names.collect();
    let header: Vec<&str> =
        ["assumed cost", "value"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = table::new(&header, &[0]);
    let base = columns.iter().map(|(metric, of)| {
        figure::summary(metric.unit, results.cells[0].summary(metric, *of).as_ref())
    });
    let unchanged = ["unchanged costs".to_owned(), String::new()];
    table.add_row(unchanged.into_iter().chain(base).collect::<Vec<_>>());
    for varied in &results.varied {
        let figures = columns.iter().map(|(metric, of)| {
            let change = varied.changes.iter().find(|it| it.metric == *metric && it.subject == *of);
            figure::relative(change.map(|change| change.relative))
        });
        let row = [varied.cost.key.to_owned(), value(varied)];
        table.add_row(row.into_iter().chain(figures).collect::<Vec<_>>());
    }
    let goal = advice::main_figure(columns.iter().map(|(metric, _)| metric.name));
    // After the cost and its value.
    let others = (2..).zip(&columns).filter(|(_, (metric, _))| Some(metric.name) != goal);
    let least: Vec<Vec<usize>> = others.map(|(column, _)| vec![column]).collect();
    let mut text = fitted(table, &least);
    if let Some(goal) = goal {
        text += "\n";
        text += &paragraphs(&depends(results, goal));
    }
    text
}

/// The headline figures that the runs have.
fn columns(results: &Results) -> Vec<(&'static Metric, Subject)> {
    let few = results.scenario().traffic.len() <= MAX_TRAFFICS;
    let mut columns = Vec::new();
    for Change { metric, subject, .. } in results.varied.iter().flat_map(|it| &it.changes) {
        let is_shown = few || *subject == Subject::Run;
        if is_shown && !columns.contains(&(*metric, *subject)) {
            columns.push((*metric, *subject));
        }
    }
    columns
}

fn value(varied: &Varied) -> String {
    let unit = if varied.cost.unit == "flows" { "flows" } else { "ns" };
    format!("{} {unit}", varied.value)
}

/// Which costs change the metric `goal`, each with its changes in the order of its values, and which do not.
fn depends(results: &Results, goal: &str) -> String {
    let (mut matters, mut others): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for of_cost in results.varied.chunk_by(|a, b| a.cost.key == b.cost.key) {
        let changes = of_cost.iter().flat_map(|varied| &varied.changes);
        let of_goal: Vec<f64> =
            changes.filter(|it| it.metric.name == goal).map(|it| it.relative).collect();
        let key = of_cost[0].cost.key;
        if of_goal.iter().any(|change| change.abs() >= WORTH) {
            let shown: Vec<String> =
                of_goal.iter().map(|change| figure::relative(Some(*change))).collect();
            matters.push(format!("{key} ({})", shown.join(", ")));
        } else {
            others.push(key);
        }
    }
    let list = |names: &[String]| match names {
        [] => "none of them".to_owned(),
        names => names.join(", "),
    };
    let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
    format!(
        "Costs that change the {} by {} % or more when halved or doubled: {}.\n\
         Costs that matter less: {}.\n\
         Measure the costs that matter (rxsteer lab calibrate), and set them in [costs] of a scenario.\n",
        advice::title(goal),
        WORTH * 100.0,
        list(&matters),
        list(&others)
    )
}
